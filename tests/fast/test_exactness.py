"""Loss and gradient are the paper's in any layout, of random rollouts, in float64: the formulas written naively.

The package's side does what a trainer does: plan waves, forward, exchange, weigh, backward. Ranks are parts of this
process, whose forwards are exchanged together; real ranks are in tests/slow/test_differential.py. The naive side loops
over groups, rollouts and tokens in one graph.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from every import EVERY
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import naive_losses, naive_score

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD, OBJECTIVES
from real_openrlhf.algorithm.groups import RolloutBatch
from real_openrlhf.algorithm.objective import make_groups
from real_openrlhf.algorithm.schedule import Positions
from real_openrlhf.algorithm.settings import ObjectiveSettings, find
from real_openrlhf.algorithm.step_plan import PlannedUpdate, PlanRules, plan_rollouts
from real_openrlhf.algorithm.update import Coefficients, Forward, GroupUpdate

FOLDER = Path(__file__).parents[2] / "examples/objectives"
IN_FILES = (f"{FOLDER}/oapl.py:oapl", f"{FOLDER}/disco.py:disco_lratio")


@dataclass(frozen=True)
class Case:
    choices: ObjectiveSettings
    coefficients: Coefficients
    rollouts: RolloutBatch
    plan: PlanRules
    mask: torch.Tensor  # (rollouts, tokens) the policy's own tokens: one span, or one for each turn
    moved: float  # how far log-probabilities are from the old ones after the first update


@st.composite
def cases(draw, max_group_size=8, max_groups=5, max_length=6, left_out=False):
    """`left_out`: updates train nothing on one rank or on all."""
    sizes = draw(st.lists(st.integers(2, max_group_size), min_size=1, max_size=max_groups))
    order = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    # prompts differ in difficulty, so that uniform groups occur
    uniform, mixed = [(1,), (0,), (-1,)], [(1, 0), (1, 0, -1), (0, -2), (1, 0, -2, -1)]
    kinds = draw(st.sampled_from([uniform + mixed, uniform, mixed, 3 * uniform + mixed]))
    mixes = [draw(st.sampled_from(kinds)) for _ in sizes]
    rewards = [draw(st.sampled_from([(1.0,), (0.0, 1.0), (0.25, -0.5, 3.0)])) for _ in sizes]
    random = draw(st.randoms(use_true_random=False))
    lengths = [random.randint(0 if random.random() < 0.1 else 1, max_length) for _ in order]
    turns = draw(st.sampled_from([0.0, 0.4]))  # of several turns: the share of tokens that an environment says
    mask = torch.tensor([[t < n and random.random() >= turns for t in range(max(*lengths, 1))] for n in lengths])
    # a rollout without tokens of its own has no score: it is ignored
    labels = [random.choice(mixes[group]) if own.any() else -1 for group, own in zip(order, mask, strict=True)]
    name, tau = draw(st.sampled_from([*OBJECTIVES, *IN_FILES])), draw(st.sampled_from([None, 0.1, 0.5, 1.0]))
    own = {key: draw(st.sampled_from(one.choices)) for key, one in find(name).settings.items() if one.choices}
    kl_old = 0.0 if left_out else draw(st.sampled_from([0.0, 0.1]))
    own |= {"tau": tau} if "tau" in find(name).settings else {}
    choices = ObjectiveSettings(name, draw(st.sampled_from(["zero_loss", "keep"])), own)
    rollouts = RolloutBatch(
        labels=torch.tensor(labels),
        groups=torch.tensor([37 * group - 11 for group in order]),
        values=torch.tensor([random.choice(rewards[group]) for group in order]),
        lengths=mask.sum(1),
        total_lengths=torch.tensor(lengths),
    )
    signal = make_groups(choices, rollouts).valid
    skips = (left_out or draw(st.booleans())) and not kl_old  # where that is exact
    rollouts = replace(rollouts, has_gradient=signal, is_trained=signal if skips else None)
    tokens = max_length * len(order)
    limits = st.tuples(st.integers(1, len(order)), st.none()) | st.tuples(st.none(), st.integers(1, tokens))
    size, max_tokens = draw(limits)
    plan = PlanRules(
        groups_per_update=1 if left_out else draw(st.integers(1, len(sizes))),
        num_ranks=draw(st.sampled_from([1, 2, 4])),
        size=size,
        max_tokens=max_tokens,
        seed=draw(st.integers(0, 2**16)),
        depth=draw(st.sampled_from([None, 1, 2, 3, 1000])),
        live_tokens=draw(st.sampled_from([0, tokens / 2, math.inf])),
        score_first=draw(st.booleans()),
        known_at_old=choices.score in KNOWN_AT_OLD,
    )
    # scores move far, but score/tau stays where the naive exp() does not overflow
    moved = draw(st.sampled_from([0.2, 3.0])) * min(tau or 0.5, 1.0)
    return Case(choices, Coefficients(kl_old=kl_old), rollouts, plan, mask, moved)


class Tables:
    """(rollouts, tokens) log-probabilities; nan where a token is not the policy's, so that a leak is seen."""

    def __init__(self, case: Case) -> None:
        self.draw, self.mask = torch.Generator().manual_seed(case.plan.seed), case.mask
        self.old = self.random() - 2
        self.ref, self.drawn = self.random() - 2, self.old + 0.2 * self.random()

    def random(self) -> torch.Tensor:
        numbers = torch.randn(self.mask.shape, generator=self.draw, dtype=torch.float64)
        return torch.where(self.mask, numbers.clamp(-1.5, 1.5), torch.nan)


