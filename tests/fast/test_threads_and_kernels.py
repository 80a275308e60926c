"""What a dry run says of threads on CPUs, and of attention and optimizer; what is missing for them."""

import json
import shutil

import pytest

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import kernels
from real_openrlhf.training.launch import threads
from real_openrlhf.training.tasks import smollm2
from real_openrlhf.training.tasks.tasks import default

REAL = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
TINY = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}


def chosen(tmp_path, config: dict, *flags: tuple[str, str]) -> tuple[int, str]:
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 1000, "num_key_value_heads": 4}))
    user = {"--actor.model_name_or_path": (str(tmp_path),), **{flag: (value,) * bool(value) for flag, value in flags}}
    return threads.choice(compose(RECIPES["cpu"], ALGORITHMS["real"], user))


@pytest.mark.parametrize(
    "flags, at_once",
    [
        ([], 1),
        ([("--actor.num_gpus_per_node", "2")], 2),
        ([("--train.async_enable", ""), ("--vllm.num_engines", "3")], 4),
    ],
    ids=["one rank", "two ranks", "asynchronous"],
)
def test_what_computes_at_once_shares_the_cores(tmp_path, monkeypatch, flags, at_once):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(8))  # the machine's, not ours
    count, why = chosen(tmp_path, REAL, *flags)
    assert count == 8 // at_once and "8 cores" in why


def test_a_tiny_model_has_one_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(8))
    assert chosen(tmp_path, TINY)[0] == 1
    assert chosen(tmp_path, REAL)[0] == 8


def test_a_model_that_is_not_here_is_real_and_a_tasks_is_tiny(tmp_path):
    assert threads.parameters("Qwen/Qwen2.5-1.5B") is None
    assert threads.parameters(str(tmp_path / "reverse" / "model")) == 0


def test_a_pretrained_model_that_is_yet_to_be_made_has_all_cores():
    for path in (smollm2.folder() / "model", default("chain_sum").folder() / "model"):
        assert threads.parameters(str(path)) == smollm2.PARAMETERS > threads.SMALL


ON_GPUS = [name for name in RECIPES if name.startswith("qwen")]


def plan(recipe: str = "qwen7b", **flags: tuple[str, ...]):
    return compose(
        RECIPES[recipe], ALGORITHMS["real"], {f"--{name.replace('__', '.')}": v for name, v in flags.items()}
    )


@pytest.mark.parametrize("recipe", [*ON_GPUS, "cpu-like-gpu"])
def test_every_recipe_for_gpus_runs_pytorchs_own_and_needs_nothing(recipe):
    assert kernels.lines(plan(recipe)) == [
        "attention: flash_attention_torch, PyTorch's own kernels",
        "optimizer: PyTorch's AdamW, fused on GPUs",
    ]
    assert kernels.problems(plan(recipe)) == []


def test_a_package_that_is_not_installed_is_told():
    asked = plan(ds__attn_implementation=("flash_attention_3",))
    assert "flash_attn_interface" in kernels.lines(asked)[0]
    (problem,) = kernels.problems(asked)
    assert "flash_attn_interface, which is not installed" in problem and "flash_attention_torch" in problem


@pytest.mark.parametrize("compiler", [None, "/bin/g++"])
def test_what_is_compiled_at_the_first_start_is_told_before(monkeypatch, compiler):
    monkeypatch.setattr(shutil, "which", lambda name: compiler)
    asked = plan(ds__adam_offload=())
    assert "which g++ compiles at the first start" in kernels.lines(asked)[1]
    assert len(kernels.problems(asked)) == (compiler is None)


def test_another_optimizer_is_named():
    assert kernels.lines(plan(actor__optim=("muon",)))[1] == "optimizer: DeepSpeed's muon"
