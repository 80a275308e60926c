"""benchmarks/weights_at_length.py: REAL's weights turn a gradient by the angle whose tangent is their variation."""

import itertools
import math
import sys
from pathlib import Path

import pytest
import tiny_task

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import weights_at_length


def test_the_angle_grows_with_z_and_is_none_where_all_weights_are_equal(tmp_path, monkeypatch, capsys):
    tokenizer = tiny_task.make_tokenizer(tiny_task.TASK)
    tiny_task.make_model(tiny_task.TASK, tokenizer, seed=0).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    turns = itertools.count()
    monkeypatch.setattr(weights_at_length, "reward", lambda text: float(next(turns) % 2))
    monkeypatch.setattr(weights_at_length, "PROMPT", "12345")
    monkeypatch.setattr(weights_at_length, "TAUS", (0.5, 1e9, 0.05, 0.01))
    words = [str(tmp_path), "--tokens", "6", "--seeds", "1", "--batches", "2", "--rate", "3e-3"]
    monkeypatch.setattr(sys, "argv", ["weights_at_length.py", *words])
    weights_at_length.main()
    head, _, *rows, last = capsys.readouterr().out.splitlines()
    assert head.startswith("|τ|z|") and "two prompts" in last
    angles = {}
    for tau, _, variation, angle in (row.strip("|").split("|") for row in rows):
        angles[float(tau)] = float(angle.split("°")[0])
        assert angles[float(tau)] < 5 + 2 * math.degrees(math.atan(float(variation)))
    assert angles[1e9] == pytest.approx(0, abs=0.1)
    assert 0.1 < angles[0.5] < angles[0.05] < angles[0.01]
