"""A recipe for CPU touches no GPU, whatever is installed and visible; a recipe for GPUs wants its own environment.

What the processes of a run see is asked in tests/e2e/test_user_files.py.
"""

import json

import pytest

from real_openrlhf.comparison.trainer import environment_of
from real_openrlhf.evaluation import engines
from real_openrlhf.machine import nvidia
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training import command
from real_openrlhf.training.launch.place import Place, process_table
from real_openrlhf.training.tasks.tasks import TASKS, recipe_of

GPUS = 8


@pytest.fixture(params=["cpu", "gpu"])
def environment(request, monkeypatch, tmp_path):
    """Made for CPU or for GPUs, on a machine where PyTorch sees eight."""
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(GPUS))))
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: GPUS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(nvidia, "memory_sizes", lambda: [80_000_000_000] * GPUS)
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: request.param == "cpu")
    return request.param


def leaves_gpus_alone(variables: dict[str, str]) -> bool:
    return {*variables["CUDA_VISIBLE_DEVICES"].split(",")} == {"-1"} and variables["DS_ACCELERATOR"] == "cpu"


@pytest.mark.parametrize("name", RECIPES)
def test_train(environment, name):
    recipe, plan = RECIPES[name], command.request_of(["--recipe", name]).plan()
    place = Place.of(recipe, None)
    kind = "cpu" if recipe.on_cpu else "gpu"
    variables = place.environment(plan)
    assert leaves_gpus_alone(variables) == recipe.on_cpu
    assert place.gpus_here == (GPUS if kind == environment == "gpu" else 0)
    assert ("GPU" in json.loads(variables["RAY_OVERRIDE_RESOURCES"])) == recipe.on_cpu  # else Ray counts them
    told = "\n".join(process_table(plan, place))  # each variable has its reason there
    assert ("-1,-1" in told) == recipe.on_cpu and "PolicyModelActor" in told
    problems = place.problems(plan)
    assert bool(problems) == (kind != environment)
    assert all(f"bash examples/scripts/setup_env.sh {kind}" in problem for problem in problems)


@pytest.mark.parametrize("task", TASKS)
def test_compare(environment, task):
    assert leaves_gpus_alone(environment_of(["--recipe", recipe_of(task), "--algo", "real"]))


def test_eval(environment, monkeypatch):
    assert engines.visible_devices() == ([] if environment == "cpu" else [*map(str, range(GPUS))])


def test_an_engine_for_gpus_that_are_not_there_is_refused(environment, monkeypatch):
    import torch

    if environment == "gpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(engines.UserError, match=r"PyTorch sees no GPU.*real-openrlhf doctor.*setup_env.sh cpu"):
            next(engines.generate([], engines.EngineSettings("m", 1, 1, 1, 1, 1, "auto", 1), None))
