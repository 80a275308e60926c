"""Each objective's loss of one prompt, straight from its formula: loops and exponentials, no care for overflow.

Such a function gets the scores of positives and negatives, all valid (score, label, reward), settings, a zero.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, exp, log

from real_openrlhf.algorithm.settings import ObjectiveSettings


def real(pos, neg, rows, settings, zero):
    tau = settings.tau
    return log(1 + zero + sum(exp(-s / tau) for s in pos)) + log(1 + zero + sum(exp(s / tau) for s in neg))


def bce(pos, neg, rows, settings, zero):
    # -log sigmoid, in the form that overflows last
    return sum(log(1 + exp(-s / settings.tau)) for s in pos) + sum(log(1 + exp(s / settings.tau)) for s in neg)


def no_anchor(pos, neg, rows, settings, zero):
    return log(1 + zero + sum(exp(s / settings.tau) for s in neg) * sum(exp(-s / settings.tau) for s in pos))


def fixed_weights(pos, neg, rows, settings, zero):
    p, n = len(pos), len(neg)
    loss = math.log(1 + p) - sum(s / settings.tau / (1 + p) for s in pos)
    return loss + math.log(1 + n) + sum(s / settings.tau / (1 + n) for s in neg)


def weights_of_real(pos, neg, tau):
    """Proposition 5.1, as numbers: of the positives, of the negatives."""

    def pull(number, scores):
        others = 1 + sum(math.exp(-s / tau) for i, s in enumerate(scores) if i != number)
        return 1 / tau / (1 + others * math.exp(scores[number] / tau))

    pos, neg = [float(s.detach()) for s in pos], [-float(s.detach()) for s in neg]
    return [-pull(i, pos) for i in range(len(pos))], [pull(i, neg) for i in range(len(neg))]


def trpa(pos, neg, rows, settings, zero):
    terms = []
    for winner, high, *_ in rows:
        for loser, low, *_ in rows:
            if high > low:
                gain = 2.5 if high == 1 else 1.0
                terms.append(-log(1 / (1 + exp(-gain * settings["beta"] * (winner - loser)))))
    return sum(terms) / max(len(terms), 1)


def disco(pos, neg, rows, settings, zero):
    push = settings.tau * log(sum(exp(s / settings.tau) for s in neg) / len(neg)) if neg else 0
    return push - (sum(pos) / len(pos) if pos else 0)


def oapl(pos, neg, rows, settings, zero):
    beta = settings["beta"]
    value = beta * math.log(sum(math.exp(reward / beta) for _, _, reward in rows) / len(rows)) if rows else 0
    return sum((beta * s - (reward - value)) ** 2 for s, _, reward in rows) / max(len(rows), 1)


def vespo(pos, neg, rows, settings, zero):
    rewards = [reward for _, _, reward in rows]
    mean = sum(rewards) / len(rows) if rows else 0
    spread = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rows)) if rows else 0
    total = zero
    for s, _, reward in rows if spread else ():
        side = "right" if reward >= mean else "wrong"
        power, decay = settings[f"k_{side}"], settings[f"l_{side}"]
        ratio = math.exp(float(s.detach()))
        phi = math.exp(decay) * ratio**power * math.exp(-decay * ratio)
        total = total - phi * (reward - mean) / spread * s / len(rows)
    return total


def hinge(pos, neg, rows, settings, zero):
    return sum(max(zero, settings.tau - s) for s in pos) + sum(max(zero, settings.tau + s) for s in neg)


def rence(pos, neg, rows, settings, zero):
    if not pos or not neg:
        return 0
    right, wrong = (sum(exp(s / settings.tau) for s in side) for side in (pos, neg))
    return -log(right / (right + wrong))


def pass_at_k_weights(labels, most):
    """Pass@k Training by its definition: a subset of k has its best label, standardized over all subsets; a response
    has the mean of its own subsets."""
    k = min(int(most), len(labels))
    subsets = [*itertools.combinations(range(len(labels)), k)]
    best = [max(labels[i] for i in subset) for subset in subsets]
    mean = sum(best) / len(best)
    spread = math.sqrt(sum((one - mean) ** 2 for one in best) / len(best))
    if not spread:
        return [0.0] * len(labels)
    own = [[one for one, subset in zip(best, subsets, strict=True) if i in subset] for i in range(len(labels))]
    return [(sum(every) / len(every) - mean) / spread for every in own]


def pass_at_k(pos, neg, rows, settings, zero):
    weights = pass_at_k_weights([max(label, 0) for _, label, _ in rows], settings["k"]) if rows else []
    return -sum(w * s for w, (s, *_) in zip(weights, rows, strict=True)) / max(len(rows), 1)


def pkpo(pos, neg, rows, settings, zero):
    """Its Eq. 33: over the subsets with a response, their best label minus their best without that response."""
    labels, total = [max(label, 0) for _, label, _ in rows], 0
    subsets = [*itertools.combinations(range(len(rows)), min(settings["k"], len(rows)))]
    for i, (s, *_) in enumerate(rows):
        others = [[labels[j] for j in subset if j != i] for subset in subsets if i in subset]
        total += s * sum(max([*rest, labels[i]]) - max(rest, default=0) for rest in others) / len(subsets)
    return -total / max(len(rows), 1)


def undo(fn, fp, true):
    """The numbers (seen correct, seen incorrect) whose means over the verifier's errors are `true`'s."""
    errors = torch.tensor([[1 - fn, fn], [fp, 1 - fp]], dtype=torch.float64)
    return torch.linalg.solve(errors, torch.stack([*true]))


def unbiased_bce(pos, neg, rows, settings, zero):
    total = 0
    for s, label, _ in rows:
        true = [log(1 + exp(-s / settings.tau)), log(1 + exp(s / settings.tau))]
        total += undo(settings["fn_rate"], settings["fp_rate"], true)[0 if label == 1 else 1]
    return total


def forward(pos, neg, rows, settings, zero):
    """Seen weights whose mean is 0 for a correct response and one number for an incorrect one, at any fp."""
    fn, fp = settings["fn_rate"], 0.07
    seen = undo(fn, fp, torch.tensor([0, -(1 - fn - fp)], dtype=torch.float64))
    return -sum(seen[0 if label == 1 else 1] * s for s, label, _ in rows) / max(len(rows), 1)


def w_reinforce(pos, neg, rows, settings, zero):
    return -(settings["right"] * sum(pos) - settings["wrong"] * sum(neg)) / max(len(rows), 1)


# Losses of tokens in examples/objectives/: of each token of a rollout, from its log-probabilities new, old and vLLM's,
# its advantage a, whether it is right, its prompt's share of right answers (of 8), and settings.


def sapo(new, old, drawn, a, right, rate, settings):
    tau = settings["tau_right"] if a > 0 else settings["tau_wrong"]
    return [-a * 4 / tau / (1 + exp(-tau * (exp(n - o) - 1))) for n, o in zip(new, old, strict=True)]


def gmpo(new, old, drawn, a, right, rate, settings):
    """The whole rollout's loss for each token: -A (prod_t min(r_t, e^clip))^(1/T), for a > 0."""
    product, most = 1, math.exp(settings["clip"])
    for n, o in zip(new, old, strict=True):
        product = product * (exp(n - o).clamp(max=most) if a > 0 else exp(n - o).clamp(min=1 / most))
    return [-a * product ** (1 / len(new))] * len(new)


