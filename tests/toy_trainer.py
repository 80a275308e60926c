"""A toy trainer on real gloo ranks, and the paper's formulas written naively in one graph, to hold against each other.

The trainer does what a real one does with `real_openrlhf`: schedule, cut into micro-batches, score, exchange, weigh,
train on the surrogate, sum gradients over ranks. The naive side knows nothing of that: it loops over groups, rollouts
and tokens in float64. Not covered here: DeepSpeed's own scaling by ranks and accumulation.
"""

import math
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from hypothesis import strategies as st

from real_openrlhf.algorithm.objective import OBJECTIVES, ObjectiveSettings, count_valid, rollout_scores, score_weights
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_hinge_coef, kl_k1, kl_old, surrogate
from real_openrlhf.algorithm.schedule import micro_batches, schedule
from real_openrlhf.algorithm.score_table import ScoreTable, gather_table, sum_over_ranks

VOCABULARY, HIDDEN = 5, 3
SCORINGS = ("micro_batch", "deferred", "separate")


@dataclass(frozen=True)
class Case:
    groups: tuple[int, ...]  # per rollout: which prompt
    labels: tuple[int, ...]
    lengths: tuple[int, ...]
    settings: dict = field(default_factory=dict)
    groups_per_step: int = 2
    epochs: int = 1
    size: int | None = None  # samples in a micro-batch
    max_tokens: int | None = None  # or tokens
    scoring: str = "deferred"
    kl_old_coef: float = 0.0
    disco_kl_coef: float = 0.0
    lr: float = 0.5
    seed: int = 0


@st.composite
def cases(draw, max_group_size=8, max_groups=5, max_length=6):
    sizes = draw(st.lists(st.integers(2, max_group_size), min_size=1, max_size=max_groups))
    order = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    # prompts differ in difficulty, so that uniform groups occur
    mixes = [draw(st.sampled_from([(1,), (0,), (1, 0), (1, 0, -1), (0, -2), (1, 0, -2, -1)])) for _ in sizes]
    random = draw(st.randoms(use_true_random=False))
    labels = [random.choice(mixes[group]) for group in order]
    lengths = [random.randint(0 if random.random() < 0.1 else 1, max_length) for _ in order]
    name = draw(st.sampled_from(sorted(OBJECTIVES)))
    tau = draw(st.sampled_from([None, 0.1, 0.5, 1.0]))
    settings = {
        "name": name,
        "tau": tau,
        "uniform_groups": draw(st.sampled_from(["drop", "keep"])),
        "bce_reduction": draw(st.sampled_from(["sum", "mean"])),
    }
    scoring = draw(st.sampled_from(SCORINGS))
    by_tokens = draw(st.booleans())
    biggest = max(sizes) if scoring == "micro_batch" else 1
    return Case(
        groups=tuple(37 * group - 11 for group in order),
        labels=tuple(labels),
        lengths=tuple(lengths),
        settings=settings,
        groups_per_step=draw(st.integers(1, len(sizes))),
        epochs=draw(st.integers(1, 2)),
        size=None if by_tokens else draw(st.integers(biggest, max(biggest, len(order)))),
        max_tokens=draw(st.integers(1, max_length * len(order))) if by_tokens else None,
        scoring=scoring,
        kl_old_coef=draw(st.sampled_from([0.0, 0.1])),
        disco_kl_coef=draw(st.sampled_from([0.0, 10.0])) if scoring != "micro_batch" else 0.0,
        # scores move far, but score/tau stays where the naive exp() does not overflow
        lr=draw(st.sampled_from([0.05, 0.5])) * min(tau or 0.5, 1.0) ** 2,
        seed=draw(st.integers(0, 2**16)),
    )


