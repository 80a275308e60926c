"""The objectives: formula, inputs and settings of each. A new objective is one function and one row of `OBJECTIVES`.

`objective.score_weights` takes every gradient by autograd. Flags, recipes, figures and the tables in docs/ are made
from these rows, also in processes without torch. So this file does not import torch: formulas call the methods of
their tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from real_openrlhf.algorithm.groups import Groups

# The score of one token, by kind: TOKEN_SCORES[kind](log pi, log pi_old, log pi_ref, log pi of vLLM).
TOKEN_SCORES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "log_ratio_old": lambda new, old, ref, drawn: new - old,  # the paper's relative log-probability
    "log_ratio_rollout": lambda new, old, ref, drawn: new - drawn,  # vLLM's log-probabilities stand for pi_old
    "log_ratio_ref": lambda new, old, ref, drawn: new - ref,
    "log_prob": lambda new, old, ref, drawn: new,
    "ratio_old": lambda new, old, ref, drawn: (new - old).exp(),
}
# A rollout's score is the mean over its action tokens; for a kind with this prefix, the sum.
SUM = "sum_"
SCORES = (*TOKEN_SCORES, *(SUM + kind for kind in TOKEN_SCORES))
# Kinds of score whose value is known without a forward pass while the policy equals the old policy.
KNOWN_AT_OLD = {"log_ratio_old": 0.0, "sum_log_ratio_old": 0.0, "ratio_old": 1.0}

MEANS = ("seq-mean-token-mean", "token-mean")  # of a token loss, as --actor.loss_agg_mode


def against_sampler(score: str) -> bool:
    """Whether a kind of score is measured against vLLM's log-probabilities of the tokens that it drew."""
    return score.endswith("log_ratio_rollout")


class Constants(Protocol):
    """The settings that a formula may read."""

    @property
    def tau(self) -> float: ...

    def __getitem__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class Constant:
    """A setting that one objective defines; its formula reads the value as settings["NAME"]."""

    default: float | str
    help: str
    choices: tuple[str, ...] = ()  # the allowed words, if the setting is a word
    above: float = -math.inf  # a number must be larger than this
    below: float = math.inf  # and smaller than this
    whole: bool = False  # a whole number, which the formula gets as an int

    def read(self, name: str, value: float | str) -> float | str:
        """Check and convert the value; the ValueError names the allowed values."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"{name} is {value!r}: choose {' or '.join(self.choices)}")
            return value
        try:
            number = float(value)
        except (ValueError, TypeError):
            number = math.nan
        if not self.above < number < self.below or (self.whole and not number.is_integer()):
            ends = {"above": self.above, "below": self.below}
            bounds = " and ".join(f"{word} {end:g}" for word, end in ends.items() if math.isfinite(end))
            kind = " ".join(filter(None, ("a whole number" if self.whole else "a number", bounds)))
            rather = f", for example {self.default}"
            if value == self.default:
                rather = ", or list its words as `choices`" if isinstance(value, str) else ""
            raise ValueError(f"{name} is {value}: use {kind}{rather}")
        return int(number) if self.whole else number


def temperature(tau: float = 0.5) -> dict[str, Constant]:
    """The setting `tau`."""
    return {"tau": Constant(tau, "temperature of the scores", above=0)}


@dataclass(frozen=True)
class Objective:
    """A formula, its inputs and settings, and its description for figures and tables."""

    loss: Callable[..., Tensor]  # (scores, groups, settings) -> loss per group
    label: str = ""  # its name in figures and tables
    about: str = ""  # a description in one line
    source: str = ""  # the paper or code that it comes from
    family: str = "REAL"  # the method whose KL settings it trains with (recipes/algorithms.py)
    score: str = "log_ratio_old"
    levels: bool = False  # treats UNPARSABLE and NEGATIVE rollouts differently
    graded: bool = False  # reads groups.values, the rewards themselves; a group with equal rewards is uniform
    two_sides: bool = True  # a group with equal labels, or equal graded rewards, teaches nothing
    # `ObjectiveSettings` reads two of them: `score`, and `reduction`, of which `mean` is one over valid rollouts
    settings: Mapping[str, Constant] = field(default_factory=temperature)

    of_tokens = False

    def __post_init__(self) -> None:
        for name, constant in self.settings.items():
            if not isinstance(constant, Constant):
                raise ValueError(f"the setting {name} is {constant!r}. Use Constant({constant!r}, 'what it is')")
            constant.read(name, constant.default)
        for score in (self.score, *(self.settings["score"].choices if "score" in self.settings else ())):
            if score not in SCORES or score.endswith("log_ratio_ref") != self.score.endswith("log_ratio_ref"):
                raise ValueError(f"score is {score!r}: choose one of {', '.join(SCORES)}")

    @property
    def needs_reference(self) -> bool:
        """Whether its score, or a loss of tokens, compares the policy with a reference model."""
        return self.score.endswith("log_ratio_ref")

    @property
    def spelled_out(self) -> dict[str, float | str]:
        """Defaults that `recipes` writes into every run's --algo.real.set; the paper's score is left out."""
        own = {name: constant.default for name, constant in self.settings.items() if name != "tau"}
        return {name: default for name, default in own.items() if default != "log_ratio_old"}

    def constants(self, given: Mapping[str, float | str]) -> dict[str, float | str]:
        """All settings that it defines, with the given values or defaults; a ValueError for an unknown name."""
        for name in given:
            if name not in self.settings:
                known = ", ".join(known for known in self.settings if known != "tau") or "none"
                raise ValueError(f"the objective has no setting {name!r}. Use one of these: {known}")
        return {
            name: constant.read(name, given.get(name, constant.default)) for name, constant in self.settings.items()
        }


@dataclass(frozen=True)
class TokenLoss(Objective):
    """A constant weight for each token, from a function (log_ratio, advantage, mask, group) -> (B, T) in `loss`.

    A positive weight makes the token more likely. `token_update.TokenGroup` has what `group` tells.
    """

    family: str = "tokens"
    settings: Mapping[str, Constant] = field(default_factory=dict)
    graded: bool = True  # rewards of any size make the advantages
    two_sides: bool = True  # False: tokens of advantage 0 may have a weight
    mean: str = "seq-mean-token-mean"  # as --actor.loss_agg_mode: over each rollout's tokens first, or `token-mean`
    reads_reference: bool = False  # reads `group.reference`, so a run starts the reference model

    of_tokens = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score != Objective.score:
            raise ValueError(f"a loss of tokens has no score, and score is {self.score!r}. Leave it out")
        if self.mean not in MEANS:
            raise ValueError(f"mean is {self.mean!r}: choose {' or '.join(MEANS)}")

    @property
    def needs_reference(self) -> bool:
        return self.reads_reference

    def clipped(self, weights: Tensor, log_ratio: Tensor) -> Tensor:
        """Mask of the tokens that it leaves out, from its weights at advantages of 1 and -1."""
        return weights == 0


def log_ratios(default: str = "log_ratio_old") -> dict[str, Constant]:
    """The setting `score` of an objective that works with any log-ratio to the old policy or to vLLM."""
    kinds = ("log_ratio_old", "sum_log_ratio_old", "log_ratio_rollout", "sum_log_ratio_rollout")
    about = "mean or sum of log-ratios, to the recomputed old policy or to vLLM's log-probabilities of the rollout"
    return {"score": Constant(default, about, kinds)}


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) without overflow; the 1 is the paper's anchor logit 0."""
    return x.logaddexp(x.new_zeros(()))


