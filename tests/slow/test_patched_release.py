"""OpenRLHF as released against OpenRLHF patched: `ppo` and `gspo` compute the same, bit for bit.

Two processes run `tests/upstream_numbers.py`, each with its own copy of the installed package in front: one that the
series was taken off (the tool proves by SHA-256 that it is the release), one that it is on.
"""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from small_world import copy_release

from real_openrlhf import patching

LAB = Path(__file__).parents[1] / "upstream_numbers.py"
COPIES = {"release": (patching.revert, patching.BEFORE, ("--lend",)), "patched": (patching.apply, patching.AFTER, ())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder for each of `COPIES`, with openrlhf in that state."""
    folder = tmp_path_factory.mktemp("release")
    for copy, (bring, state, _) in COPIES.items():
        bring(copy_release(folder / copy))
        assert set(patching.file_states(folder / copy, patching.load_series()).values()) == {state}
    return folder


def importing(root: Path) -> dict[str, str]:
    """The environment of a process that imports the openrlhf in `root`."""
    settings = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {**os.environ, "PYTHONPATH": str(root), **settings}


@pytest.fixture(scope="module")
def found(python, folder) -> dict[str, dict]:
    """{"release": {name: value}, "patched": {name: value}}"""
    running = {}
    for copy, (_, _, lend) in COPIES.items():
        log = (folder / f"{copy}.log").open("w")
        command = [python, str(LAB), str(folder / f"{copy}.pt"), *lend]
        running[copy] = subprocess.Popen(command, env=importing(folder / copy), stdout=log, stderr=log)
    for copy, process in running.items():
        assert process.wait() == 0, (folder / f"{copy}.log").read_text()[-4000:]
    values = {copy: torch.load(folder / f"{copy}.pt", weights_only=False) for copy in COPIES}
    for copy in COPIES:
        assert values[copy].pop("package") == str(folder / copy)  # the copy is what was imported
    return values


def bits(value: torch.Tensor | float):
    """What two equal values have in common and no others: nan equals itself, 0.0 is not -0.0."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
    return tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).tolist()


def test_training_with_the_real_engine(found):
    """What is logged of losses and gradients, and the weights after four or more optimizer steps."""
    release, patched = found["release"]["training"], found["patched"]["training"]
    assert release.keys() == patched.keys()
    assert [key for key in release if bits(release[key]) != bits(patched[key])] == []
    runs = {key.split("/")[0] for key in release}
    assert {run.split(",")[0] for run in runs} == {"ppo", "gspo"} and len(runs) == 4
    assert all(release[f"{run}/status 1/actor_grad_norm"] > 0 for run in runs)


def test_the_same_command_line_gives_the_same_arguments(found):
    """But for what the series adds: REAL's settings, and what a run lacks, all of it off."""
    release, patched = found["release"]["command_lines"], found["patched"]["command_lines"]
    assert release.keys() == patched.keys()
    for flags, values in release.items():
        added = {name: patched[flags].pop(name) for name in patched[flags].keys() - values.keys()}
        for arguments in (patched[flags], values):
            arguments.pop("logger.wandb.run_name", None)  # the minute of the day is in it
        assert patched[flags] == values, flags
        if "refused" in values:
            assert added == {}
        else:
            assert added["algo.real.reference"] == (values["algo.kl.init_coef"] > 0)  # as the release starts one
            assert added.pop("train.deal") == "upstream" and added.pop("rollout.mismatch") == "off"
            corrected = values["algo.advantage.is_correction_level"] != "off"  # the release asks vLLM the same then
            assert added.pop("rollout.logprobs_mode") == ("processed_logprobs" if corrected else None)
            # limits of a run that has a folder: here is none
            of_folder = {f"train.{name}" for name in ("hopeless_steps", "hopeless", "hung_minutes", "keep_groups")}
            assert not any(added[name] for name in added.keys() - of_folder if not name.startswith("algo.real."))
    refused = [values["refused"] for values in release.values() if "refused" in values]
    assert any("requires --train.async_enable" in why for why in refused) and 4 < len(refused) < len(release) / 2


def test_deepspeed_is_configured_alike_where_cuda_is(found):
    """The settings of the gathers are for gloo alone."""
    release, patched = found["release"]["deepspeed_settings"], found["patched"]["deepspeed_settings"]
    assert release == patched and len(release) == 32


def test_where_this_package_was_uninstalled_first_openrlhf_imports_and_the_command_names_the_fix(python, folder):
    program = """
import sys
for name in ["real_openrlhf", *sys.modules]:  # an import of it fails as if it were not there
    if name.partition(".")[0] == "real_openrlhf":
        sys.modules[name] = None
import openrlhf.trainer.ppo_trainer_async, openrlhf.trainer.ray.ppo_actor, openrlhf.trainer.ray.vllm_worker_wrap
print(openrlhf.trainer.ppo_trainer.__file__)
import openrlhf.cli.train_ppo_ray
"""
    done = subprocess.run(
        [python, "-c", program], env=importing(folder / "patched"), cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == str(folder / "patched/openrlhf/trainer/ppo_trainer.py"), done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: this openrlhf is patched: reinstall it, or install real_openrlhf"
