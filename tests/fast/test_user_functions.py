"""An objective in the user's own file: loaded, tried, refused with a reason."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from real_openrlhf import real_policy_loss
from real_openrlhf.algorithm import validate_objective
from real_openrlhf.algorithm.formulas import OBJECTIVES, Objective, TokenLoss
from real_openrlhf.algorithm.groups import RolloutBatch, TrainingProgress
from real_openrlhf.algorithm.objective import score_weights
from real_openrlhf.algorithm.settings import ObjectiveSettings, find
from real_openrlhf.flags.loss_refusals import objective_problems as objective_refusals

EXAMPLE = Path(__file__).parents[2] / "examples" / "objectives" / "hinge.py"
HINGE = f"{EXAMPLE}:hinge"
BY_FILE = {
    **{name: name for name in "oapl vespo rence sapo gmpo nft icepop dppo reverse_kl listwise conspo maxrl".split()},
    "dr_grpo": "dr_grpo",
    "passk": "pass_at_k pkpo pass_at_k_clipped",
    "noise": "unbiased_bce forward",
    "psr_nsr": "psr nsr w_reinforce",
    "cispo": "cispo reinforce",
    "disco": "disco_logl disco_lratio",
    "controls": "permuted shrunk balanced",
    "ratios": "ratio_both ratio_right ratio_wrong ratio_none",
}
PASS_AT_K = f"{EXAMPLE.with_name('passk.py')}:pass_at_k"
OTHERS = [f"{EXAMPLE.with_name(file)}.py:{name}" for file, names in BY_FILE.items() for name in names.split()]


def problem(function, **needs) -> str | None:
    return validate_objective.objective_problem(ObjectiveSettings(Objective(function, **needs)))


@pytest.mark.parametrize("name", [*OBJECTIVES, HINGE, f"{EXAMPLE}:narrow_hinge", *OTHERS])
def test_what_can_be_trained_with_is_let_through(name):
    assert validate_objective.objective_problem(ObjectiveSettings(name)) is None


def divided_by_spread(scores, groups, settings):
    return groups.sum(scores / scores.std(), groups.positive)


def against_the_mean_of_all(scores, groups, settings):
    return groups.sum((scores - scores[groups.valid].mean()) ** 2, groups.valid)


def oapl(scores, groups, settings):
    """As published: (score - (reward - V))^2, V the log mean exp of the group's rewards."""
    value = groups.logmeanexp(groups.values.double(), groups.valid)
    return groups.mean((scores - (groups.values - value[groups.index])) ** 2, groups.valid)


def margin_met_at_the_start(scores, groups, settings):
    up, down = (groups.mean(scores, side) for side in (groups.positive, groups.negative))
    return (down - up - 0.1).relu()