class Toy:
    """Rollouts of a tiny recurrent-free policy; padding holds nan, so a leak through a mask is seen."""

    def __init__(self, case: Case):
        generator = torch.Generator().manual_seed(case.seed)
        count, width = len(case.groups), max(max(case.lengths), 1)
        self.tokens = torch.randint(VOCABULARY, (count, width + 1), generator=generator)
        self.prompts = torch.tensor([sorted(set(case.groups)).index(group) for group in case.groups])
        self.mask = torch.arange(width) < torch.tensor(case.lengths)[:, None]
        shapes = [(VOCABULARY, HIDDEN), (len(set(case.groups)), HIDDEN), (HIDDEN, VOCABULARY)]
        start, reference = (
            [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes] for _ in range(2)
        )
        self.parameters = [weight.requires_grad_() for weight in start]
        rows = list(range(count))
        with torch.no_grad():
            self.old = self.log_probs(rows)
            self.ref = self.log_probs(rows, reference)

    def log_probs(self, rows: list[int], parameters=None) -> torch.Tensor:
        embedding, prompt, head = parameters or self.parameters
        tokens = self.tokens[rows]
        hidden = torch.tanh(embedding[tokens[:, :-1]] + prompt[self.prompts[rows]][:, None])
        log_probs = (hidden @ head).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return torch.where(self.mask[rows], log_probs, torch.nan)


@dataclass
class Pass:
    """One forward over a micro-batch. An empty one is a dummy forward with nothing visible, of weight 0."""

    rows: list[int]
    new: torch.Tensor
    old: torch.Tensor
    mask: torch.Tensor
    scores: torch.Tensor

    @property
    def own_scores(self) -> torch.Tensor:
        return self.scores[: len(self.rows)]


