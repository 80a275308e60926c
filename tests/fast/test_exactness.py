"""Loss and gradient are the paper's in any layout, of random rollouts, in float64: the formulas written naively.

The package's side does what a trainer does: plan waves, forward, exchange, weigh, backward. Ranks are parts of this
process, whose forwards are exchanged together; real ranks are in tests/slow/test_differential.py. The naive side loops
over groups, rollouts and tokens in one graph.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch
from every import EVERY
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import lots_of, naive_losses, naive_score

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD, OBJECTIVES
from real_openrlhf.algorithm.objective import ObjectiveSettings, weightless
from real_openrlhf.algorithm.schedule import Limit
from real_openrlhf.algorithm.step_plan import PlanSettings, RankStep, Rollouts, plan_rollouts, rank_plans
from real_openrlhf.algorithm.update import Coefficients, Forward, StepTable


@dataclass(frozen=True)
class Case:
    groups: tuple[int, ...]  # per rollout: which prompt
    labels: tuple[int, ...]
    lengths: tuple[int, ...]
    settings: dict = field(default_factory=dict)
    values: tuple[float, ...] = ()  # rewards; of objectives of graded ones
    environment: tuple[frozenset[int], ...] = ()  # per rollout: the places of tokens that are not the policy's
    groups_per_step: int = 2
    epochs: int = 1
    size: int | None = None  # samples in a micro-batch
    max_tokens: int | None = None  # or tokens
    depth: int | None = None  # of a wave
    kept_tokens: float = math.inf  # beyond which a wave is scored first
    score_first: bool = False
    kl_old_coef: float = 0.0
    disco_kl_coef: float = 0.0
    moved: float = 0.5  # how far log-probabilities are from the old ones after the first update
    seed: int = 0
    ranks: int = 1
    skip: bool = False  # leave out what has no gradient, where that is exact

    def actions(self, row: int) -> list[int]:
        """Places of the policy's own tokens: one span, or one for each turn."""
        said = self.environment[row] if self.environment else ()
        return [place for place in range(self.lengths[row]) if place not in said]


@st.composite
def cases(draw, max_group_size=8, max_groups=5, max_length=6):
    sizes = draw(st.lists(st.integers(2, max_group_size), min_size=1, max_size=max_groups))
    order = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    # prompts differ in difficulty, so that uniform groups occur
    uniform, mixed = [(1,), (0,), (-1,)], [(1, 0), (1, 0, -1), (0, -2), (1, 0, -2, -1)]
    kinds = draw(st.sampled_from([uniform + mixed, uniform, mixed, 3 * uniform + mixed]))
    mixes = [draw(st.sampled_from(kinds)) for _ in sizes]
    random = draw(st.randoms(use_true_random=False))
    rewards = [draw(st.sampled_from([(1.0,), (0.0, 1.0), (0.25, -0.5, 3.0)])) for _ in sizes]
    lengths = [random.randint(0 if random.random() < 0.1 else 1, max_length) for _ in order]
    turns = draw(st.sampled_from([0.0, 0.4]))  # of several turns: the share of tokens that an environment says
    environment = [frozenset(place for place in range(length) if random.random() < turns) for length in lengths]
    # a rollout without tokens of its own has no score: it is ignored
    own = [length - len(said) for length, said in zip(lengths, environment, strict=True)]
    labels = [random.choice(mixes[group]) if count else -1 for group, count in zip(order, own, strict=True)]
    name = draw(st.sampled_from(sorted(OBJECTIVES)))
    tau = draw(st.sampled_from([None, 0.1, 0.5, 1.0]))
    settings = {
        "name": name,
        "tau": tau,
        "uniform_groups": draw(st.sampled_from(["drop", "keep"])),
        # of the objective's own, where it has a choice
        "own": {
            name: draw(st.sampled_from(one.choices)) for name, one in OBJECTIVES[name].settings.items() if one.choices
        },
    }
    by_tokens = draw(st.booleans())
    return Case(
        groups=tuple(37 * group - 11 for group in order),
        labels=tuple(labels),
        lengths=tuple(lengths),
        settings=settings,
        values=tuple(random.choice(rewards[group]) for group in order),
        environment=tuple(environment),
        groups_per_step=draw(st.integers(1, len(sizes))),
        epochs=draw(st.integers(1, 2)),
        size=None if by_tokens else draw(st.integers(1, len(order))),
        max_tokens=draw(st.integers(1, max_length * len(order))) if by_tokens else None,
        depth=draw(st.sampled_from([None, 1, 2, 3, 1000])),
        kept_tokens=draw(st.sampled_from([0, max_length * len(order) / 2, math.inf])),
        score_first=draw(st.booleans()),
        kl_old_coef=draw(st.sampled_from([0.0, 0.1])),
        disco_kl_coef=draw(st.sampled_from([0.0, 10.0])),
        # scores move far, but score/tau stays where the naive exp() does not overflow
        moved=draw(st.sampled_from([0.2, 3.0])) * min(tau or 0.5, 1.0),
        seed=draw(st.integers(0, 2**16)),
        ranks=draw(st.sampled_from([1, 2, 4])),
        skip=draw(st.booleans()),
    )