def nft(new, old, drawn, a, right, rate, settings):
    losses = []
    for n, o in zip(new, old, strict=True):
        ratio = exp(n - o)
        if not right and 0 < rate < 1:
            ratio = (1 - rate * ratio) / (1 - rate)
            ratio = ratio + (max(float(ratio.detach()), settings["eps"]) - ratio).detach()
        losses.append(-math.sqrt((1 - rate) / rate) * log(ratio) if 0 < rate < 1 else 0 * n)
    return losses


def icepop(new, old, drawn, a, right, rate, settings):
    losses = []
    for n, o, d in zip(new, old, drawn, strict=True):
        k, ratio = math.exp(o - d), exp(n - o)
        kept = k if settings["low"] <= k <= settings["high"] else 0.0
        surrogate = min(ratio * a, ratio.clamp(1 - settings["clip"], 1 + settings["clip"]) * a)
        losses.append(-kept * surrogate)
    return losses


def ratios(new, old, drawn, a, right, rate, settings):
    """`ratio_none`: GRPO's surrogate -min(r A, clip(r) A), each of whose slopes is divided by its ratio."""
    losses = []
    for n, o in zip(new, old, strict=True):
        ratio = exp(n - o)
        surrogate = min(ratio * a, ratio.clamp(1 - settings["low"], 1 + settings["high"]) * a)
        losses.append(-surrogate / ratio.detach())
    return losses


def surrogates(new, old, a, low, high):
    """PPO's, of each token."""
    ratios = [exp(n - o) for n, o in zip(new, old, strict=True)]
    return [min(ratio * a, ratio.clamp(1 - low, 1 + high) * a) for ratio in ratios]


def dr_grpo(new, old, drawn, a, right, rate, settings):
    """The paper's sum over tokens; a mean over them is taken of this."""
    own = surrogates(new, old, float(right) - rate, settings["clip"], settings["clip"])
    return [-len(new) / settings["length"] * one for one in own]


