"""Recipes against the paper: its numbers stand here a second time, and what a recipe quotes is looked up in it."""

import hashlib
import re
from pathlib import Path

import pytest
from small_runs import ON_GPUS, run_flags
from small_world import REPOSITORY

from real_openrlhf.data.sources import TRAINING_SETS
from real_openrlhf.flags.refusals import size_problems
from real_openrlhf.forecast import memory
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import LOSS, PAPER
from real_openrlhf.runs.run_record import recorded_flags
from real_openrlhf.training import command
from real_openrlhf.training.checks import model_check
from real_openrlhf.training.checks.data_check import step_problems
from real_openrlhf.training.command import request_of

# recipes of the models that the paper trained; a recipe of another model has other numbers
PAPER_SCALE = [name for name in ON_GPUS if "lora" not in name and "R1-Distill-Qwen" in RECIPES[name].model]
PAIRS = [(recipe, algo) for recipe in RECIPES for algo in ALGORITHMS]


def values(recipe: str, flag: str, algo: str = "real") -> list[float]:
    return [float(word) for word in run_flags(recipe, algo).flags[flag].words]


NUMBERS = {
    "--actor.adam.weight_decay": [0.01],
    "--rollout.batch_size": [128],
    "--train.batch_size": [32 * 8],  # the paper counts prompts
    "--rollout.n_samples_per_prompt": [8],
    "--rollout.temperature": [0.6],
    "--eval.temperature": [0.6],
    "--rollout.max_new_tokens": [8192],
    "--data.max_len": [1024 + 8192],
    "--eval.n_samples_per_prompt": [8],  # Fig. 2: averaged over 8 samples
    "--actor.adam.betas": [0.9, 0.999],  # from here on from the authors' code
    "--actor.lr_warmup_ratio": [0],
}


@pytest.mark.parametrize("recipe", ON_GPUS)
def test_the_recipes_have_the_papers_numbers(recipe):
    assert {flag: values(recipe, flag) for flag in NUMBERS} == NUMBERS
    assert run_flags(recipe).text("--actor.lr_scheduler") == "constant" and RECIPES[recipe].eval_data == "aime24"
    if recipe in PAPER_SCALE:
        size, rate, steps = ("1.5B", 2e-6, 1400) if "1.5b" in recipe else ("7B", 1e-6, 1000)
        assert values(recipe, "--actor.adam.lr") == [rate] and values(recipe, "--train.max_steps") == [steps]
        assert f"DeepSeek-R1-Distill-Qwen-{size}" in run_flags(recipe).text("--actor.model_name_or_path")


@pytest.mark.parametrize("recipe, algo", PAIRS)
def test_prompts_come_in_the_seeds_order(recipe, algo):
    assert {"--rollout.seeded_order", "--rollout.seeded"} & run_flags(recipe, algo).flags.keys()


OF_METHODS = {
    "grpo": {"--algo.kl.init_coef": "0.001", "--actor.eps_clip_low_high": "0.2 0.2", "--algo.kl.estimator": "k3"},
    "dapo": {"--actor.eps_clip_low_high": "0.2 0.28", "--actor.loss_agg_mode": "token-mean"},
    "gspo": {"--actor.eps_clip_low_high": "3e-4 4e-4", "--actor.policy_loss_type": "gspo"},
    "trpa": {"--algo.real.set": "beta=0.1", "--algo.real.kl_old_coef": "0.001"},  # of its own code
    **{name: {"--algo.real.tau": "0.5"} for name in ("real", "real_bce", "real_no_anchor", "real_fixed_weights")},
}


@pytest.mark.parametrize("algo", OF_METHODS)
def test_methods_have_the_papers_values(algo):
    """No KL but GRPO's: OpenRLHF's default is 0.01."""
    flags = run_flags("qwen7b", algo)
    assert {flag: flags.text(flag) for flag in OF_METHODS[algo]} == OF_METHODS[algo]
    assert ("--algo.kl.use_loss" in flags.flags) == (algo == "grpo")
    assert (float(flags.text("--algo.kl.init_coef")) == 0) == (algo != "grpo")