def checks_its_settings(scores, groups, settings):
    if settings.tau < 1:
        raise ValueError(f"tau={settings.tau:g} is below 1: take a larger one")
    return groups.sum(scores, groups.valid)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (checks_its_settings, "^tau=0.5 is below 1: take a larger one$"),
        (lambda s, g, c: float("one"), "^it raises ValueError: could not .* Change it so that it takes"),
        (lambda s, g, c: s, r"returns shape \(27,\), not one loss for each group, \(7,\)"),
        (lambda s, g, c: s.sum(), r"returns shape \(\), not one"),
        (lambda s, g, c: 1.0, "returns float, not one"),
        (lambda s, g, c: g.nonsense, "it raises AttributeError: .*nonsense"),
        (lambda s, g: s, "it raises TypeError: .*3 were given"),
        (lambda s, g, c: g.sum(s.detach(), g.positive), "^its loss has no gradient. .* do not detach them$"),
        (margin_met_at_the_start, "^its gradient is 0 while scores are equal, as when a batch starts, in groups"),
        (lambda s, g, c: g.sum(s, g.positive) / g.size(g.positive),
         "is not finite for a group of incorrect responses alone, a group without a graded response. On an empty"),
        (oapl, r"finite for a group without a graded response. .*logmeanexp are -inf: .*where\(groups.valid, 0.0\)"),
        (lambda s, g, c: g.sum(s, g.positive) * 0, "its gradient is 0 everywhere"),
        (divided_by_spread, "is not finite"),  # only where all scores are alike, as in the first update
        (lambda s, g, c: g.sum((s - 0.0).abs().sqrt(), g.valid), "gradient is not finite for a group"),
        (lambda s, g, c: g.sum(s, ~g.positive), "gives weight to ungraded responses"),
        (against_the_mean_of_all, "reads other groups"),
        (lambda s, g, c: g.sum(s, g.valid) * (1 + s.detach().mean()), "reads other groups"),
        (lambda s, g, c: g.sum(s, g.valid) / len(s), "reads other groups"),
        (lambda s, g, c: g.sum(s, g.valid) * g.count, "reads other groups"),
        (lambda s, g, c: g.sum(s, g.valid) * torch.rand(()), "gives another loss when called again"),
        (lambda s, g, c: g.sum(s, g.valid) * g.progress, "^in step 1 of 10 its gradient is 0 everywhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_with_is_told_why(function, reason):
    found = problem(function)
    assert found and "\n" not in found
    assert re.search(reason, found), found


def test_a_loss_is_tried_on_groups_as_large_as_the_runs():
    """Pass@k has no gradient where fewer than k responses are incorrect, so never with k responses to a prompt."""

    def found(k, **run):
        return validate_objective.objective_problem(ObjectiveSettings(PASS_AT_K, settings={"k": k}), **run)

    assert [found(k) for k in (1, 3, 7)] == [None] * 3 and found(8, size=16) is None
    assert found(8).startswith("its gradient is 0 everywhere, in groups of up to 8 responses, so")


def by_the_mean_of_the_micro_batch(log_ratio, advantage, mask, group):
    return advantage / log_ratio.abs().mean()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda ratio, a, mask, group: a[:, 0], r"returns shape \(27,\), not one weight for each token"),
        (lambda ratio, a, mask, group: 1.0, "returns float, not one weight"),
        (lambda ratio, a, mask, group: group["beta"], "the objective reads beta, and its `settings` do not have it"),
        (lambda ratio, a, mask, group: a * group["rate"], r'^group\["rate"\] is no setting. Write group.rate$'),
        (lambda ratio, a, mask, group: a / ratio.relu(), "its weights are not finite. Clamp"),
        (lambda ratio, a, mask, group: 0 * a, "its weights are 0 everywhere"),
        (by_the_mean_of_the_micro_batch, "change with the other rollouts of its micro-batch. Sum over the last"),
        (lambda ratio, a, mask, group: mask.float() * group.rate, "weights to tokens of advantage 0, which"),
    ],
)
def test_a_loss_of_tokens_that_cannot_train_exactly_is_told_why(function, reason):
    found = validate_objective.objective_problem(ObjectiveSettings(TokenLoss(function)))
    assert found and "\n" not in found and re.search(reason, found), found
    assert (validate_objective.objective_problem(ObjectiveSettings(TokenLoss(function, two_sides=False))) is None) == (
        "advantage 0" in reason
    )


def test_a_function_of_four_arguments_is_a_loss_of_tokens_and_has_no_scores(tmp_path):
    """A fourth one with a default is a constant of the user's own."""
    path = tmp_path / "mine.py"
    path.write_text("def push(log_ratio, advantage, mask, group):\n    return advantage\n")
    (tmp_path / "other.py").write_text("def push(scores, groups, settings, half=0.5): ...")
    assert not find(f"{tmp_path}/other.py:push").of_tokens
    assert find(f"{path}:push") == TokenLoss(find(f"{path}:push").loss, label="push", source=str(path))
    with pytest.raises(ValueError, match="push is a loss of tokens and has no scores"):
        real_policy_loss(*torch.zeros(3, 1, 1), [1.0], ["a"], objective=f"{path}:push")