def real(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """log(1 + sum_P exp(-s/tau)) + log(1 + sum_N exp(s/tau))"""
    positives = groups.logsumexp(-scores / settings.tau, groups.positive)
    negatives = groups.logsumexp(scores / settings.tau, groups.negative)
    return softplus(positives) + softplus(negatives)


def no_anchor(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """log(1 + sum_N exp(s/tau) * sum_P exp(-s/tau)); 0 where a side is empty"""
    positives = groups.logsumexp(-scores / settings.tau, groups.positive)
    negatives = groups.logsumexp(scores / settings.tau, groups.negative)
    return softplus(positives + negatives)


def bce(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """-(sum_P log sigmoid(s/tau) + sum_N log(1 - sigmoid(s/tau)))"""
    wrong_way = scores.where(groups.negative, -scores)
    return groups.sum(softplus(wrong_way / settings.tau), groups.valid)


def fixed_weights(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """REAL's tangent at score 0: log(1+P) - sum_P s/tau/(1+P) + log(1+N) + sum_N s/tau/(1+N)"""
    positives, negatives = (groups.size(side).to(scores) for side in (groups.positive, groups.negative))
    pull = groups.sum(scores / settings.tau, groups.positive) / (1 + positives)
    push = groups.sum(scores / settings.tau, groups.negative) / (1 + negatives)
    return (positives.log1p() - pull) + (negatives.log1p() + push)


def trpa(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """-mean log sigmoid(a beta (s_w - s_l)) of pairs, correct > incorrect > unparsable; a = 2.5 if w is correct"""
    preferred, other = groups.pairs()
    gain = 1 + 1.5 * groups.positive[preferred].to(scores)
    losses = softplus(-gain * settings["beta"] * (scores[preferred] - scores[other]))
    pairs = replace(groups, labels=groups.labels[preferred], index=groups.index[preferred])
    return pairs.mean(losses, pairs.valid)


_PAPERS = {**temperature(), **log_ratios()}
OBJECTIVES: dict[str, Objective] = {
    "real": Objective(
        real,
        label="REAL",
        about="the paper's method: anchored softmax classification of a prompt's responses",
        source="paper, Eq. REAL",
        settings=_PAPERS,
    ),
    "bce": Objective(
        bce,
        label="REAL with BCE",
        about="ablation: binary cross-entropy in place of the softmax loss",
        source="paper, Eq. BCE, “w/ BCE loss”",
        settings={
            **_PAPERS,
            "reduction": Constant(
                "sum",
                "sum over a group (the paper's Eq. BCE), or mean over the step's mixed groups (the authors' code)",
                ("sum", "mean"),
            ),
        },
    ),
    "no_anchor": Objective(
        no_anchor,
        label="REAL without anchor",
        about="ablation: REAL without the anchor logits",
        source="paper, Eq. vanilla, “w/o Anchor Logits”",
        settings=_PAPERS,
    ),
    "fixed_weights": Objective(
        fixed_weights,
        label="REAL, fixed weights",
        about="control: REAL with each weight fixed at its value for score 0",
        source="not in the paper",
        settings=_PAPERS,
    ),
    "trpa": Objective(
        trpa,
        label="TRPA",
        about="preference pairs, scores against a reference model",
        source="TRPA's code; the paper cites its numbers from DisCO's table",
        family="TRPA",
        score="log_ratio_ref",
        settings={"beta": Constant(0.1, "factor of the score differences, as in TRPA's code", above=0)},
        levels=True,
    ),
}