class Trainer:
    """One rank."""

    def __init__(self, case: Case, rank: int, ranks: int):
        self.case, self.rank, self.ranks = case, rank, ranks
        self.toy = Toy(case)
        self.settings = ObjectiveSettings(**case.settings)
        self.policy_loss = RealPolicyLoss(self.settings.objective.score)
        self.labels, self.groups = torch.tensor(case.labels), torch.tensor(case.groups)
        self.whole = case.groups if case.scoring == "micro_batch" else None

    def run(self) -> list[dict]:
        case, records = self.case, []
        for epoch in range(case.epochs):
            tear = self.whole is None
            arguments = (case.lengths, case.groups, case.groups_per_step, self.ranks, case.seed)
            for step in schedule(*arguments, epoch=epoch, tear=tear):
                records.append(self.train_step(step, first=not records))
        return records

    def train_step(self, step: list[list[int]], first: bool) -> dict:
        case = self.case
        batches = micro_batches(
            step, case.lengths, size=case.size, max_tokens=case.max_tokens, whole_groups=self.whole
        )[self.rank]
        rows = sorted(row for part in step for row in part)
        before = [weight.detach().clone() for weight in self.toy.parameters]
        self.num_groups = len({case.groups[row] for row in rows})
        self.num_rollouts = count_valid(self.settings, self.labels[rows], self.groups[rows])
        self.num_tokens = sum(case.lengths[row] for row in rows) or 1

        if first:
            loss = self.train_first(batches)
        elif case.scoring == "micro_batch":
            loss = self.train_whole_groups(batches)
        elif case.scoring == "deferred":
            loss = self.train_deferred(batches)
        else:
            loss = self.train_separate(batches)
        return {"rows": rows, "parameters": before, "loss": loss, "gradients": self.descend()}

    def train_first(self, batches) -> torch.Tensor:
        """The policy is the old one: the scores are known without a forward."""
        rows = [row for batch in batches for row in batch]
        old, ref, mask = self.toy.old[rows], self.toy.ref[rows], self.toy.mask[rows]
        scores = rollout_scores(self.settings.objective.score, old, old, ref, mask)
        loss, weights = self.weigh(rows, scores)
        for batch in batches:
            self.objective(self.forward(batch), weights).backward()
        return loss

    def train_whole_groups(self, batches) -> torch.Tensor:
        """A micro-batch holds all of its groups: no exchange."""
        loss = torch.zeros((), dtype=torch.float64)
        for batch in batches:
            one = self.forward(batch)
            counts = (self.num_groups, self.num_rollouts)
            own = score_weights(self.settings, one.own_scores, self.labels[batch], self.groups[batch], *counts)
            loss = loss + own.loss
            self.objective(one, dict(zip(batch, own.weights, strict=True))).backward()
        return sum_over_ranks(loss)

    def train_deferred(self, batches) -> torch.Tensor:
        """All graphs stay alive until the weights are known, then one backward."""
        passes = [self.forward(batch) for batch in batches]
        loss, weights = self.weigh_passes(passes)
        constraint = self.kl_coefficient(passes)
        sum(self.objective(one, weights, constraint) for one in passes).backward()
        return loss

    def train_separate(self, batches) -> torch.Tensor:
        """Score without a graph, then train."""
        with torch.no_grad():
            passes = [self.forward(batch) for batch in batches]
        loss, weights = self.weigh_passes(passes)
        constraint = self.kl_coefficient(passes)
        for batch in batches:
            self.objective(self.forward(batch), weights, constraint).backward()
        return loss

    def forward(self, batch: list[int]) -> Pass:
        seen = batch or [0]
        mask = self.toy.mask[seen] if batch else torch.zeros_like(self.toy.mask[seen])
        new, old = self.toy.log_probs(seen), self.toy.old[seen]
        return Pass(batch, new, old, mask, self.policy_loss.scores(new, old, mask, self.toy.ref[seen]))

    def weigh_passes(self, passes: list[Pass]) -> tuple[torch.Tensor, dict]:
        return self.weigh([row for one in passes for row in one.rows], torch.cat([one.own_scores for one in passes]))

    def weigh(self, rows: list[int], scores: torch.Tensor) -> tuple[torch.Tensor, dict]:
        """The step's loss, and the exact weights of this rank's rows from all ranks' scores."""
        ids = torch.tensor(rows, dtype=torch.long)
        table = gather_table(ScoreTable(ids, self.groups[rows], self.labels[rows], ids * 0, scores))
        weighed = score_weights(self.settings, table.scores, table.labels, table.groups, self.num_groups)
        return weighed.loss, dict(zip(rows, weighed.weights[table.rows(ids)], strict=True))

    def kl_coefficient(self, passes: list[Pass]) -> float:
        parts = [kl_k1(one.new, one.old, one.mask, self.num_tokens) for one in passes]
        return kl_hinge_coef(float(sum_over_ranks(torch.stack(parts).sum())), self.case.disco_kl_coef)

    def objective(self, one: Pass, weights: dict, constraint: float = 0.0) -> torch.Tensor:
        own = [weights[row] for row in one.rows]
        loss = surrogate(one.scores, torch.stack(own) if own else torch.zeros_like(one.scores))
        loss = loss + self.case.kl_old_coef * kl_old(one.new, one.old, one.mask, self.num_tokens)
        return loss + constraint * kl_k1(one.new, one.old, one.mask, self.num_tokens)

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


def gather(tables: list[ScoreTable]) -> ScoreTable:
    """Each rank brings its own table."""
    rank, _ = rank_and_count()
    return gather_table(tables[rank])


