"""A toy trainer on real gloo ranks, and the paper's formulas written naively in one graph, to hold against each other.

The trainer does what a real one does with `real_openrlhf`: plan waves, forward, exchange, weigh, backward, sum
gradients over ranks. The naive side knows nothing of that: it loops over groups, rollouts
and tokens in float64. Not covered here: DeepSpeed's own scaling by ranks and accumulation.
"""

import math
from dataclasses import dataclass, field, replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import strategies as st
from naive import lots_of, naive_losses, naive_score

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD, OBJECTIVES
from real_openrlhf.algorithm.groups import Table
from real_openrlhf.algorithm.metrics import sum_over_ranks
from real_openrlhf.algorithm.objective import ObjectiveSettings, make_groups
from real_openrlhf.algorithm.policy_loss import check_whole_groups, real_policy_loss
from real_openrlhf.algorithm.schedule import Limit
from real_openrlhf.algorithm.step_plan import (
    MicroBatch,
    PlanSettings,
    RankStep,
    plan_rollouts,
    rank_plans,
)
from real_openrlhf.algorithm.update import Coefficients, Forward, StepTable, shared_scores

VOCABULARY, HIDDEN = 5, 3


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
    lr: float = 0.5
    seed: int = 0
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
        lr=draw(st.sampled_from([0.05, 0.5])) * min(tau or 0.5, 1.0) ** 2,
        seed=draw(st.integers(0, 2**16)),
        skip=draw(st.booleans()),
    )


def settings_of(case: Case) -> ObjectiveSettings:
    given = {name: value for name, value in case.settings.items() if name not in ("own", "tau")}
    own = {**case.settings.get("own", {}), "tau": case.settings.get("tau"), "disco_kl_coef": case.disco_kl_coef}
    known = OBJECTIVES[case.settings.get("name", "real")].settings
    return ObjectiveSettings(**given, own={name: value for name, value in own.items() if name in known})


def rollouts_of(case: Case) -> Table:
    settings = settings_of(case)
    values = torch.tensor(case.values or [float(label == 1) for label in case.labels])
    on_all = case.kl_old_coef or (settings.name.startswith("disco") and case.disco_kl_coef)
    table = Table(
        labels=torch.tensor(case.labels),
        groups=torch.tensor(case.groups),
        values=values,
        lengths=torch.tensor([len(case.actions(row)) for row in range(len(case.groups))]),
        whole=torch.tensor(case.lengths),
    )
    signal = make_groups(settings, table).valid
    return replace(table, signal=signal, trains=signal if case.skip and not on_all else None)


def plan_settings(case: Case, ranks: int) -> PlanSettings:
    settings = settings_of(case)
    return PlanSettings(
        groups_per_step=case.groups_per_step,
        num_ranks=ranks,
        limit=Limit(case.size, case.max_tokens),
        seed=case.seed,
        epochs=case.epochs,
        depth=case.depth,
        kept_tokens=case.kept_tokens,
        score_first=case.score_first,
        step_wide=settings.name.startswith("disco") and case.disco_kl_coef > 0,
        known_at_old=settings.score in KNOWN_AT_OLD,
    )


class Toy:
    """Rollouts of a tiny recurrent-free policy; padding and environments hold nan: a leak through a mask is seen."""

    def __init__(self, case: Case):
        generator = torch.Generator().manual_seed(case.seed)
        count, width = len(case.groups), max(max(case.lengths), 1)
        self.tokens = torch.randint(VOCABULARY, (count, width + 1), generator=generator)
        self.prompts = torch.tensor([sorted(set(case.groups)).index(group) for group in case.groups])
        self.mask = torch.zeros(count, width, dtype=torch.bool)
        for row in range(count):
            self.mask[row, case.actions(row)] = True
        shapes = [(VOCABULARY, HIDDEN), (len(set(case.groups)), HIDDEN), (HIDDEN, VOCABULARY)]
        start, reference = (
            [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes] for _ in range(2)
        )
        self.parameters = [weight.requires_grad_() for weight in start]
        rows = list(range(count))
        with torch.no_grad():
            self.old = self.log_probs(rows)
            self.ref = self.log_probs(rows, reference)
        # an older sampler
        self.drawn = self.old + 0.2 * torch.randn(self.old.shape, generator=generator, dtype=torch.float64)

    def log_probs(self, rows: list[int], parameters=None) -> torch.Tensor:
        embedding, prompt, head = parameters or self.parameters
        tokens = self.tokens[rows]
        hidden = torch.tanh(embedding[tokens[:, :-1]] + prompt[self.prompts[rows]][:, None])
        log_probs = (hidden @ head).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return torch.where(self.mask[rows], log_probs, torch.nan)


