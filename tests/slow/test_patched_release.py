"""OpenRLHF as released against OpenRLHF patched: `ppo` and `gspo` compute the same, bit for bit.

Two processes run `tests/upstream_numbers.py`, each with its own copy of the installed package in front: one that the
series was taken off (the tool proves by SHA-256 that it is the release), one that it is on.
"""

import os
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch

from real_openrlhf import patching
from real_openrlhf.algorithm.metrics import MISMATCH_METRICS, UPDATE_METRICS

LAB = Path(__file__).parents[1] / "upstream_numbers.py"
COPIES = {"release": (patching.revert, patching.BEFORE, ("--lend",)), "patched": (patching.apply, patching.AFTER, ())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder for each of `COPIES`, with openrlhf in that state."""
    folder = tmp_path_factory.mktemp("release")
    for copy, (bring, state, _) in COPIES.items():
        shutil.copytree(
            distribution("openrlhf").locate_file("openrlhf"),
            folder / copy / "openrlhf",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        bring(folder / copy)
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


def bits(value):
    """What two equal values have in common and no others: nan equals itself, 0.0 is not -0.0."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.detach().contiguous().view(-1).view(torch.uint8).tolist()
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, list | tuple):
        return type(value), [bits(item) for item in value]
    if isinstance(value, dict):
        return {name: bits(item) for name, item in value.items()}
    return type(value), value


def assert_same(found: dict[str, dict], part: str) -> dict:
    release, patched = found["release"][part], found["patched"][part]
    assert release.keys() == patched.keys() and release
    assert [key for key in release if bits(release[key]) != bits(patched[key])] == []
    return release


def test_training_with_the_real_engine(found):
    """Losses, gradients, dynamic batches, what is logged, and the weights after four or more optimizer steps."""
    release, patched = found["release"]["training"], found["patched"]["training"]
    assert release.keys() <= patched.keys()
    assert [key for key in release if bits(release[key]) != bits(patched[key])] == []
    runs = {key.split("/")[0] for key in release}
    assert {run.split(",")[0] for run in runs} == {"ppo", "gspo", "logged ppo"} and len(runs) == 7
    for run in runs:
        gradients = [value for key, value in release.items() if key.startswith(f"{run}/") and "/gradient/" in key]
        assert len(gradients) >= 4 * 20 and any(gradient.any() for gradient in gradients)
    # With --train.run_dir, and only then, the paper's Table 1, clipped updates and the sampler's gap are logged too.
    table = {step: shares(patched[f"logged ppo/loss inputs {step}"]) for step in range(2)}
    assert patched.keys() - release.keys() == {
        f"logged ppo/status {step}/ratio/{where}/{kind}"
        for step, found in table.items()
        for where in found
        for kind in ("share", "grad")
    } | {f"logged ppo/status {step}/{name}" for step in table for name in (*MISMATCH_METRICS, *UPDATE_METRICS)}
    for step, found in table.items():
        assert all(found.values())
        logged = {where: patched[f"logged ppo/status {step}/ratio/{where}/share"] for where in found}
        assert logged == pytest.approx(found)


def shares(micro_batches: list[list[torch.Tensor]]) -> dict[str, float]:
    """Percent of the tokens of right and of wrong rollouts by pi / pi_old, token by token."""
    ratios: dict[str, list[float]] = {"pos": [], "neg": []}
    for scores, mask, new, old in micro_batches:
        for row, token in mask.nonzero().tolist():
            side = "pos" if scores[row] == 1 else "neg"
            ratios[side].append(float((new[row, token] - old[row, token]).exp()))
    ranges = {"below": (0, 0.8), "low": (0.8, 1), "high": (1, 1.2), "above": (1.2, torch.inf)}
    return {
        f"{side}/{name}": 100 * sum(low <= ratio < high for ratio in of_side) / len(of_side)
        for side, of_side in ratios.items()
        for name, (low, high) in ranges.items()
    }


def test_what_the_controller_pushes_and_logs(found):
    values = assert_same(found, "controller")
    assert "gspo/dynamic/1/advantages" in values and "ppo/static/status/kl" in values


def test_what_vllm_is_asked_for(found):
    asked = assert_same(found, "requests")
    assert len(asked) == 6 and all("seed=None" in request["sampling_params"] for request in asked.values())


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
            assert (added.pop("train.deal"), added.pop("rollout.mismatch")) == ("upstream", "off")
            for name in ("hopeless_steps", "hopeless", "hung_minutes"):  # of a run folder, and here there is none
                added.pop(f"train.{name}")
            assert not added["train.run_dir"]
            corrected = values["algo.advantage.is_correction_level"] != "off"  # the release asks vLLM the same then
            assert added.pop("rollout.logprobs_mode") == ("processed_logprobs" if corrected else None)
            assert not any(value for name, value in added.items() if not name.startswith("algo.real."))
    refused = [values["refused"] for values in release.values() if "refused" in values]
    assert any("requires --train.async_enable" in why for why in refused) and 8 < len(refused) < len(release) / 2


# Of --train.dynamic_batch_enable and --rollout.micro_batch_size, since there are --train.deal and --rollout.mismatch.
AMBIGUOUS = {"--train.d", "--rollout.m", "--rollout.mi"}


def test_upstreams_options_keep_their_help_and_their_abbreviations(found):
    release, patched = found["release"]["options"], found["patched"]["options"]
    assert {option: patched[option] for option in release} == release
    for option in release:
        for length in range(3, len(option)):
            meant = [other for other in release if other.startswith(option[:length])]
            if (
                meant == [option] and option[:length] not in AMBIGUOUS
            ):  # a prefix that upstream's parser takes for this option
                assert [other for other in patched if other.startswith(option[:length])] == [option]


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
