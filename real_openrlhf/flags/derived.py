"""What follows from a run's arguments and is none of them: `args.derived`, made once by `arguments.complete`.

Commands before a start, the controller and every rank read it. Plain values only, because Ray sends them to every
process.
"""

import contextlib
from dataclasses import dataclass
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import Objective, against_sampler, find, given_settings

CENTRED = ("group_norm", "rloo", "dr_grpo")  # advantages of a uniform group are 0, and depend on no other group
ESTIMATORS = (*CENTRED, "reinforce_baseline")  # of whole groups


@dataclass(frozen=True)
class Layout:
    """The processes of a run and their GPUs."""

    nodes: int  # of the policy
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
    score: str | None  # of the objective, one of `formulas.SCORES`; None for losses of tokens
    reference: bool  # a reference model is started: by upstream's rule, or because the objective scores against it
    reads_old: bool  # somebody reads recomputed old log-probabilities: not a score against vLLM, but a KL
    in_waves: bool  # graphs are kept while ranks exchange scores
    skips: bool  # rollouts without a gradient are left out
    threshold: float  # a score above it is correct
    logprobs_mode: str | None  # of the distribution that vLLM samples from, if somebody reads its log-probabilities


def objective_of(args: SimpleNamespace) -> Objective | None:
    """What --actor.policy_loss_type real trains with; None for OpenRLHF's losses, or if there is no such objective."""
    with contextlib.suppress(ValueError):  # `refusals` reports it
        return find(args.algo.real.objective) if args.actor.policy_loss_type == "real" else None
    return None


def derive(args: SimpleNamespace) -> Derived:
    """From complete arguments."""
    real, kl, objective = args.algo.real, args.algo.kl, objective_of(args)
    threshold, score = real.label_threshold, _score(args, objective)
    reference = kl.init_coef > 0 or (objective is not None and objective.needs_reference)
    read = args.rollout.mismatch != "off" or args.algo.advantage.is_correction_level != "off"
    has_kl = bool(real.kl_old_coef) or (kl.use_loss and kl.init_coef > 0)
    return Derived(
        layout=_layout(args, reference),
        whole_groups=args.train.batching == "whole_groups",
        score=score,
        reference=reference,
        reads_old=score is None or has_kl or not against_sampler(score),
        in_waves=score is not None and real.max_live_micro_batches != "0",
        skips=_skips(args, objective),
        threshold=0.5 if threshold is None else threshold,
        logprobs_mode="processed_logprobs" if read else None,
    )


def _layout(args: SimpleNamespace, reference: bool) -> Layout:
    actor, train, vllm = args.actor, args.train, args.vllm
    ranks = actor.num_nodes * actor.num_gpus_per_node
    colocated = train.colocate_all and not train.async_enable
    beside = train.colocate_all or train.colocate_actor_ref or not reference
    return Layout(
        nodes=actor.num_nodes,
        ranks=ranks,
        data_parallel=max(ranks // args.ds.ring_attn_size // args.ds.tensor_parallel_size, 1),
        colocated=colocated,
        engine_gpus=0 if colocated else (vllm.num_engines or 0) * vllm.tensor_parallel_size,
        reference_gpus=0 if beside else args.ref.num_nodes * args.ref.num_gpus_per_node,
    )


def _score(args: SimpleNamespace, objective: Objective | None) -> str | None:
    if objective is None or objective.of_tokens:
        return None
    with contextlib.suppress(ValueError):  # of a bad --algo.real.set
        return str(objective.constants(given_settings(args.algo.real)).get("score", objective.score))
    return objective.score


def _skips(args: SimpleNamespace, objective: Objective | None) -> bool:
    """With --train.skip_zero_gradient, where that is exact."""
    every_token = (args.actor.entropy_coef, args.algo.kl.init_coef > 0, args.algo.real.kl_old_coef)
    if not args.train.skip_zero_gradient or any(every_token) or args.actor.aux_loss_coef > 1e-8:  # upstream's bound
        return False
    if objective and not objective.of_tokens:
        return True
    by_length = args.reward.overlong_buffer_len, args.reward.stop_properly_penalty_coef
    return (
        (objective is None or objective.two_sides)  # another may give weights to tokens of advantage 0
        and args.train.batching == "whole_groups"
        and args.algo.advantage.estimator in CENTRED  # others centre over more than a prompt's rollouts
        and by_length == (None, None)
    )