def trained(case: Case, tables: Tables) -> Iterator[tuple[list[int], torch.Tensor, float, torch.Tensor]]:
    """Of each update: its rollouts, the policy's log-probabilities; the loss and the gradient in them."""
    plan = plan_rollouts(case.rollouts, case.plan)
    held = [*map(plan.held, range(case.plan.num_ranks))]
    for number, planned in enumerate(plan.updates):
        new = tables.old + (case.moved * tables.random() if number else 0)
        leaf = new.clone().requires_grad_()
        trained = update(case, tables, leaf, held, planned)
        yield planned.rollouts, new, trained.own_metrics()["policy_loss"], leaf.grad


def update(
    case: Case, tables: Tables, leaf: torch.Tensor, held: list[Positions], planned: PlannedUpdate
) -> GroupUpdate:
    trained = GroupUpdate(case.choices, planned, case.coefficients, 1, "cpu", None, sampled=False)

    def forward(positions: Positions, of_rank: Positions) -> Forward:
        """An empty micro-batch is a dummy forward with nothing visible, of weight 0."""
        assert {*positions} <= {*of_rank}
        seen = positions or of_rank[:1]
        visible = case.mask[seen] if positions else torch.zeros_like(case.mask[seen])
        columns = (leaf[seen], tables.old[seen], tables.ref[seen], tables.drawn[seen])
        return Forward(case.choices.score, torch.tensor(positions, dtype=torch.long), visible, *columns)

    for wave in planned.waves:
        batches = [(positions, own) for own, rank in zip(held, wave.ranks, strict=True) for positions in rank]
        passes = None
        if not planned.scores_known:
            with torch.set_grad_enabled(not wave.score_first):
                passes = [forward(*one) for one in batches]
            trained.exchange(wave, passes)
        for number, one in enumerate(batches):
            now = forward(*one) if passes is None or wave.score_first else passes[number]
            trained.loss(now).backward()
    return trained


def naive_update(case: Case, tables: Tables, rows: list[int], new: torch.Tensor):
    """(loss, gradient) of one update: the paper's mean loss as one graph."""
    leaf, own = new.clone().requires_grad_(), case.coefficients
    columns = (leaf, tables.old, tables.ref, tables.drawn)
    scores = {row: naive_score(case.choices.score, *(one[row][case.mask[row]] for one in columns)) for row in rows}
    own_columns = case.rollouts.groups, case.rollouts.labels, case.rollouts.values
    groups, labels, values = (one.tolist() for one in own_columns)
    losses, valid = naive_losses(case.choices, rows, groups, scores, labels, values)
    loss = sum(losses, 0 * leaf[case.mask].sum()) / (
        max(valid, 1) if case.choices.settings.get("reduction") == "mean" else len(losses)
    )
    gaps = torch.cat([(leaf[row] - tables.old[row])[case.mask[row]] for row in rows])
    objective = loss
    if len(gaps):
        # as OpenRLHF's: a token's estimate is capped at 10
        objective = objective + own.kl_old * (torch.exp(-gaps) - 1 + gaps).clamp(max=10).mean()
    return float(loss.detach()), torch.autograd.grad(objective, leaf)[0]


LARGE = {"max_group_size": 64, "max_groups": 4, "max_length": 12}


@pytest.mark.parametrize("sizes, examples", [({}, 60), (LARGE, 16), ({"left_out": True}, 20)])
def test_loss_and_gradient_are_the_papers_in_any_layout(sizes, examples):
    @settings(max_examples=examples * (10 if EVERY else 1), deadline=None, derandomize=True, database=None)
    @given(case=cases(**sizes))
    def exact(case):
        tables = Tables(case)
        for rows, new, loss, gradient in trained(case, tables):
            expected_loss, expected = naive_update(case, tables, rows, new)
            assert loss == pytest.approx(expected_loss, rel=1e-10, abs=1e-10)
            torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)

    exact()


@pytest.mark.parametrize(("live_tokens", "score_first"), [(math.inf, False), (0, True)])
def test_a_wave_is_scored_first_if_its_graphs_do_not_fit(live_tokens, score_first):
    groups, lengths = torch.arange(8) // 4, torch.tensor([3, 4, 2, 5, 1, 2, 6, 3])
    rollouts = RolloutBatch(groups % 2, groups, lengths=lengths, total_lengths=lengths)
    rules = PlanRules(1, 1, 1, None, seed=0, depth=1000, known_at_old=True)
    _, later = plan_rollouts(rollouts, replace(rules, live_tokens=live_tokens)).updates
    assert [wave.score_first for wave in later.waves] == [score_first]
