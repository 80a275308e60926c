"""The objectives: formula, inputs and settings of each. A new objective is one function and one row of `OBJECTIVES`.

`objective.score_weights` takes every gradient by autograd. Flags, recipes, figures and the tables in docs/ are made
from these rows, also in processes without torch. So this file does not import torch: formulas call the methods of
their tensors.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from real_openrlhf.base.user_files import file_of, functions_in, load

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

OF_THE_BATCH = ("reinforce", "flash_reinforce")  # estimators whose baseline is not the prompt's: one answer will do

# Settings with a flag of their own, --algo.real.NAME; --algo.real.set gives all others.
FLAGGED = ("tau", "disco_kl_coef", "disco_kl_delta")


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
        if not self.above < number < math.inf:
            bound = "" if self.above == -math.inf else f" above {self.above:g}"
            rather = "or list its words as `choices`" if value == self.default else f"for example {self.default}"
            raise ValueError(f"{name} is {value}: use a number{bound}, {rather}")
        return number


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
    # The settings that it reads. `ObjectiveSettings` reads two of them: `score` is the kind of score; `reduction` mean
    # makes the loss a mean over valid rollouts in place of prompts.
    settings: Mapping[str, Constant] = field(default_factory=temperature)

    of_tokens = False

    def __post_init__(self) -> None:
        for name, one in self.settings.items():
            if not isinstance(one, Constant):
                raise ValueError(f"the setting {name} is {one!r}. Use Constant({one!r}, 'what it is')")
        for score in (self.score, *(self.settings["score"].choices if "score" in self.settings else ())):
            if score not in SCORES or score.endswith("log_ratio_ref") != self.needs_reference:
                raise ValueError(f"score is {score!r}: choose one of {', '.join(SCORES)}")

    @property
    def needs_reference(self) -> bool:
        """Whether its score compares the policy with a reference model."""
        return self.score.endswith("log_ratio_ref")

    @property
    def needs_step_kl(self) -> bool:
        """Whether the loss has DisCO's constraint, whose coefficient depends on the KL of the whole optimizer step."""
        return "disco_kl_coef" in self.settings

    @property
    def spelled_out(self) -> dict[str, float | str]:
        """Defaults that `recipes` writes into every run's --algo.real.set; the paper's score is left out."""
        own = {name: one.default for name, one in self.settings.items() if name not in FLAGGED}
        return {name: default for name, default in own.items() if default != "log_ratio_old"}

    def constants(self, given: Mapping[str, float | str]) -> dict[str, float | str]:
        """All settings that it defines, with the given values or defaults; a ValueError for an unknown name."""
        for name in given:
            if name not in self.settings:
                known = ", ".join(known for known in self.settings if known not in FLAGGED) or "none"
                raise ValueError(f"the objective has no setting {name!r}. Use one of these: {known}")
        return {name: one.read(name, given.get(name, one.default)) for name, one in self.settings.items()}


@dataclass(frozen=True)
class TokenLoss(Objective):
    """A constant weight for each token, from a function (log_ratio, advantage, mask, group) -> (B, T) in `loss`.

    A weight above 0 makes the token likelier. `update.TokenGroup` has what `group` tells.
    """

    family: str = "tokens"
    settings: Mapping[str, Constant] = field(default_factory=dict)
    graded: bool = True  # rewards of any size make the advantages
    two_sides: bool = True  # False: tokens of advantage 0 may have a weight
    mean: str = "seq-mean-token-mean"  # as --actor.loss_agg_mode: over each rollout's tokens first, or `token-mean`

    of_tokens = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score != Objective.score:
            raise ValueError(f"a loss of tokens has no score, and score is {self.score!r}. Leave it out")
        if self.mean not in MEANS:
            raise ValueError(f"mean is {self.mean!r}: choose {' or '.join(MEANS)}")

    def clipped(self, weights: Tensor, log_ratio: Tensor) -> Tensor:
        """Mask of the tokens that it leaves out or holds back, from its weights at advantages of 1 and -1."""
        return weights == 0


def log_ratios(default: str = "log_ratio_old") -> dict[str, Constant]:
    """The setting `score` of an objective that works with any log-ratio to the old policy or to vLLM."""
    kinds = ("log_ratio_old", "sum_log_ratio_old", "log_ratio_rollout", "sum_log_ratio_rollout")
    about = "mean or sum of log-ratios, to the recomputed old policy or to vLLM's log-probabilities of the rollout"
    return {"score": Constant(default, about, kinds)}


def assignments(words: Iterable[str] | None) -> dict[str, str]:
    """Parse NAME=VALUE words, as of --algo.real.set, into {name: value}."""
    pairs = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{word!r} is not NAME=VALUE. Use for example eta=0.5")
        pairs[name] = value
    return pairs


def given_settings(flags: Any) -> dict[str, Any]:
    """The settings that the flags --algo.real.* give, by name."""
    given = {name: getattr(flags, name) for name in FLAGGED}
    words = assignments(flags.set)
    if twice := [name for name in words if name in FLAGGED]:
        raise ValueError(f"{twice[0]} has a flag of its own. Use --algo.real.{twice[0]}")
    return {name: value for name, value in given.items() if value is not None} | words


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