def test_a_margin_may_follow_the_step():
    """The same in any update of a step; without the number of steps it is refused before the run."""

    def shrinking(scores, groups, settings):
        return -groups.mean(scores, groups.valid) * (1 - groups.progress) * groups.step

    choices, table = (
        ObjectiveSettings(Objective(shrinking, two_sides=False)),
        RolloutBatch(torch.tensor([1, 0]), torch.zeros(2)),
    )
    for step, expected in ((1, 1.0), (2, 1.5), (4, 1.0)):
        found = score_weights(choices, torch.zeros(2), table, training_progress=TrainingProgress(step=step, steps=4))
        assert found.weights.tolist() == [-expected / 2] * 2
    assert validate_objective.objective_problem(choices, 4) is None
    assert "progress needs the number of steps. Give --train.max_steps" in validate_objective.objective_problem(
        choices, 0
    )
    assert "is not finite" in validate_objective.objective_problem(
        ObjectiveSettings(Objective(lambda s, g, c: groups_mean(s, g) / (0.9 - g.progress))), 10
    )


def groups_mean(scores, groups):
    return groups.mean(scores, groups.valid)


def test_a_score_of_another_kind_is_tried_where_such_scores_are():
    def on_ratios(scores, groups, settings):
        return groups.sum(scores.log(), groups.negative)

    assert problem(on_ratios, score="ratio_old") is None
    assert "is not finite" in problem(on_ratios)


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (None, "hinge", r"cannot be read \(No such file or directory\)"),
        ("x = 1\ndef f(:", "f", "cannot be loaded: line 2, SyntaxError"),
        ("\nraise RuntimeError('not today\\nor ever')", "f", "line 2, RuntimeError: not today. Change"),
        ("import sys; sys.exit('bye')", "f", "line 1, SystemExit: bye"),
        ("def g(): pass\nh = dict()", "f", "'f' is no function of .*, which has: g, h"),
        ("f = 3", "f", "'f' is no function of .*, which has: none"),
        (
            "from real_openrlhf.algorithm.formulas import Objective\n\nf = Objective(print, score='length')",
            "f",
            "line 3, ValueError: score is 'length': choose one of log_ratio_old",
        ),
        (
            "from real_openrlhf.algorithm.formulas import Objective\n\nf = Objective(print, settings={'long': 5})",
            "f",
            "line 3, ValueError: the setting long is 5. Use Constant",
        ),
        (
            "from real_openrlhf.algorithm.formulas import Constant, Objective\n\n"
            "f = Objective(print, settings={'gap': Constant(7, 'a gap', above=0, below=5)})",
            "f",
            "line 3, ValueError: gap is 7: use a number above 0 and below 5. Change",
        ),
    ],
)
def test_a_file_that_gives_no_objective_is_told_in_one_line(tmp_path, text, name, reason):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=reason) as refused:
        find(f"{path}:{name}")
    assert "\n" not in str(refused.value)
    (told,) = objective_refusals(
        SimpleNamespace(algo=SimpleNamespace(real=SimpleNamespace(objective=f"{path}:{name}")))
    )
    assert told == f"--algo.real.objective {path}:{name}: {refused.value}"


def test_any_trainer_takes_an_objective_by_file_or_as_it_is():
    log_probs = torch.tensor([[-1.0, -1.1], [-0.7, -0.7]], requires_grad=True)

    def loss(**options):
        old, mask = torch.full((2, 2), -1.0), torch.ones(2, 2)
        return real_policy_loss(log_probs, old, mask, rewards=[1, 0], group_ids=["a", "a"], **options)[0]

    narrow = find(f"{EXAMPLE}:narrow_hinge")
    for options in ({"objective": HINGE, "tau": 0.1}, {"objective": narrow}, {"objective": f"{EXAMPLE}:narrow_hinge"}):
        found = loss(**options)
        assert found.item() == pytest.approx(0.15 + 0.4, abs=1e-6)
        assert torch.autograd.grad(found, log_probs)[0].tolist() == [[-0.5, -0.5], [0.5, 0.5]]
    with pytest.raises(ValueError, match=r"the objective's loss has shape \(2,\), not \(1,\): one per group"):
        loss(objective=Objective(lambda scores, groups, settings: scores))
