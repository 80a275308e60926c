"""What the controller and every rank read from the flags, so that both read the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from real_openrlhf.algorithm.formulas import against_sampler, assignments

if TYPE_CHECKING:
    from real_openrlhf.algorithm.objective import ObjectiveSettings


def objective_settings(args: SimpleNamespace) -> ObjectiveSettings:
    from real_openrlhf.algorithm.objective import ObjectiveSettings  # torch, for which a dry run does not wait

    real = args.algo.real
    return ObjectiveSettings(real.objective, real.tau, real.uniform_groups, assignments(real.set))


def reads_old(args: SimpleNamespace, settings: ObjectiveSettings) -> bool:
    """Whether anything reads the recomputed old policy; where vLLM's stands for it, a KL term or a limit may."""
    real, kl = args.algo.real, args.algo.kl
    asked = real.old_log_probs == "always" or real.kl_old_coef or real.mismatch_limit is not None
    return bool(asked or (kl.use_loss and kl.init_coef > 0) or not against_sampler(settings.score))


def threshold_of(args) -> float:
    """The score above which a rollout is right; where none is given, scores are 0 or 1."""
    threshold = args.algo.real.label_threshold
    return 0.5 if threshold is None else threshold


def ranks_of(args: SimpleNamespace) -> int:
    """Data-parallel ranks of the policy."""
    return (
        args.actor.num_nodes * args.actor.num_gpus_per_node // args.ds.ring_attn_size // args.ds.tensor_parallel_size
    )
