"""Files of the user's own in the real stack: an objective, and an environment of several turns."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from small_runs import NO_EVALUATION, SMALL

from real_openrlhf.hooks.engine import plugin
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training import command
from real_openrlhf.training.launch_target import LaunchTarget

# Each process that reads this says which devices it has.
ASKED = """

def asked():
    import json, os
    import torch
    from deepspeed.accelerator import get_accelerator
    from vllm.platforms import current_platform

    variables = {{name: os.environ.get(name) for name in {names}}}
    title = open("/proc/self/cmdline").read().split("\\0")[0].partition("::")[2].partition(".")[0] or "driver"
    devices = [torch.cuda.device_count(), get_accelerator().device_name(), current_platform.device_type]
    with open({place!r}, "a") as file:
        file.write(json.dumps([os.getpid(), title, devices, variables]) + "\\n")

asked()
"""

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE, AGENT = EXAMPLES / "objectives" / "hinge.py", EXAMPLES / "agents" / "guess_number.py"
MARGIN, GROUP = 0.5, 8  # tau and rollouts a prompt of the recipe


def test_a_users_hinge_is_trained_recorded_and_resumed_with_the_same_file_only(train, tmp_path):
    mine, answers = tmp_path / "mine.py", tmp_path / "asked.jsonl"
    flags = command.request_of(["--recipe", "cpu"]).flags
    place = LaunchTarget.for_recipe(RECIPES["cpu"])
    said = {name: value for name, value in place.environment(flags).items() if os.environ.get(name) != value}
    mine.write_text(EXAMPLE.read_text() + ASKED.format(place=str(answers), names=[*said]))
    words = ("--algo", "real", "--algo.real.objective", f"{mine}:hinge", *SMALL, "--no-eval.dataset")
    run = train("hinge", *words, "--max-steps", "2")
    assert f"objective {mine}:hinge: {{'tau': {MARGIN}}}" in run.log
    for line in run.lines("train"):
        # scores are small, so each rollout of a mixed group is about a whole margin away from where it should be
        assert line["real/score_abs_max"] < MARGIN
        assert line["real/weight_abs_max"] == pytest.approx(1) and line["real/weight_cv"] == pytest.approx(0, abs=1e-9)
        assert line["real/loss"] == pytest.approx(MARGIN * GROUP * line["rollout/frac_mixed"], rel=0.1)
    assert len(run.lines("train")) == 2

    seen = [json.loads(line) for line in answers.read_text().splitlines()]
    seen = [found for _, *found in seen if found[-1]["RAY_OVERRIDE_RESOURCES"]]  # not the command, which tries it too
    seen = [found for found in seen if found[0] != "PPOTrainer"]  # the controller asks what the objective reads
    assert {title for title, *_ in seen} == {"driver", "PolicyModelActor"}  # an engine: test_train_on_two_ranks.py
    for title, devices, variables in seen:
        assert devices == [0, "cpu", "cpu"], title
        assert {*variables.pop("CUDA_VISIBLE_DEVICES").split(",")} == {"-1"}, title
        others = {*plugin.environment(), "RAY_RUNTIME_ENV_HOOK"}  # of engines, and of the tests' forks
        assert {name: variables[name] for name in variables if name not in others}.items() <= said.items(), title

    record = json.loads((run.folder / "run.json").read_text())
    assert record["objective"] == {str(mine): hashlib.sha256(mine.read_bytes()).hexdigest()}
    assert record["flags"]["--algo.real.objective"] == f"{mine}:hinge" and "--algo.real.tau" not in record["flags"]

    mine.write_text(mine.read_text().replace("settings.tau", "2 * settings.tau"))
    refused = train("hinge", *words, "--max-steps", "4", "--resume", code=2)
    assert "began with another objective or agent of your own" in refused.output


def test_turns_are_one_rollout(train, tmp_path):
    mine = tmp_path / "mine.py"
    text = AGENT.read_text()
    for hint, token in {"?": "=", "<": "=", ">": "."}.items():  # of this model's few
        text = text.replace(f'"{hint}"', f'"{token}"')
    mine.write_text(text)
    words = ("--train.agent_func_path", str(mine), "--no-rollout.seeded", "--max-steps", "2")
    run = train("turns", "--algo", "real", *words, *SMALL, *NO_EVALUATION)
    steps = run.lines("train")
    assert len(steps) == 2 and run.finite
    for line in steps:
        assert 1 < line["agent/turns"] <= 3
        assert 0 < line["total_length"] - len("3758=") - line["response_length"] <= line["agent/turns"]  # hints
        assert line["sampling/logprob_diff_mean"] < 0.05  # vLLM's log-probabilities stand at the policy's own tokens
    assert str(mine) in json.loads((run.folder / "run.json").read_text())["objective"]
