"""What follows from a run's arguments and is none of them: `args.derived`, made once by `arguments.complete`.

Commands before a start, the controller and every rank read it. Plain values only, because Ray sends them to every
process.
"""

import contextlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal, NamedTuple

from real_openrlhf.algorithm.formulas import Objective, against_sampler
from real_openrlhf.algorithm.settings import ObjectiveSettings, given_settings

# What a run trains: an objective over the scores of whole groups, a loss of tokens in a user's file, or OpenRLHF's own
Loss = Literal["scores", "tokens", "upstream"]
CENTRED = ("group_norm", "rloo", "dr_grpo")  # advantages of a uniform group are 0, and depend on no other group
ESTIMATORS = (*CENTRED, "reinforce_baseline")  # of whole groups


@dataclass(frozen=True)
class Layout:
    """The processes of a run and their GPUs."""

    policy_nodes: int
    ranks: int  # the policy's processes, one on each of its GPUs
    data_parallel: int  # ranks that train different rollouts
    colocated: bool  # vLLM's engines are on the policy's GPUs; with --train.async_enable they have other GPUs
    engine_gpus: int  # that only vLLM uses
    reference_gpus: int  # that only the reference model uses

    @property
    def gpus(self) -> int:
        """That Ray must offer for all roles together."""
        return self.ranks + self.engine_gpus + self.reference_gpus


@dataclass(frozen=True)
class Derived:
    layout: Layout
    whole_groups: bool  # the experience maker gives each rank its rollouts: OpenRLHF must not sort them again
    loss: Loss
    score: str | None  # of the objective, one of `formulas.SCORES`; None for losses of tokens
    any_reward: bool  # rewards of any size train: they make advantages, or the objective reads them
    reference: bool  # a reference model is started: by upstream's rule, or because the objective scores against it
    kl_in_loss: bool  # a KL to the reference model is a term of the loss
    reads_old: bool  # somebody reads recomputed old log-probabilities: not a score against vLLM, but a KL
    in_waves: bool  # graphs are kept while ranks exchange scores
    skips: bool  # rollouts without a gradient are left out
    threshold: float  # a score above it is correct
    logprobs_mode: str | None  # of the distribution that vLLM samples from, if somebody reads its log-probabilities


class MicroBatch(NamedTuple):
    """The limit of a micro-batch: either rollouts, each padded to the longest of them, or tokens."""

    rollouts: int | None
    tokens: int | None

    @classmethod
    def of(cls, args: SimpleNamespace, when: Literal["train", "rollout"]) -> "MicroBatch":
        """With gradients (`train`), or of a forward alone (`rollout`)."""
        part, train = getattr(args, when), args.train
        if train.dynamic_batch_enable:
            return cls(None, part.max_tokens_per_gpu or train.max_tokens_per_gpu)  # as OpenRLHF fills it in
        return cls(part.micro_batch_size, None)


def objective_of(args: SimpleNamespace) -> ObjectiveSettings | None:
    """What --actor.policy_loss_type real trains with, the same in every process; None for OpenRLHF's losses.

    A ValueError for flags that `refusals` reports.
    """
    if args.actor.policy_loss_type != "real":
        return None
    real = args.algo.real
    return ObjectiveSettings(real.objective, real.uniform_groups, given_settings(real))


def known_objective(args: SimpleNamespace) -> ObjectiveSettings | None:
    """The same before wrong flags are reported: with its defaults, else REAL, so that the other checks go on."""
    with contextlib.suppress(ValueError):
        return objective_of(args)
    with contextlib.suppress(ValueError):
        return ObjectiveSettings(args.algo.real.objective)
    return ObjectiveSettings()


def derive(args: SimpleNamespace) -> Derived:
    """From complete arguments."""
    real, kl, settings = args.algo.real, args.algo.kl, known_objective(args)
    objective = settings.objective if settings else None
    loss: Loss = "upstream" if objective is None else "tokens" if objective.of_tokens else "scores"
    threshold, score = real.label_threshold, settings.score if settings and loss == "scores" else None
    reference = kl.init_coef > 0 or (objective is not None and objective.needs_reference)
    kl_in_loss = kl.use_loss and kl.init_coef > 0
    read = args.rollout.mismatch != "off" or args.algo.advantage.is_correction_level != "off"
    return Derived(
        layout=_layout(args, reference),
        whole_groups=args.train.batching == "whole_groups",
        loss=loss,
        score=score,
        any_reward=objective is None or objective.graded,
        reference=reference,
        kl_in_loss=kl_in_loss,
        reads_old=score is None or bool(real.kl_old_coef) or kl_in_loss or not against_sampler(score),
        in_waves=score is not None and real.max_live_micro_batches != "0",
        skips=_skips(args, loss, objective),
        threshold=0.5 if threshold is None else threshold,
        logprobs_mode="processed_logprobs" if read else None,
    )


def _layout(args: SimpleNamespace, reference: bool) -> Layout:
    actor, train, vllm = args.actor, args.train, args.vllm
    ranks = actor.num_nodes * actor.num_gpus_per_node
    colocated = train.colocate_all and not train.async_enable
    beside = train.colocate_all or train.colocate_actor_ref or not reference
    return Layout(
        policy_nodes=actor.num_nodes,
        ranks=ranks,
        data_parallel=max(ranks // args.ds.ring_attn_size // args.ds.tensor_parallel_size, 1),
        colocated=colocated,
        engine_gpus=0 if colocated else (vllm.num_engines or 0) * vllm.tensor_parallel_size,
        reference_gpus=0 if beside else args.ref.num_nodes * args.ref.num_gpus_per_node,
    )


def _skips(args: SimpleNamespace, loss: Loss, objective: Objective | None) -> bool:
    """With --train.skip_zero_gradient, where that is exact."""
    every_token = (args.actor.entropy_coef, args.algo.kl.init_coef > 0, args.algo.real.kl_old_coef)
    if not args.train.skip_zero_gradient or any(every_token) or args.actor.aux_loss_coef > 1e-8:  # upstream's bound
        return False
    if loss == "scores":
        return True
    return (
        (objective is None or objective.two_sides)  # another may give weights to tokens of advantage 0
        and args.train.batching == "whole_groups"
        and args.algo.advantage.estimator in CENTRED  # others centre over more than a prompt's rollouts
    )