def constant(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """REAL's tangent at score 0: log(1+P) - sum_P s/tau/(1+P) + log(1+N) + sum_N s/tau/(1+N)"""
    positives, negatives = (groups.size(side).to(scores) for side in (groups.positive, groups.negative))
    pull = groups.sum(scores / settings.tau, groups.positive) / (1 + positives)
    push = groups.sum(scores / settings.tau, groups.negative) / (1 + negatives)
    return (positives.log1p() - pull) + (negatives.log1p() + push)


def _real_weights(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """(K,) the gradient of `real`, as constants."""
    leaf = scores.detach().requires_grad_()
    real(leaf, groups, settings).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def _with_weights(weights: Tensor, scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """The value of REAL's loss, with these constant weights as its gradient in the scores."""
    surrogate = groups.sum(weights * scores, groups.valid)
    return real(scores, groups, settings).detach() + (surrogate - surrogate.detach())


def permuted(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """REAL's, with the weights of a class of the group exchanged at random: dL/ds_k = W_p(k)"""
    weights = groups.exchanged(_real_weights(scores, groups, settings))
    return _with_weights(weights, scores, groups, settings)


def shrunk(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """REAL's, with each weight the mean of its class in the group: dL/ds_k = sum_P W / P, and sum_N W / N"""
    weights = _real_weights(scores, groups, settings)
    sides = [groups.mean(weights, side)[groups.index] for side in (groups.positive, groups.negative)]
    return _with_weights(sides[0].where(groups.positive, sides[1]), scores, groups, settings)


def balanced(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """log(1 + mean_P exp(-s/tau)) + log(1 + mean_N exp(s/tau))"""
    positives = groups.logmeanexp(-scores / settings.tau, groups.positive)
    negatives = groups.logmeanexp(scores / settings.tau, groups.negative)
    return softplus(positives) + softplus(negatives)


def trpa(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """-mean log sigmoid(a beta (s_w - s_l)), pairs of levels correct > wrong > unparsable; a = 2.5 if w is correct"""
    preferred, other = groups.pairs()
    gain = 1 + 1.5 * groups.positive[preferred].to(scores)
    losses = softplus(-gain * settings["beta"] * (scores[preferred] - scores[other]))
    pairs = replace(groups, labels=groups.labels[preferred], index=groups.index[preferred])
    return pairs.mean(losses, pairs.valid)


def disco(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """-(mean_P s - tau log mean_N exp(s/tau)), an empty side 0; its KL constraint is `policy_loss.kl_hinge_coef`"""
    push = settings.tau * groups.logmeanexp(scores / settings.tau, groups.negative)
    return push.masked_fill(groups.size(groups.negative) == 0, 0.0) - groups.mean(scores, groups.positive)


def listwise(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """-sum q log softmax(s), q = softmax(u/eta), u the z-scored rewards of the group; 0 where they are equal"""
    target = groups.log_softmax(groups.zscores(groups.values, groups.valid) / settings["eta"], groups.valid).exp()
    losses = -target.to(scores) * groups.log_softmax(scores, groups.valid)
    return groups.sum(losses, groups.valid & ~groups.uniform(groups.values))


def conspo(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """mean_P -log(e^((s-margin)/tau) / (e^((s-margin)/tau) + sum_N e^(s/tau))); 0 where a side is empty"""
    negatives = groups.logsumexp(scores / settings.tau, groups.negative)[groups.index]
    return groups.mean(softplus(negatives - (scores - settings["margin"]) / settings.tau), groups.positive)


def maxrl(scores: Tensor, groups: Groups, settings: Constants) -> Tensor:
    """-mean (r - mean r) / mean r * s over the group, r 1 for a positive, else 0; 0 without a positive"""
    rewards = groups.positive.to(scores)
    rate = groups.mean(rewards, groups.valid)[groups.index]
    weights = (rewards - rate) / rate.where(rate > 0, 1.0)
    return -groups.mean(weights * scores, groups.valid)


_PAPERS = {**temperature(), **log_ratios()}
_STEP_KL = {
    "disco_kl_coef": Constant(1000.0, "coefficient of its squared-hinge KL constraint to the old policy"),
    "disco_kl_delta": Constant(1e-4, "KL in nats per token without a penalty"),
}

OBJECTIVES: dict[str, Objective] = {
    "real": Objective(
        real,
        label="REAL",
        about="the paper's method: anchored softmax classification of a prompt's rollouts",
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
                "sum over a group (the paper's Eq. BCE), or mean over all valid rollouts (the authors' code)",
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
    "constant": Objective(
        constant,
        label="REAL, constant weights",
        about="control: REAL with its adaptive weights frozen at score 0",
        source="not in the paper",
        settings=_PAPERS,
    ),
    "permuted": Objective(
        permuted,
        label="REAL, permuted weights",
        about="control: REAL's weights exchanged at random within each class of a group",
        source="not in the paper",
        settings=_PAPERS,
    ),
    "shrunk": Objective(
        shrunk,
        label="REAL, shrunk weights",
        about="control: constant weights with REAL's sum of weights in each class of a group",
        source="not in the paper",
        settings=_PAPERS,
    ),
    "balanced": Objective(
        balanced,
        label="REAL, balanced",
        about="REAL with means in place of sums: at score 0 right and wrong answers of a group weigh the same",
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
    "disco_logl": Objective(
        disco,
        label="DisCO log-L",
        about="DisCO on log-likelihoods, with its KL constraint; the better variant in DisCO's table",
        source="DisCO's code; the paper cites the table but not this row",
        family="DisCO",
        score="log_prob",
        settings={**temperature(10.0), **_STEP_KL},
    ),
    "disco_lratio": Objective(
        disco,
        label="DisCO L-ratio",
        about="DisCO on likelihood ratios, with its KL constraint",
        source="DisCO's code; the paper cites the table but not this row",
        family="DisCO",
        score="ratio_old",
        settings={**temperature(1.0), **_STEP_KL},
    ),
    "listwise": Objective(
        listwise,
        label="Listwise target",
        about="cross-entropy to a target made from the group's rewards, graded ones too",
        source="TPO (arXiv 2604.06159), LPO (2605.06139) and ADPO (2510.18913), our reading; not in the paper",
        family="listwise",
        score="sum_log_ratio_old",
        graded=True,
        settings={
            "eta": Constant(1.0, "temperature of the target: above 1 closer to uniform", above=0),
            **log_ratios("sum_log_ratio_old"),
        },
    ),
    "conspo": Objective(
        conspo,
        label="ConSPO",
        about="InfoNCE: each right answer against all wrong ones of its group, by mean log-probability",
        source="ConSPO (arXiv 2605.12969), our reading with a fixed margin; not in the paper",
        family="conspo",
        score="log_prob",
        settings={
            **temperature(),
            "margin": Constant(0.0, "margin of a right answer's score over the wrong answers' scores"),
        },
    ),
    "maxrl": Objective(
        maxrl,
        label="MaxRL",
        about="policy gradient with rewards over their group's mean: maximum likelihood of a right answer",
        source="MaxRL (arXiv 2602.02710), our reading; not in the paper",
        family="maxrl",
        score="sum_log_ratio_old",
        settings=log_ratios("sum_log_ratio_old"),
    ),
}


def readers(setting: str) -> list[str]:
    """Which objectives read a setting."""
    return [name for name, objective in OBJECTIVES.items() if setting in objective.settings]


def find(name: str | Objective) -> Objective:
    """The objective, or a ValueError that says in one line why there is none."""
    if isinstance(name, Objective):
        return name
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if file_of(name) is None:
        raise ValueError(
            f"unknown objective {name!r}: choose one of {', '.join(OBJECTIVES)}, or your own, FILE.py:NAME"
        )
    found, path, own = load(name), file_of(name), name.rpartition(":")[2]
    if isinstance(found, Objective):
        return found
    if not callable(found):
        there = ", ".join(functions_in(name)) or "no function"
        raise ValueError(
            f"{own!r} is no function of {path}, which has {there}. Give one of (scores, groups, settings)"
        )
    first, *_ = (found.__doc__ or "").strip().splitlines() or [""]
    # a token loss has (log_ratio, advantage, mask, group); a default may be a constant of the user's own
    needed = [one for one in inspect.signature(found).parameters.values() if one.default is one.empty]
    kind = TokenLoss if len(needed) == 4 else Objective
    return kind(found, label=own, about=first, source=str(path))


# Two losses that put a constant weight on each token's log-probability, beside OpenRLHF's own clipped surrogates.
# GRPO's surrogate gives no gradient to a token whose ratio has left the clip range. CISPO (MiniMax-M1, arXiv
# 2506.13585, Eq. 4 and 5) clips the ratio and trains the token with the clipped ratio. `reinforce`, from which CISPO
# starts, does not clip it.

MAX_LOG_RATIO = 20.0  # OpenRLHF's bound for its own ratios: exp stays finite


def ratio_of(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def cispo(log_ratio: Tensor, advantage: Tensor, mask: Tensor, group: Constants) -> Tensor:
    return ratio_of(log_ratio).clamp(1 - group["low"], 1 + group["high"]) * advantage


def reinforce(log_ratio: Tensor, advantage: Tensor, mask: Tensor, group: Constants) -> Tensor:
    return ratio_of(log_ratio) * advantage


class RatioLoss(TokenLoss):
    def clipped(self, weights: Tensor, log_ratio: Tensor) -> Tensor:
        return weights.abs() != ratio_of(log_ratio)


# --actor.policy_loss_type; low and high are --actor.eps_clip_low_high, how far below and above 1 a ratio may be
_CLIP = {"low": Constant(0.2, "below 1"), "high": Constant(0.2, "above 1")}
TOKEN_WEIGHTS = {"cispo": RatioLoss(cispo, settings=_CLIP), "reinforce": RatioLoss(reinforce, settings=_CLIP)}
