"""Files of the user's own in the real stack: an objective, and an environment of several turns. And an engine dies."""

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

# In the second step an engine dies.
KILLS = """

def counted(self, first=Game.__init__, games=[]):
    first(self)
    games.append(self)
    if len(games) == 70:
        import multiprocessing, os, signal
        (engine,) = (child for child in multiprocessing.active_children() if child.name == "EngineCore")
        os.kill(engine.pid, signal.SIGKILL)


Game.__init__ = counted
"""

EXAMPLES = Path(__file__).parents[2] / "examples"
OBJECTIVE, AGENT = EXAMPLES / "objectives" / "hinge.py", EXAMPLES / "agents" / "guess_number.py"
MARGIN, GROUP = 0.5, 8  # tau and rollouts a prompt of the recipe


def test_a_users_objective_and_agent_train_until_the_engine_is_killed_and_are_recorded(train, tmp_path):
    hinge, game, answers = tmp_path / "hinge.py", tmp_path / "game.py", tmp_path / "asked.jsonl"
    flags = command.request_of(["--recipe", "cpu"]).run
    ours = LaunchTarget.for_recipe(RECIPES["cpu"]).environment(flags)
    variables = {name: value for name, value in ours.items() if os.environ.get(name) != value}
    hinge.write_text(OBJECTIVE.read_text() + ASKED.format(place=str(answers), names=[*variables]))
    text = AGENT.read_text()
    for hint, token in {"?": "=", "<": "=", ">": "."}.items():  # of this model's few
        text = text.replace(f'"{hint}"', f'"{token}"')
    game.write_text(text + KILLS)
    words = ("--algo", "real", "--algo.real.objective", f"{hinge}:hinge", "--train.agent_func_path", str(game))
    words += ("--no-rollout.seeded", "--actor.adam.lr", "1e-5", *SMALL, *NO_EVALUATION)
    run = train("mine", *words, "--max-steps", "2", code=1)
    assert "EngineDeadError" in run.output and "continue it: the same command with --resume" in run.output
    assert not {"CriticModelActor", "ReferenceModelActor", "RewardModelActor"} & run.actors
    assert f"objective {hinge}:hinge: {{'tau': {MARGIN}}}" in run.log
    assert len(run.lines("train")) == 1 and run.finite
    for line in run.lines("train"):
        # scores are small, so each rollout of a mixed group is about a whole margin away from where it should be
        assert line["real/score_abs_max"] < MARGIN
        assert line["real/weight_abs_max"] == pytest.approx(float(line["rollout/frac_mixed"] > 0))
        assert line["real/weight_cv"] == pytest.approx(0, abs=1e-9)
        assert line["real/loss"] == pytest.approx(MARGIN * GROUP * line["rollout/frac_mixed"], rel=0.1)
        # turns are one rollout
        assert 1 < line["agent/turns"] <= 3
        assert 0 < line["total_length"] - len("3758=") - line["response_length"] <= line["agent/turns"]  # hints
        assert line["sampling/logprob_diff_mean"] < 0.05  # vLLM's log-probabilities stand at the policy's own tokens
    seen = [json.loads(line)[1:] for line in answers.read_text().splitlines()]
    # Not the command, which tries it too, nor the controller, which asks what the objective reads.
    seen = [process for process in seen if process[-1]["RAY_OVERRIDE_RESOURCES"] and process[0] != "PPOTrainer"]
    assert {title for title, *_ in seen} == {"driver", "PolicyModelActor"}  # an engine: test_train_on_two_ranks.py
    for title, devices, values in seen:
        assert devices == [0, "cpu", "cpu"], title
        assert {*values.pop("CUDA_VISIBLE_DEVICES").split(",")} == {"-1"}, title
        others = {*plugin.ENVIRONMENT, "RAY_RUNTIME_ENV_HOOK"}  # of engines, and of the tests' forks
        assert {name: values[name] for name in values if name not in others}.items() <= variables.items(), title

    record = json.loads((run.folder / "run.json").read_text())
    assert record["objective"] == {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in (hinge, game)}
    assert record["flags"]["--algo.real.objective"] == f"{hinge}:hinge" and "--algo.real.tau" not in record["flags"]
    hinge.write_text(hinge.read_text().replace("settings.tau", "2 * settings.tau"))
    refused = train("mine", *words, "--max-steps", "4", "--resume", code=2)
    assert "began with another objective or agent of your own" in refused.output
    if not line["rollout/frac_mixed"]:
        pytest.skip("no prompt had right and wrong responses, so no weight was seen")