class Trainer:
    """One rank."""

    def __init__(self, case: Case, rank: int, ranks: int):
        self.case, self.rank, self.ranks = case, rank, ranks
        self.toy = Toy(case)
        self.settings = settings_of(case)
        self.coefficients = Coefficients(kl_old=case.kl_old_coef)

    def run(self) -> list[dict]:
        plan = plan_rollouts(rollouts_of(self.case), plan_settings(self.case, self.ranks))
        everything = list(range(len(self.case.groups)))
        held, plans = rank_plans(plan, rollouts_of(self.case), self.ranks, everything)
        self.held = held[self.rank]
        pairs = zip(plan.steps, plans[self.rank].steps, strict=True)
        return [self.train_step(planned.dealt, step) for planned, step in pairs]

    def train_step(self, rollouts: list[int], step: RankStep) -> dict:
        before = [weight.detach().clone() for weight in self.toy.parameters]
        table = StepTable(self.settings, step, self.coefficients)
        for wave in step.waves:
            passes = None
            if not step.scores_known:
                with torch.set_grad_enabled(not wave.score_first):
                    passes = [self.forward(batch) for batch in wave.micro_batches]
                table.exchange(wave, passes)
            for number, batch in enumerate(wave.micro_batches):
                one = self.forward(batch) if passes is None or wave.score_first else passes[number]
                table.loss(one).backward()
        lots = lots_of(step.moment.step, rollouts, self.case.groups)
        loss = table.metrics()["policy_loss"]
        return {"rows": rollouts, "lots": lots, "parameters": before, "loss": loss, "gradients": self.descend()}

    def forward(self, batch: MicroBatch) -> Forward:
        """An empty micro-batch is a dummy forward with nothing visible, of weight 0."""
        rollouts = [self.held[item] for item in batch.items]
        seen = rollouts or [0]
        mask = self.toy.mask[seen] if rollouts else torch.zeros_like(self.toy.mask[seen])
        tables = (self.toy.log_probs(seen), self.toy.old[seen], self.toy.ref[seen], self.toy.drawn[seen])
        return Forward(self.settings.score, batch.rows, mask, *tables)

    def descend(self) -> list[torch.Tensor]:
        """Sum gradients over ranks, as a framework that averages them must be made to do."""
        gradients = []
        with torch.no_grad():
            for weight in self.toy.parameters:
                gradients.append(sum_over_ranks(weight.grad))
                weight -= self.case.lr * gradients[-1]
                weight.grad = None
        return gradients


def rank_and_count() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def train(case: Case) -> list[dict]:
    """One record per optimizer step: which rollouts, the parameters before, the logged loss, the summed gradient."""
    return Trainer(case, *rank_and_count()).run()


def share(tables: list[tuple[list[int], list[float]]]) -> tuple[list[float], float]:
    """Each rank brings its own (places, scores), and 1 for the total."""
    places, scores = tables[dist.get_rank()]
    count = sum(len(own) for own, _ in tables)
    *shared, total = shared_scores(
        torch.tensor(scores), torch.tensor(places, dtype=torch.long), count, torch.ones(())
    ).tolist()
    return shared, total


def told_torn(groups: list[list[int]], *options) -> str:
    """What each rank is told of its part of the groups."""
    try:
        check_whole_groups(groups[dist.get_rank()], *options)
    except ValueError as error:
        return str(error)
    return ""


PART_GROUPS = "a b a b a b c c".split()
PART_REWARDS = [1.0, 0.0, 0.0, 1.0, math.nan, 0.0, 1.0, 1.0]


def loss_of_part(rows: list[list[int]], **options) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """(loss, gradient, metrics) of `real_policy_loss` over this rank's rollouts of the eight, whose table all know."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(8, 4, dtype=torch.float64, generator=generator) - 1
    mask = torch.arange(4) < torch.tensor([4, 1, 3, 2, 4, 0, 2, 3])[:, None]
    new = (old + 0.3 * torch.randn(8, 4, dtype=torch.float64, generator=generator)).requires_grad_()
    own = rows[rank_and_count()[0]]
    columns = [PART_REWARDS[row] for row in own], [PART_GROUPS[row] for row in own]
    loss, metrics = real_policy_loss(new[own], old[own], mask[own], *columns, **options)
    return loss.detach(), torch.autograd.grad(loss, new)[0], metrics


def naive_step(case: Case, record: dict) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(logged loss, gradients) of one optimizer step: the paper's mean loss as one graph, at the step's parameters."""
    toy = Toy(case)
    parameters = [weight.clone().requires_grad_() for weight in record["parameters"]]
    settings = settings_of(case)
    new = toy.log_probs(list(range(len(case.groups))), parameters)
    zero = sum(weight.sum() for weight in parameters) * 0
    tables = (new, toy.old, toy.ref, toy.drawn)
    scores = {
        row: naive_score(settings.score, *(table[row, case.actions(row)] for table in tables))
        for row in record["rows"]
    }
    values = case.values or [float(label == 1) for label in case.labels]
    columns = (scores, case.labels, values, record["lots"])
    losses, valid = naive_losses(settings, record["rows"], case.groups, *columns)
    by_rollout = case.settings.get("own", {}).get("reduction") == "mean"
    loss = sum(losses, zero) / (max(valid, 1) if by_rollout else len(losses))

    gaps = [new[row, t] - toy.old[row, t] for row in record["rows"] for t in case.actions(row)]
    objective = loss
    if gaps:
        # as OpenRLHF's: a token's estimate is capped at 10
        k3 = [(torch.exp(-gap) - 1 + gap).clamp(max=10) for gap in gaps]
        objective = objective + case.kl_old_coef * sum(k3) / len(gaps)
        kl = -sum(gaps) / len(gaps)
        if case.disco_kl_coef and settings.name.startswith("disco"):
            objective = objective + max(case.disco_kl_coef * (float(kl.detach()) - 1e-4), 0.0) * kl
    return loss.detach(), list(torch.autograd.grad(objective, parameters))


def assert_exact(case: Case, records_of_ranks: list[list[dict]]) -> None:
    """Every rank's logged loss and gradient are the naive ones, to 1e-10, in every step."""
    for step, record in enumerate(records_of_ranks[0]):
        loss, gradients = naive_step(case, record)
        for records in records_of_ranks:
            assert records[step]["loss"] == pytest.approx(float(loss), rel=1e-10, abs=1e-10)
            for got, expected in zip(records[step]["gradients"], gradients, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