def naive_step(case: Case, record: dict) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(logged loss, gradients) of one optimizer step: the paper's mean loss as one graph, at the step's parameters."""
    toy = Toy(case)
    parameters = [weight.clone().requires_grad_() for weight in record["parameters"]]
    settings = ObjectiveSettings(**case.settings)
    new = toy.log_probs(list(range(len(case.groups))), parameters)
    zero = sum(weight.sum() for weight in parameters) * 0
    scores = {}
    for row in record["rows"]:
        tokens = []
        for t in range(case.lengths[row]):
            tokens.append(
                {
                    "log_ratio_old": new[row, t] - toy.old[row, t],
                    "log_ratio_ref": new[row, t] - toy.ref[row, t],
                    "log_prob": new[row, t],
                    "ratio_old": torch.exp(new[row, t] - toy.old[row, t]),
                }[settings.objective.score]
            )
        scores[row] = sum(tokens, zero) / max(len(tokens), 1)

    members = {}
    for row in record["rows"]:
        members.setdefault(case.groups[row], []).append(row)
    losses, valid = [], 0
    for rows in members.values():
        loss, counted = naive_group_loss(settings, [scores[row] for row in rows], [case.labels[row] for row in rows])
        losses.append(loss)
        valid += counted
    loss = sum(losses, zero) / (max(valid, 1) if settings.mean_over_rollouts else len(members))

    gaps = [new[row, t] - toy.old[row, t] for row in record["rows"] for t in range(case.lengths[row])]
    objective = loss
    if gaps:
        # as OpenRLHF's: a token's estimate is capped at 10
        k3 = [(torch.exp(-gap) - 1 + gap).clamp(max=10) for gap in gaps]
        objective = objective + case.kl_old_coef * sum(k3) / len(gaps)
        kl = -sum(gaps) / len(gaps)
        if case.disco_kl_coef:
            objective = objective + max(case.disco_kl_coef * (float(kl.detach()) - 1e-4), 0.0) * kl
    return loss.detach(), list(torch.autograd.grad(objective, parameters))


def naive_group_loss(settings: ObjectiveSettings, scores: list, labels: list[int]) -> tuple[torch.Tensor, int]:
    """One prompt's loss straight from the formula, and how many of its rollouts count."""
    zero = sum(scores) * 0
    if settings.name != "trpa":
        labels = [0 if label == -2 else label for label in labels]
    seen = {label for label in labels if label != -1}
    if len(seen) < 2 and settings.uniform_groups == "drop":
        return zero, 0
    tau, exp, log = settings.tau, torch.exp, torch.log
    positive = [s for s, label in zip(scores, labels, strict=True) if label == 1]
    negative = [s for s, label in zip(scores, labels, strict=True) if label in (0, -2)]
    p, n = len(positive), len(negative)
    if settings.name == "real":
        loss = log(1 + sum((exp(-s / tau) for s in positive), zero))
        loss = loss + log(1 + sum((exp(s / tau) for s in negative), zero))
    elif settings.name == "no_anchor":
        loss = log(1 + sum((exp(s / tau) for s in negative), zero) * sum((exp(-s / tau) for s in positive), zero))
    elif settings.name == "bce":
        loss = zero
        for s in positive:
            loss = loss + log(1 + exp(-s / tau))  # -log sigmoid, in the form that overflows last
        for s in negative:
            loss = loss + log(1 + exp(s / tau))
    elif settings.name == "constant":
        loss = zero + math.log(1 + p) + math.log(1 + n)
        loss = loss - sum((s / tau / (1 + p) for s in positive), zero)
        loss = loss + sum((s / tau / (1 + n) for s in negative), zero)
    elif settings.name == "trpa":
        terms = []
        for winner, high in zip(scores, labels, strict=True):
            for loser, low in zip(scores, labels, strict=True):
                if -1 not in (high, low) and high > low:
                    gain = 2.5 if high == 1 else 1.0
                    terms.append(-log(1 / (1 + exp(-gain * settings.trpa_beta * (winner - loser)))))
        loss = sum(terms, zero) / max(len(terms), 1)
    else:
        loss = zero
        if positive:
            loss = loss - sum(positive) / p
        if negative:
            loss = loss + tau * log(sum(exp(s / tau) for s in negative) / n)
    return loss, p + n


def assert_exact(case: Case, records_of_ranks: list[list[dict]]) -> None:
    """Every rank's logged loss and gradient are the naive ones, to 1e-10, in every step."""
    for step, record in enumerate(records_of_ranks[0]):
        loss, gradients = naive_step(case, record)
        for records in records_of_ranks:
            torch.testing.assert_close(records[step]["loss"], loss, rtol=1e-10, atol=1e-10)
            for got, expected in zip(records[step]["gradients"], gradients, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
