"""What predicts a collapse: its step, hits, steps ahead and false alarms, on runs whose story is known."""

import json

import pytest
from invented_runs import write_run

from real_openrlhf.report.collapse import Story, best_threshold, collapse_of, predict, predictions, table
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.tables import to_markdown

STEPS = 20


def write(root, seed, dies_at=None, warns_at=None, noisy=False):
    """The gradient norm leaps five steps before the pass rate falls; without a warning it stays where it was."""
    folder = write_run(root, "real", seed, 2, name=f"run-{seed}-s{seed}")
    lines = []
    for step in range(1, STEPS + 1):
        dead = dies_at is not None and step >= dies_at
        norm = 9.0 if warns_at is not None and step >= warns_at else 3.0 if noisy and step == 4 else 1.0
        row = {"phase": "train", "step": step, "time": 1, "actor_grad_norm": norm}
        row |= {"rollout/pass_rate": 0.0 if dead else 0.6, "entropy_loss": 0.5}
        row |= {"real/weight_cv": 0.1, "real/weight_pos": 0.5, "real/weight_neg": 0.25}
        lines.append(row)
    lines += [{"phase": "eval", "step": 0, "time": 1, "eval_x_pass1": 0.6}]
    lines += [{"phase": "eval", "step": STEPS, "time": 1, "eval_x_pass1": 0.6 if dies_at is None else 0.1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def root(tmp_path):
    for seed in (1, 2, 3, 4):
        write(tmp_path, seed, dies_at=12, warns_at=8 - seed % 2)
    write(tmp_path, 5, noisy=True)
    write(tmp_path, 6, noisy=True)
    write(tmp_path, 7)
    write(tmp_path, 8, warns_at=10)  # an alarm, and nothing happens
    return tmp_path


def stories(root):
    return [Story.of(run) for run in read_runs([root])[0]]


def test_the_step_of_a_collapse(root):
    assert [story.collapse for story in stories(root)] == [12] * 4 + [None] * 4
    rates = [0.1, 0.5, 0.6, 0.0, 0.0, 0.6, 0.6, 0.6, 0.0, 0.0, 0.0]
    assert collapse_of({step: {"rollout/pass_rate": rate} for step, rate in enumerate(rates, 1)}) == 9  # for good
    assert collapse_of({1: {"rollout/pass_rate": 0.5}, 2: {"rollout/pass_rate": 0.5}}) == 2


def test_hits_steps_ahead_and_false_alarms(root):
    one = predict(stories(root), "gradient norm", 2.0)
    assert (one.hits, one.collapses, one.false_alarms, one.others) == (4, 4, 3, 4)
    assert one.ahead == 4.5  # alarms at 7, 8, 7, 8 before 12
    one = predict(stories(root), "gradient norm", 3.0)
    assert (one.hits, one.false_alarms) == (4, 1) and one.worth == 0.75
    assert predict(stories(root), "gradient norm", 9.0).hits == 0


@pytest.mark.parametrize("warns_at, alarm", [(4, 4), (5, None), (9, None)])
def test_an_alarm_in_the_step_of_the_collapse_or_after_it_is_none(tmp_path, warns_at, alarm):
    write(tmp_path, 1, dies_at=5, warns_at=warns_at)
    (story,) = stories(tmp_path)
    assert story.alarm("gradient norm", 2.0) == alarm


def test_the_threshold_is_of_other_seeds_than_the_figures(root):
    best, *others = predictions(read_runs([root])[0])
    assert best.signal == "gradient norm" and 3.0 <= best.threshold < 9.0
    assert (best.hits, best.collapses, best.ahead, best.false_alarms, best.others) == (2, 2, 4.0, 1, 2)  # even seeds
    assert all(one.worth <= 0 for one in others)
    assert "score deviation" not in {one.signal for one in (best, *others)}  # nobody logged it
    odd = [story for story in stories(root) if story.seed % 2]
    assert best_threshold(odd, "gradient norm") == best.threshold


def test_the_shares_of_weight(root):
    (story, *_) = stories(root)
    wrong, right = 0.4 * 0.25, 0.6 * 0.5
    assert story.values("negatives' share of weight")[0] == pytest.approx(wrong / (wrong + right))
    assert story.values("effective sample size")[0] == pytest.approx(1 / 1.01)


def test_the_table_is_of_the_even_seeds_and_missing_where_none_of_them_collapsed(root, tmp_path):
    runs, _ = read_runs([root])
    made = to_markdown(table(runs))
    assert "| gradient norm | 3 | 2 of 2 | 4 | 1 of 2 |" in made
    assert table([run for run in runs if run.seed % 2]) is None and table([]) is None
