"""Loss and gradient are the paper's in any layout: one rank in this process, two real gloo ranks."""

import pytest
import torch
import toy_trainer as lab
from hypothesis import HealthCheck, given, settings

quick = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def two_ranks(start_ranks):
    return start_ranks(2, "toy_trainer")


@quick
@given(lab.cases())
def test_one_rank(case):
    lab.assert_exact(case, [lab.train(case)])


@quick
@given(case=lab.cases())
def test_two_ranks(two_ranks, case):
    lab.assert_exact(case, two_ranks("train", case))


def test_the_torn_group_of_a_micro_batch_would_be_wrong():
    """The grid can fail: weighing what happens to be in a micro-batch is another loss."""
    case = lab.Case((0,) * 4, (1, 1, 0, 0), (3, 4, 2, 5), {"name": "real"}, groups_per_step=1, size=1)
    record = lab.train(case)[0]
    toy = lab.Toy(case)
    wrong = 0
    for row in range(4):
        scores = lab.rollout_scores("log_ratio_old", toy.log_probs([row]), toy.old[[row]], None, toy.mask[[row]])
        wrong = (
            wrong
            + lab.naive_group_loss(lab.ObjectiveSettings(uniform_groups="keep"), [scores[0]], [case.labels[row]])[0]
        )
    gradient = torch.autograd.grad(wrong, toy.parameters)[0]
    assert (gradient - record["gradients"][0]).norm() > 0.1 * record["gradients"][0].norm()


def table(rows, scores):
    """Rollouts with ids at the end of what float64 holds exactly; rollout 2 is truncated."""
    rows = torch.tensor(rows, dtype=torch.long)
    return lab.ScoreTable(rows + 2**53 - 3, rows, rows % 2, rows == 2, torch.tensor(scores, dtype=torch.float32))


def test_uneven_ranks_get_the_same_table(two_ranks):
    for tables in (
        [table([2], [0.25]), table([1, 0], [-0.5, 1 / 3])],
        [table([], []), table([0, 2, 1], [1 / 3, 0.25, -0.5])],
    ):
        for gathered in two_ranks("gather", tables):
            assert gathered.ids.tolist() == [2**53 - 3, 2**53 - 2, 2**53 - 1]
            assert gathered.groups.tolist() == [0, 1, 2]
            assert gathered.labels.tolist() == [0, 1, 0]
            assert gathered.truncated.tolist() == [False, False, True]
            assert gathered.scores.tolist() == [torch.tensor(1 / 3).item(), -0.5, 0.25]
            assert gathered.finite
            assert gathered.rows(torch.tensor([2**53 - 1, 2**53 - 3])).tolist() == [2, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_score_on_one_rank_is_known_on_both(two_ranks, bad):
    gathered = two_ranks("gather", [table([0], [0.1]), table([1], [bad])])
    assert [each.finite for each in gathered] == [False, False]


def test_an_empty_step_is_an_empty_table(two_ranks):
    assert [len(each) for each in two_ranks("gather", [table([], [])] * 2)] == [0, 0]


def test_a_rollout_on_two_ranks_is_refused_on_both(two_ranks):
    with pytest.raises(RuntimeError) as refused:
        two_ranks("gather", [table([2], [0.0])] * 2)
    assert str(refused.value).count("ValueError: rollout 9007199254740991 is in the step's score table twice") == 2


def test_an_unknown_rollout_is_refused():
    gathered = lab.gather([table([0, 2], [0.0, 0.0])])
    with pytest.raises(ValueError, match="not in the step's score table"):
        gathered.rows(torch.tensor([2**53 - 2]))
