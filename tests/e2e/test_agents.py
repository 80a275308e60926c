"""The example of several turns in the real stack, with the model of the other runs, until its environment breaks."""

import json
from pathlib import Path

import pytest
from small_runs import SMALL

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "guess_number.py"
PROMPT, TURN = 5, 7  # tokens: `3758=`, and an answer without dots
BREAKS = """
games = []

class Breaks(Game):
    def __init__(self):
        super().__init__()
        games.append(self)
        if len(games) > 128:  # in the third step
            raise OSError("the table is gone")

Game = Breaks
"""


def test_turns_are_one_rollout_and_an_environment_that_raises_is_named(train, tmp_path):
    mine = tmp_path / "mine.py"
    text = EXAMPLE.read_text()
    for hint, token in {"?": "=", "<": "=", ">": "."}.items():  # of this model's few
        text = text.replace(f'"{hint}"', f'"{token}"')
    mine.write_text(text + BREAKS)
    words = ("--train.agent_func_path", str(mine), "--rollout.max_new_tokens", str(TURN), "--max-steps", "4")
    run = train("turns", "--algo", "real", *words, *SMALL, "--no-eval.at_start", "--no-eval.at_end", code=1)
    steps = run.lines("train")
    assert len(steps) == 2 and run.finite
    for line in steps:
        assert 1 < line["agent/turns"] <= 3 and line["agent/unfinished"] == 0
        assert line["response_length"] <= line["agent/turns"] * TURN
        hints = line["agent/turns"] - 1  # a token each
        assert line["total_length"] == pytest.approx(PROMPT + line["response_length"] + hints)
        assert line["mismatch/mean"] < 0.05  # vLLM's log-probabilities stand at the policy's own tokens
    assert sum(line["real/mixed_groups"] for line in steps) > 0
    ending = f"AgentError: the agent {mine}, line {len(mine.read_text().splitlines()) - 2}: OSError: the table is gone"
    assert f"{ending}, after turn 0 of prompt" in run.output
    assert str(mine) in json.loads((run.folder / "run.json").read_text())["objective"]
