"""A flag that nobody reads is refused with what it needs; a grid trains a method once that does not read its flag."""

import pytest
from small_runs import run_flags

from real_openrlhf.base.errors import UserError
from real_openrlhf.comparison.command import entries, once_each
from real_openrlhf.flags import parser
from real_openrlhf.flags.readers import READERS, unread
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.command import request_of

MINE, FILTER = "mine.py:hinge", "--algo.dynamic_filtering_enable"
UNREAD = [  # method, flag and value, what it needs, what makes the run read it
    ("grpo", "--algo.real.tau 0.1", "--actor.policy_loss_type real", None),
    ("gspo", f"--algo.real.objective {MINE}", "--actor.policy_loss_type real", None),
    ("grpo", "--algo.real.set beta=1", "--actor.policy_loss_type real", None),
    ("dapo", "--algo.real.uniform_groups keep", "an objective over scores", None),
    ("grpo", "--actor.eps_clip 0.1", "with --no-actor.eps_clip_low_high", "--no-actor.eps_clip_low_high"),
    ("real", "--actor.eps_clip_low_high 0.2 0.3", "ppo or gspo", None),
    ("gspo", "--actor.loss_agg_mode token-mean", "--actor.policy_loss_type ppo", None),
    ("real", "--algo.kl.estimator k3", "a reference model", "--algo.kl.init_coef 0.1"),
    ("real", "--algo.kl.use_loss", "--algo.kl.init_coef above 0", "--algo.kl.init_coef 0.1"),
    ("real", "--ref.offload", "a reference model", "--algo.kl.init_coef 0.1"),
    ("real", "--ds.lora.alpha 8", "--ds.lora.rank above 0", "--ds.lora.rank 8"),
    ("real", "--actor.muon.lr 0.1", "--actor.optim muon", "--actor.optim muon"),
    (
        "real",
        "--algo.dynamic_filtering_range 0 1",
        "--algo.dynamic_filtering_enable",
        "--algo.dynamic_filtering_enable",
    ),
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


@pytest.mark.parametrize("algo, text, needs, reader", UNREAD)
def test_a_flag_that_nobody_reads_is_refused_with_what_it_needs(algo, text, needs, reader):
    flag = text.split()[0]
    (problem,) = [one for one in run_of(algo, text).problems if one.startswith(f"{flag} is not read")]
    assert needs in problem
    if reader:
        assert not run_of(algo, text, reader).unread


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_recipe_has_no_flag_that_nobody_reads(recipe, algo):
    run = request_of(["--recipe", recipe, "--algo", algo]).run
    assert unread(run.flags, run.args).keys() <= {"--ref.num_nodes", "--ref.num_gpus_per_node"}


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