def pass_at_k_clipped(new, old, drawn, a, right, rate, settings):
    correct = round(8 * rate)
    weights = pass_at_k_weights([1] * correct + [0] * (8 - correct), settings["k"])
    own = weights[0 if right else -1] if 0 < rate < 1 else 0.0
    return [-one for one in surrogates(new, old, own, settings["low"], settings["high"])]


def dppo(new, old, drawn, a, right, rate, settings):
    losses = []
    for n, o in zip(new, old, strict=True):
        moved = math.exp(float(n.detach())) - math.exp(o)
        pushed = moved > settings["far"] if a > 0 else moved < -settings["far"]
        losses.append(0 * n if pushed else -exp(n - o) * a)
    return losses


def reverse_kl(new, old, reference, a, right, rate, settings):
    kept = [a - settings["coef"] * (o - r) for o, r in zip(old, reference, strict=True)]
    return [-exp(n - o) * float(b) for n, o, b in zip(new, old, kept, strict=True)]


NAIVE_WITH_REFERENCE: dict[str, Callable] = {"reverse_kl:reverse_kl": reverse_kl}
NAIVE_TOKENS: dict[str, Callable] = {
    "dr_grpo:dr_grpo": dr_grpo,
    "passk:pass_at_k_clipped": pass_at_k_clipped,
    "dppo:dppo": dppo,
    "sapo:sapo": sapo,
    "gmpo:gmpo": gmpo,
    "nft:nft": nft,
    "icepop:icepop": icepop,
    "ratios:ratio_none": ratios,
}
NAIVE: dict[str, Callable] = {
    "real": real,
    "bce": bce,
    "no_anchor": no_anchor,
    "fixed_weights": fixed_weights,
    "trpa": trpa,
    "disco:disco_lratio": disco,  # from here on FILE:NAME in examples/objectives/
    "hinge:hinge": hinge,
    "oapl:oapl": oapl,
    "vespo:vespo": vespo,
    "rence:rence": rence,
    "passk:pass_at_k": pass_at_k,
    "passk:pkpo": pkpo,
    "noise:unbiased_bce": unbiased_bce,
    "noise:forward": forward,
    "psr_nsr:w_reinforce": w_reinforce,
}


def twin_of(name: str) -> Callable:
    """The derivation of an objective's name, which is built in or /PATH/FILE.py:NAME."""
    file, colon, function = name.rpartition(":")
    key = Path(file).stem + colon + function
    assert key in NAIVE, f"write a twin of {key} in NAIVE of tests/naive.py"
    return NAIVE[key]


def naive_group_loss(
    settings: ObjectiveSettings,
    scores: list[Tensor],
    labels: list[int],
    values: list[float] | None = None,
) -> tuple[Tensor, int]:
    """One prompt's loss, and how many of its rollouts count; without values a positive has 1."""
    values = [float(label == 1) for label in labels] if values is None else values
    zero, objective = sum(scores) * 0, settings.objective
    if not objective.levels:
        labels = [0 if label == -2 else label for label in labels]
    rows = [row for row in zip(scores, labels, values, strict=True) if row[1] != -1]
    kinds = {value if objective.graded else label for _, label, value in rows}
    if len(kinds) < 2 and objective.two_sides and settings.uniform_groups == "zero_loss":
        return zero, 0
    pos = [s for s, label, *_ in rows if label == 1]
    neg = [s for s, label, *_ in rows if label in (0, -2)]
    return zero + twin_of(settings.name)(pos, neg, rows, settings, zero), len(rows)


def naive_losses(settings: ObjectiveSettings, rows: Iterable[int], groups, *columns) -> tuple[list[Tensor], int]:
    """Each prompt's loss, and how many rollouts count, of these rows of the columns: scores, labels, values."""
    members: dict = {}
    for row in rows:
        members.setdefault(groups[row], []).append(row)
    found = [naive_group_loss(settings, *([one[row] for row in own] for one in columns)) for own in members.values()]
    return [loss for loss, _ in found], sum(counted for _, counted in found)


def naive_score(kind: str, new: Tensor, old: Tensor, ref: Tensor | None = None, drawn: Tensor | None = None) -> Tensor:
    """A rollout's score from the log-probabilities of its action tokens."""
    tokens = {
        "log_ratio_old": lambda: new - old,
        "log_ratio_rollout": lambda: new - drawn,
        "log_ratio_ref": lambda: new - ref,
        "log_prob": lambda: new,
        "ratio_old": lambda: exp(new - old),
    }[kind.removeprefix("sum_")]()
    return tokens.sum() / (1 if kind.startswith("sum_") else max(len(tokens), 1))