def rollouts_of(case: Case) -> Rollouts:
    groups, labels, settings = torch.tensor(case.groups), torch.tensor(case.labels), ObjectiveSettings(**case.settings)
    values = torch.tensor(case.values or [float(label == 1) for label in case.labels])
    on_all = case.kl_old_coef or (settings.name.startswith("disco") and case.disco_kl_coef)
    no_weight = weightless(settings, labels, groups, values)
    left_out = no_weight.nonzero().flatten().tolist() if case.skip and not on_all else []
    return Rollouts(
        groups=groups,
        labels=labels,
        values=values,
        truncated=torch.zeros(len(case.groups), dtype=torch.bool),
        lengths=list(case.lengths),
        actions=[len(case.actions(row)) for row in range(len(case.groups))],
        signal=~no_weight,
        left_out=frozenset(left_out),
    )


def plan_settings(case: Case) -> PlanSettings:
    settings = ObjectiveSettings(**case.settings)
    return PlanSettings(
        groups_per_step=case.groups_per_step,
        num_ranks=case.ranks,
        limit=Limit(case.size, case.max_tokens),
        seed=case.seed,
        epochs=case.epochs,
        depth=case.depth,
        kept_tokens=case.kept_tokens,
        score_first=case.score_first,
        step_wide=settings.name.startswith("disco") and case.disco_kl_coef > 0,
        known_at_old=settings.score in KNOWN_AT_OLD,
    )


class Tables:
    """(rollouts, tokens) log-probabilities; nan where a token is not the policy's, so that a leak is seen."""

    def __init__(self, case: Case) -> None:
        self.draw, count, width = torch.Generator().manual_seed(case.seed), len(case.groups), max(*case.lengths, 1)
        self.mask = torch.zeros(count, width, dtype=torch.bool)
        for row in range(count):
            self.mask[row, case.actions(row)] = True
        self.old = self.random() - 2
        self.ref, self.drawn = self.random() - 2, self.old + 0.2 * self.random()

    def random(self) -> torch.Tensor:
        numbers = torch.randn(self.mask.shape, generator=self.draw, dtype=torch.float64)
        return torch.where(self.mask, numbers.clamp(-1.5, 1.5), torch.nan)


def trained(case: Case, tables: Tables) -> Iterator[tuple[list[int], int, torch.Tensor, float, torch.Tensor]]:
    """Of each update: its rollouts, the step of their lots, the policy's log-probabilities; the loss and the gradient
    in them."""
    plan = plan_rollouts(rollouts_of(case), plan_settings(case))
    held, plans = rank_plans(plan, rollouts_of(case), case.ranks, list(range(len(case.groups))))
    for number, steps in enumerate(zip(*(own.steps for own in plans), strict=True)):
        new = tables.old + (case.moved * tables.random() if number else 0)
        leaf = new.clone().requires_grad_()
        table = update(case, tables, leaf, held, steps)
        yield plan.steps[number].dealt, steps[0].moment.step, new, table.metrics()["policy_loss"], leaf.grad


