"""Settings that the controller and every rank derive from the flags, in one place so that they agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from real_openrlhf.algorithm.formulas import against_sampler, find, given_settings

if TYPE_CHECKING:
    from real_openrlhf.algorithm.objective import ObjectiveSettings

CENTRED = ("group_norm", "rloo", "dr_grpo")  # advantages of a uniform group are 0, and depend on no other group
ESTIMATORS = (*CENTRED, "reinforce_baseline")  # of whole groups


def loss_settings(args: SimpleNamespace) -> ObjectiveSettings | None:
    """An objective over the scores of a prompt's rollouts, or a loss of each rollout's tokens in the user's file. None
    for OpenRLHF's own losses."""
    from real_openrlhf.algorithm.objective import ObjectiveSettings

    real = args.algo.real
    ours = args.actor.policy_loss_type == "real"
    return ObjectiveSettings(real.objective, real.uniform_groups, given_settings(real)) if ours else None


def objective_settings(args: SimpleNamespace) -> ObjectiveSettings | None:
    """The objective over scores; None for a loss of tokens."""
    settings = loss_settings(args)
    return None if settings is None or settings.objective.of_tokens else settings


def reads_old(args: SimpleNamespace, settings: ObjectiveSettings | None) -> bool:
    """Whether recomputed old log-probabilities are read. A score against vLLM needs none, but a KL does."""
    if settings is None:
        return True
    real, kl = args.algo.real, args.algo.kl
    return bool(real.kl_old_coef or (kl.use_loss and kl.init_coef > 0) or not against_sampler(settings.score))


def trains_whole_groups(args: SimpleNamespace) -> bool:
    """Whether the experience maker gives each rank its rollouts: OpenRLHF must not sort them by length again."""
    return args.train.batching == "whole_groups"


def threshold_of(args) -> float:
    """The score above which a response is correct: the flag's, else 0.5, since scores are then 0 or 1."""
    threshold = args.algo.real.label_threshold
    return 0.5 if threshold is None else threshold


def ranks_of(args: SimpleNamespace) -> int:
    """Data-parallel ranks of the policy."""
    return (
        args.actor.num_nodes * args.actor.num_gpus_per_node // args.ds.ring_attn_size // args.ds.tensor_parallel_size
    )


def skips(args: SimpleNamespace) -> bool:
    """Whether rollouts without a gradient are left out: with --train.skip_zero_gradient, where that is exact."""
    every_token = (args.actor.entropy_coef, args.algo.kl.init_coef > 0, args.algo.real.kl_old_coef)
    if not args.train.skip_zero_gradient or any(every_token) or args.actor.aux_loss_coef > 1e-8:  # upstream's bound
        return False
    objective = find(args.algo.real.objective) if args.actor.policy_loss_type == "real" else None
    if objective and not objective.of_tokens:
        return True
    by_length = args.reward.overlong_buffer_len, args.reward.stop_properly_penalty_coef
    return (
        (objective is None or objective.two_sides)  # another may give weights to tokens of advantage 0
        and args.train.batching == "whole_groups"
        and args.algo.advantage.estimator in CENTRED  # others centre over more than a prompt's rollouts
        and by_length == (None, None)
    )
