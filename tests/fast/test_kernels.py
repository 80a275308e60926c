"""What a dry run says of attention and optimizer, and what is missing for them."""

import shutil

import pytest

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import kernels

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