def update(case: Case, tables: Tables, leaf: torch.Tensor, held: list, steps: tuple[RankStep, ...]) -> StepTable:
    choices, mask = ObjectiveSettings(**case.settings), tables.mask
    table = StepTable(choices, steps[0], Coefficients(kl_old=case.kl_old_coef, disco_kl=case.disco_kl_coef))

    def forward(batch, own: list[int]) -> Forward:
        """An empty micro-batch is a dummy forward with nothing visible, of weight 0."""
        seen = [own[item] for item in batch.items] or [0]
        visible = mask[seen] if batch.items else torch.zeros_like(mask[seen])
        columns = (leaf[seen], tables.old[seen], tables.ref[seen], tables.drawn[seen])
        return Forward(choices.score, batch.rows, visible, *columns)

    for waves in zip(*(step.waves for step in steps), strict=True):
        batches = [(one, own) for wave, own in zip(waves, held, strict=True) for one in wave.micro_batches]
        passes = None
        if not steps[0].scores_known:
            with torch.set_grad_enabled(not waves[0].score_first):
                passes = [forward(*one) for one in batches]
            table.exchange(waves[0], passes)
        for number, one in enumerate(batches):
            now = forward(*one) if passes is None or waves[0].score_first else passes[number]
            table.loss(now).backward()
    return table


def naive_update(case: Case, tables: Tables, rows: list[int], step: int, new: torch.Tensor):
    """(loss, gradient) of one update: the paper's mean loss as one graph."""
    choices, leaf = ObjectiveSettings(**case.settings), new.clone().requires_grad_()
    columns = (leaf, tables.old, tables.ref, tables.drawn)
    scores = {row: naive_score(choices.score, *(one[row, case.actions(row)] for one in columns)) for row in rows}
    lots = lots_of(step, rows, case.groups)
    losses, valid = naive_losses(choices, rows, case.groups, scores, case.labels, case.values, lots)
    by_rollout = case.settings.get("own", {}).get("reduction") == "mean"
    loss = sum(losses, 0 * leaf[tables.mask].sum()) / (max(valid, 1) if by_rollout else len(losses))
    gaps = [leaf[row, t] - tables.old[row, t] for row in rows for t in case.actions(row)]
    objective = loss
    if gaps:
        # as OpenRLHF's: a token's estimate is capped at 10
        k3 = [(torch.exp(-gap) - 1 + gap).clamp(max=10) for gap in gaps]
        objective = objective + case.kl_old_coef * sum(k3) / len(gaps)
        kl = -sum(gaps) / len(gaps)
        if case.disco_kl_coef and choices.name.startswith("disco"):
            objective = objective + max(case.disco_kl_coef * (float(kl.detach()) - 1e-4), 0.0) * kl
    return float(loss.detach()), torch.autograd.grad(objective, leaf)[0]


SMALL, LARGE = {}, {"max_group_size": 64, "max_groups": 4, "max_length": 12}
LEFT_OUT = {"epochs": 2, "groups_per_step": 1, "kl_old_coef": 0.0, "disco_kl_coef": 0.0, "skip": True}


@pytest.mark.parametrize("sizes, changes, examples", [(SMALL, {}, 60), (LARGE, {}, 16), (SMALL, LEFT_OUT, 20)])
def test_loss_and_gradient_are_the_papers_in_any_layout(sizes, changes, examples):
    """LEFT_OUT: updates train nothing on one rank or on all."""

    @settings(max_examples=examples * (10 if EVERY else 1), deadline=None, derandomize=True, database=None)
    @given(case=cases(**sizes))
    def exact(case):
        case = replace(case, **changes)
        tables = Tables(case)
        for rows, step, new, loss, gradient in trained(case, tables):
            expected_loss, expected = naive_update(case, tables, rows, step, new)
            assert loss == pytest.approx(expected_loss, rel=1e-10, abs=1e-10)
            torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)

    exact()


CASE = Case((0,) * 4 + (1,) * 4, (1, 1, 0, 0) * 2, (3, 4, 2, 5, 1, 2, 6, 3), {"name": "real"}, size=1, epochs=2)


@pytest.mark.parametrize(("kept_tokens", "score_first"), [(math.inf, False), (0, True)])
def test_a_wave_is_scored_first_if_its_graphs_do_not_fit(kept_tokens, score_first):
    case = replace(CASE, depth=1000, kept_tokens=kept_tokens)
    _, later = plan_rollouts(rollouts_of(case), plan_settings(case)).steps
    assert [wave.score_first for wave in later.waves] == [score_first]
