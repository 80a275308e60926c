"""pass@k and its errors, against counting every subset, closed forms and exact enumeration."""

import json
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_openrlhf.cli import main
from real_openrlhf.evaluation.grading import pass_at, powers_of_two
from real_openrlhf.report.benchmarks.paired import Evaluated, differences
from real_openrlhf.report.statistics import bootstrap

TABLES = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 1), min_size=k, max_size=k), min_size=1, max_size=5)
)


@settings(deadline=None)  # the machine may be busy
@given(TABLES)
def test_pass_at_k_counts_the_subsets_with_a_hit(table):
    samples = len(table[0])
    for k in range(1, samples + 1):
        shares = [np.mean([any(subset) for subset in combinations(row, k)]) for row in table]
        assert pass_at(k, np.array(table)) == pytest.approx(np.mean(shares), abs=1e-12)


def test_large_counts_do_not_overflow():
    verdicts = np.zeros((2, 1024), dtype=int)
    verdicts[0, :512] = 1
    assert pass_at(1024, verdicts) == pytest.approx(0.5)


def test_bootstrap_draws_every_problem_alike():
    """Every equally likely resample of three problems, enumerated."""
    scores = np.array([0.0, 0.25, 1.0])
    exact = [np.mean(draw) for draw in product(scores, repeat=3)]
    means = bootstrap(scores, np.random.default_rng(2))
    for value in sorted(set(exact)):
        share = exact.count(value) / len(exact)
        tolerance = 5 * np.sqrt(share * (1 - share) / len(means))
        assert np.isclose(means, value).mean() == pytest.approx(share, abs=tolerance)


@pytest.mark.parametrize(("k", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_which_k_are_reported(k, expected):
    assert powers_of_two(k) == expected


# `eval --compare`: differences by pairs of problems, their intervals, and what is no pair

SETTINGS = {"k": 4, "temperature": 0.6, "top_p": 0.95, "max_new_tokens": 100, "seed": 7, "grader": "robust"}


def folder(root, name, scores, settings=SETTINGS, labels=None):
    """What `eval --out` leaves: scores by benchmark, one a problem."""
    path = root / name
    path.mkdir()
    lines = [
        {"benchmark": benchmark, "id": f"{benchmark}-{n}", "label": (labels or {}).get(n, "1"), "pass@1": float(score)}
        for benchmark, row in scores.items()
        for n, score in enumerate(row)
    ]
    (path / "per_problem.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "results.json").write_text(json.dumps({"name": name, "settings": settings}))
    return path


def between(a, b):
    return differences(Evaluated.read(a), Evaluated.read(b))


def test_by_hand(tmp_path):
    a = folder(tmp_path, "a", {"aime24": [0.0, 0.5, 1.0, 0.5], "mine": [0.0] * 10})
    b = folder(tmp_path, "b", {"aime24": [0.5, 0.5, 0.75, 0.5], "mine": [0.5] * 10})
    aime, mine, average = between(a, b)
    assert (aime.title, aime.problems, aime.a, aime.b) == ("AIME24", 4, 0.5, 0.5625)
    assert (aime.better, aime.worse) == (1, 1)
    assert aime.mean == 0.0625 and aime.low < 0 < aime.high and not aime.clear
    # the same gain everywhere: no other problems would change it
    assert (mine.mean, mine.low, mine.high, mine.clear) == (0.5, 0.5, 0.5, True)
    assert (average.title, average.problems) == ("Avg.", 14)
    assert average.mean == pytest.approx((0.0625 + 0.5) / 2)  # of benchmarks, whatever their size
    assert (average.low, average.high) == pytest.approx(((aime.low + 0.5) / 2, (aime.high + 0.5) / 2))


def test_the_interval_is_of_pairs(tmp_path):
    """Problems differ a lot, models hardly: unpaired errors would hide the difference."""
    dice = np.random.default_rng(0)
    hard, gain = dice.uniform(0, 0.8, 1000), dice.normal(0.05, 0.1, 1000)
    (one,) = between(folder(tmp_path, "a", {"x": hard}), folder(tmp_path, "b", {"x": hard + gain}))
    assert (one.high - one.low) / 2 == pytest.approx(1.96 * gain.std() / np.sqrt(1000), rel=0.05)


def test_the_command_prints_and_keeps_the_table(tmp_path, capsys):
    a, b = folder(tmp_path, "a", {"x": [0.0, 0.5]}), folder(tmp_path, "b", {"x": [0.5, 1.0]})
    assert main(["eval", "--compare", str(a), str(b), "--out", str(tmp_path / "out")]) == 0
    assert "| x | 2 | 0.250 | 0.750 | **+0.500** | +0.500 to +0.500 | 2, 0 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["rows"][0]["difference"] == 0.5
    assert "k = 4, T = " in (tmp_path / "out" / "comparison.md").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settings": {**SETTINGS, "k": 8, "seed": 1}}, "differ: k 4 and 8; seed 7 and 1"),
        ({"scores": {"x": [0.0]}}, "1 problems are in one evaluation only, such as x x-1"),
        ({"labels": {1: "2"}}, "x x-1 has another answer in each"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path, refused, options, said):
    a = folder(tmp_path, "a", {"x": [0.0, 0.5]})
    b = folder(tmp_path, "b", **{"scores": {"x": [0.0, 0.5]}, **options})
    assert said in refused("eval", "--compare", a, b)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare", "none", "none"], "none has no results.json"),
        (["--compare", "none", "none", "--model", "m"], "Leave --model out"),
        (["--model", "m"], "--model or --out is missing"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, refused, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused("eval", *words)
