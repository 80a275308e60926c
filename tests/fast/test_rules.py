"""Refused: numbers that cannot be right, and flags that nobody reads. A grid trains a method once without its flag."""

import pytest
from small_runs import run_flags

from real_openrlhf.base.errors import UserError
from real_openrlhf.comparison.entries import entries, once_each
from real_openrlhf.flags import parser
from real_openrlhf.flags.rules import BOUNDS, READERS, unread, wrong_number
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.command import request_of

MINE, FILTER, UPSTREAM = "mine.py:hinge", "--algo.dynamic_filtering_enable", "--train.batching upstream"
UNREAD = [  # method, flag and value, what it needs, what makes the run read it; with which other flags
    ("grpo", "--algo.real.tau 0.1", "--actor.policy_loss_type real", None),
    ("gspo", f"--algo.real.objective {MINE}", "--actor.policy_loss_type real", None),
    ("grpo", "--algo.real.set beta=1", "--actor.policy_loss_type real", None),
    ("dapo", "--algo.real.uniform_groups keep", "an objective over scores", None),
    ("real", "--algo.real.uniform_groups keep", f"without {FILTER}", None, FILTER),
    ("grpo", "--algo.real.tis_cap 2", "an objective over scores", None),
    ("real", "--algo.advantage.estimator rloo", "a loss of tokens", None),
    ("real", "--algo.advantage.gamma 0.9", "gae or reinforce", None),
    (
        "grpo",
        "--algo.advantage.no_std_norm",
        "gae, reinforce or reinforce_baseline",
        "--algo.advantage.estimator reinforce_baseline",
    ),
    ("real", "--reward.clip_range 0 1", "a loss of tokens", None),
    *(
        ("grpo", f"--{text}", "--train.batching whole_groups", None, UPSTREAM)
        for text in ("algo.real.truncated ignore", "algo.real.kl_old_coef 1", "rollout.mismatch log")
    ),
    ("grpo", "--actor.eps_clip 0.1", "with --no-actor.eps_clip_low_high", "--no-actor.eps_clip_low_high"),
    ("real", "--actor.eps_clip_low_high 0.2 0.3", "ppo or gspo", None),
    ("gspo", "--actor.loss_agg_mode token-mean", "--actor.policy_loss_type ppo", None),
    ("real", "--algo.kl.estimator k3", "a reference model", "--algo.kl.init_coef 0.1"),
    ("real", "--algo.kl.use_loss", "--algo.kl.init_coef above 0", "--algo.kl.init_coef 0.1"),
    ("real", "--ref.offload", "a reference model", "--algo.kl.init_coef 0.1"),
    ("grpo", "--ref.offload", "--ds.zero_stage 3", None, "--ds.zero_stage 2"),
    ("real", "--ds.lora.alpha 8", "--ds.lora.rank above 0", "--ds.lora.rank 8"),
    ("real", "--actor.muon.lr 0.1", "--actor.optim muon", "--actor.optim muon"),
    ("real", f"{FILTER.replace('enable', 'range')} 0 1", FILTER, FILTER),
    ("grpo", "--reward.model_name_or_path a/b", "without --reward.remote_url", None, "--reward.remote_url mine.py"),
    ("grpo", "--critic.adam.lr 1e-5", "--algo.advantage.estimator gae", None),
]


def run_of(algo: str, *texts: str):
    user, removed = {}, []
    for flag, *words in (text.split() for text in texts):
        if flag.startswith("--no-"):
            removed.append(f"--{flag.removeprefix('--no-')}")
        else:
            user[flag] = tuple(words)
    return run_flags("qwen7b", algo, user, removed)


@pytest.mark.parametrize("row", UNREAD, ids=lambda row: " ".join(map(str, row[:2])))
def test_a_flag_that_nobody_reads_is_refused_with_what_it_needs(row):
    algo, text, needs, reader, *beside = row
    flag = text.split()[0]
    (problem,) = [one for one in run_of(algo, text, *beside).problems if one.startswith(f"{flag} is not read")]
    assert needs in problem
    if reader:
        assert flag not in run_of(algo, text, reader).unread


WRONG = """
    algo.real.label_threshold nan, algo.real.label_threshold inf, algo.kl.init_coef -0.1, algo.real.kl_old_coef -1,
    actor.lr_warmup_ratio 2, algo.real.tis_cap 0.5, rollout.top_p 0, rollout.top_p 1.5,
    rollout.temperature 0.001, actor.adam.betas 0.9 1.5,
    eval.temperature -1, eval.n_samples_per_prompt 0, train.seed -1, vllm.gpu_memory_utilization 2,
    train.watchdog_minutes -1, actor.adam.lr nan, actor.entropy_coef inf"""


@pytest.mark.parametrize("text", [f"--{one.strip()}" for one in WRONG.split(",")])
def test_a_number_that_cannot_be_right_is_refused(text):
    assert any(problem.startswith(f"{text}: give ") for problem in run_of("real", text).problems)


@pytest.mark.parametrize("flag", BOUNDS)
def test_openrlhfs_own_default_is_within_the_bounds(flag):
    default = parser.options()[flag].default
    numbers = default if isinstance(default, list | tuple) else [default]
    assert default is None or wrong_number(flag, numbers) is None


def test_a_method_trains_with_its_own_loss():
    for algo, other in (("real", "ppo"), ("grpo", "real")):
        problems = run_of(algo, f"--actor.policy_loss_type {other}").problems
        assert any(problem.endswith("Choose another method by --algo.") for problem in problems)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_recipe_has_no_flag_that_nobody_reads(recipe, algo):
    run = request_of(["--recipe", recipe, "--algo", algo]).run
    assert unread(run.flags, run.args).keys() <= {
        "--ref.num_nodes",
        "--ref.num_gpus_per_node",
        "--algo.advantage.estimator",
    }


def test_every_flag_of_the_table_is_one_of_openrlhfs():
    names = [name for flags, _, _ in READERS for name in flags.split()]
    known = parser.options()
    assert [one for one in names if one not in known and not any(flag.startswith(one) for flag in known)] == []
    assert len({*names}) == len(names)


def test_a_grid_trains_a_method_once_that_does_not_read_its_flag():
    grid = [["algo.real.tau", "0.1", "1"]]
    every = once_each(entries(["real", "grpo"], 1, 1, grid), ("--recipe", "cpu"), ["--algo.real.tau"])
    assert [entry.name for entry in every] == ["real-tau-0.1-s1", "grpo-s1", "real-tau-1-s1"]
    with pytest.raises(UserError, match="none of these methods reads it"):
        once_each(entries(["dapo", "grpo"], 1, 1, grid), ("--recipe", "cpu"), ["--algo.real.tau"])


def test_more_gpus_for_an_engine_than_the_policy_has_are_told():
    (problem,) = request_of(["--vllm.tensor_parallel_size", "4"]).run.problems
    assert "--vllm.tensor_parallel_size 4 needs 4 GPUs of the policy, which has 1" in problem


def test_a_seed_has_one_spelling():
    assert request_of(["--seed", "007"]).stem == request_of(["--seed", "7"]).stem == "cpu-real-s7"