METHOD_FLAGS = (
    *("--actor.policy_loss_type", "--actor.eps_clip_low_high", "--actor.loss_agg_mode"),
    *("--algo.kl.", "--algo.real."),
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_between_algorithms_only_the_methods_flags_differ(recipe):
    def rest(algo):
        return {flag: s for flag, s in run_flags(recipe, algo).flags.items() if not flag.startswith(METHOD_FLAGS)}

    assert all(rest(algo) == rest("real") for algo in ALGORITHMS)
    assert not [flag for flag in RECIPES[recipe].flags if flag.startswith(METHOD_FLAGS)]
    for algorithm in ALGORITHMS.values():
        assert all(flag.startswith(METHOD_FLAGS) for flag in algorithm.flags)


@pytest.mark.parametrize("recipe, algo", PAIRS)
def test_what_claims_to_be_the_papers_quotes_it(recipe, algo):
    for flag, setting in run_flags(recipe, algo).flags.items():
        if setting.origin == PAPER:
            assert re.search("“.+”", setting.note), flag


def test_the_quotes_are_those_that_were_compared_with_the_papers_source():
    """A new quote: read it in the paper, then write its digest here."""
    notes = [s.note for recipe, algo in PAIRS for s in run_flags(recipe, algo).flags.values()]
    quotes = sorted({quote for note in notes for quote in re.findall("“(.+?)”", note)})
    assert hashlib.sha256("\n".join(quotes).encode()).hexdigest()[:12] == "b7099dc54277"


def test_the_users_flags_win_and_are_listed():
    composed = run_flags(
        "qwen7b", user={"--actor.adam.lr": ("3e-6",), "--ds.overlap_comm": (), "--train.seed": ("42",)}
    )
    assert composed.text("--actor.adam.lr") == "3e-6"
    assert composed.flags["--actor.adam.lr"].origin == "user"
    changes = {flag: (before and before.text, after.text) for flag, before, after in composed.changes}
    assert changes == {"--actor.adam.lr": ("1e-6", "3e-6"), "--ds.overlap_comm": (None, "")}  # 42 is the recipe's


def test_engines_follow_the_layout_unless_named():
    user = {"--actor.num_nodes": ("2",), "--actor.num_gpus_per_node": ("4",), "--vllm.tensor_parallel_size": ("2",)}
    composed = run_flags("qwen7b", user=user)
    assert composed.text("--vllm.num_engines") == "4"
    assert composed.text("--ref.num_nodes") == "2" and composed.text("--ref.num_gpus_per_node") == "4"
    assert composed.layout.gpus == 8
    assert run_flags("qwen7b", user={"--vllm.num_engines": ("3",)}).text("--vllm.num_engines") == "3"


@pytest.mark.parametrize("algo", ["real", "grpo"])  # without and with a reference model, which stays with the policy
def test_engines_that_draw_while_the_policy_trains_have_gpus_of_their_own(algo):
    user = {"--actor.num_gpus_per_node": ("4",), "--train.async_enable": ()}
    eight = run_flags("qwen7b", algo, user, ["--vllm.enable_sleep", "--ds.enable_sleep"])
    assert not eight.layout.colocated and (
        eight.layout.gpus,
        eight.layout.engine_gpus,
        eight.args.vllm.num_engines,
    ) == (8, 4, 4)
    assert run_flags("qwen7b", algo, {"--train.async_enable": ()}).layout.gpus == 16
    assert run_flags("qwen7b", algo).layout.colocated and run_flags("qwen7b", algo).layout.gpus == 8

    share = "--vllm.gpu_memory_utilization"
    assert (eight.text(share), run_flags("qwen7b", algo).text(share)) == ("0.9", "0.7")
    own = run_flags("qwen7b", algo, {"--train.async_enable": (), share: ("0.6",)})
    assert own.text(share) == "0.6" and run_flags("cpu", algo, {"--train.async_enable": ()}).text(share) == "0.3"


APART = ["--train.colocate_all", "--vllm.enable_sleep", "--ds.enable_sleep"]


@pytest.mark.parametrize(
    "algo, removed, user, gpus",
    [
        ("real", ["--algo.kl.init_coef"], {}, 16),  # REAL's default is no KL: the run starts no reference model
        ("dapo", ["--algo.kl.init_coef"], {}, 24),  # OpenRLHF's is 0.01
        ("grpo", [], {}, 24),
        ("trpa", [], {}, 24),
        ("grpo", [], {"--ref.num_gpus_per_node": ("4",)}, 20),
    ],
)
def test_what_is_started_is_counted(algo, removed, user, gpus):
    """By the same rule as in the trainer's process."""
    run = run_flags("qwen7b", algo, user, [*removed, *APART])
    assert run.layout.gpus == gpus and run.args.derived.reference == (gpus > 16)


@pytest.mark.parametrize(
    "recipe, user, most",
    [
        ("qwen7b", {}, 128),
        ("qwen1.5b-1gpu", {}, 512),
        ("lora-24gb", {}, 512),
        ("qwen7b", {"--actor.num_gpus_per_node": ("4",), "--train.async_enable": ()}, 256),
        ("qwen7b", {"--vllm.tensor_parallel_size": ("2",)}, 256),
        ("qwen7b", {"--vllm.num_engines": ("3",)}, 342),
        ("qwen1.5b-1gpu", {"--vllm.max_num_seqs": ("99",)}, 99),
    ],
)
def test_an_engine_draws_its_share_of_a_step_at_once(recipe, user, most):
    """OpenRLHF's engines would draw 128 at once, whatever the card: vLLM has no default for them."""
    assert run_flags(recipe, user=user).args.vllm.max_num_seqs == most


@pytest.mark.parametrize("recipe", PAPER_SCALE)
def test_the_data_is_read_often_enough_for_all_steps(recipe):
    rows = TRAINING_SETS[RECIPES[recipe].train_data].rows
    composed = run_flags(recipe, rows=rows)
    steps_a_pass = rows // composed.args.rollout.batch_size
    passes, steps = composed.args.train.num_episodes, composed.args.train.max_steps
    assert (passes - 1) * steps_a_pass < steps <= passes * steps_a_pass


def test_rows_that_are_not_read_are_not_counted_and_filtering_gets_passes_to_spare():
    bounded = {"--train.max_steps": ("40",), "--data.max_samples": ("200",)}
    assert run_flags("cpu", user=bounded, rows=8000).args.train.num_episodes == 7  # six steps of 32 prompts a pass
    filtered = run_flags("cpu", user={**bounded, "--algo.dynamic_filtering_enable": ()}, rows=8000)
    assert filtered.args.train.num_episodes == 140
    short = {**bounded, "--train.max_steps": ("25",), "--train.num_episodes": ("4",)}  # each pass leaves 8 rows
    (said,) = step_problems(run_flags("cpu", user=short).args, 8000)
    assert said.startswith("--train.num_episodes 4 over 200 rows ends after 24 steps, not after 25")


@pytest.mark.parametrize("flag", run_flags("qwen7b", rows=1000).flags.keys() - {LOSS})  # that one names the method
def test_any_flag_can_be_taken_out(flag):
    composed = run_flags("qwen7b", removed=[flag], rows=1000)
    assert flag not in composed.flags
    assert composed.layout.gpus > 0 and composed.layout.ranks and composed.argv()
    shape = memory.shape_of(memory.KNOWN_CONFIGS[RECIPES["qwen7b"].model])
    assert memory.forecast(shape, composed.args, 80)
    assert len([*size_problems(composed.args)]) <= 1
    assert [*model_check.unfit_problems(composed.args, {"model_type": "qwen2"})] == []


def test_another_objective_comes_with_its_own_constants():
    """TRPA reads no tau."""
    for name in ("trpa", "mine.py:hinge"):
        composed = run_flags("qwen7b", "real", {"--algo.real.objective": (name,)})
        assert "--algo.real.tau" not in composed.flags and composed.text("--algo.real.objective") == name
    assert run_flags("qwen7b", "real", {"--algo.real.objective": ("real",)}).text("--algo.real.tau") == "0.5"
    mine = run_flags("qwen7b", "real", {"--algo.real.objective": ("bce",), "--algo.real.tau": ("0.1",)})
    assert mine.text("--algo.real.tau") == "0.1" and "--algo.real.uniform_groups" in mine.flags


def test_files_of_the_user_are_found_from_any_directory(tmp_path, monkeypatch):
    """Ray's actors run in other directories."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    words = ["--reward.remote_url", "mine.py,http://host/reward", "--train.agent_func_path", "agent.py"]
    words += ["--model", "weights", "--eval.dataset", "held_out.jsonl,owner/set"]
    plan = request_of([*words, "--algo.real.objective", "mine.py:best"]).run
    assert plan.text("--actor.model_name_or_path") == f"{tmp_path}/weights"
    assert plan.text("--eval.dataset") == f"{tmp_path}/held_out.jsonl,owner/set"
    for name, expected in (("~/m", f"{Path.home()}/m"), ("owner/model", "owner/model"), ("gpt2", "gpt2")):
        assert request_of([f"--model={name}"]).run.text("--actor.model_name_or_path") == expected
    assert plan.text("--reward.remote_url") == f"{tmp_path}/mine.py,http://host/reward"
    assert plan.text("--train.agent_func_path") == f"{tmp_path}/agent.py"
    assert plan.text("--algo.real.objective") == f"{tmp_path}/mine.py:best"


# `train --config FILE.toml`


FILE = """
recipe = "cpu"
algo = "grpo"
data = "mine.jsonl"
seed = 3
max-steps = 12

[flags]
actor.adam.lr = 5e-4
actor.adam.betas = [0.9, 0.95]
"eval.steps" = -1
ds.overlap_comm = true
train.batching = false
algo.kl.init_coef = 0.01
data.input_key = "question"

[flags.rollout]
batch_size = 16
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def settings(*words):
    """(recipe, algorithm, all flags and removed ones) of a command line."""
    request = command.request_of(list(map(str, words)))
    return request.recipe.name, request.args.algo, recorded_flags(request.run), request.removed


def test_a_file_is_the_command_line_that_it_says(file):
    typed = "--recipe cpu --algo grpo --seed 3 --max-steps 12 --actor.adam.lr 5e-4 --actor.adam.betas 0.9 0.95"
    typed += " --eval.steps=-1 --ds.overlap_comm --no-train.batching --rollout.batch_size 16"
    typed += " --data mine.jsonl --algo.kl.init_coef 0.01 --data.input_key question"
    expected = settings(*typed.split())
    found = settings("--config", file)
    assert found == expected
    assert found[2]["--actor.adam.lr"] == 5e-4 and found[2]["--eval.steps"] == -1 and found[2]["--train.seed"] == 3


@pytest.mark.parametrize(
    "typed, flag, value",
    [
        (["--actor.adam.lr", "1e-3"], "--actor.adam.lr", 1e-3),
        (["--actor.adam.lr=1e-3"], "--actor.adam.lr", 1e-3),
        (["--train.seed", "9"], "--train.seed", 9),  # the file says `seed`
        (["--seed", "9"], "--train.seed", 9),
        (["--train.batching", "upstream"], "--train.batching", "upstream"),  # the file removes it
        (["--no-ds.overlap_comm"], "--ds.overlap_comm", None),
    ],
)
def test_typed_words_win(file, typed, flag, value):
    for words in (["--config", file, *typed], [*typed, f"--config={file}"]):
        assert settings(*words)[2].get(flag) == value
    assert settings("--config", file, "--algo", "real")[1] == "real"


def test_a_recipe_for_gpus_has_a_row_on_the_page_and_an_estimate_without_its_model():
    page = (REPOSITORY / "docs/use/training.md").read_text()
    assert [name for name in RECIPES if f"`{name}`" not in page] == []
    unknown = [name for name in ON_GPUS if RECIPES[name].model not in memory.KNOWN_CONFIGS]
    assert unknown == []  # add the model's shape, then run docs/refresh.py
