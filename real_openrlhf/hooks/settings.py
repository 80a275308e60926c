"""Settings that the controller and every rank derive from the flags, in one place so that they agree.

No torch or OpenRLHF at the top: a dry run calls `zero_gradient_note` and must not wait for these imports.
"""

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


def batching_of(args: SimpleNamespace) -> str:
    """`--train.batching`; REAL always trains whole groups."""
    return "whole_groups" if args.actor.policy_loss_type == "real" else args.train.batching


def trains_whole_groups(args: SimpleNamespace) -> bool:
    """Whether the experience maker gives each rank its rollouts: OpenRLHF must not sort them by length again."""
    return args.train.batching == "whole_groups"


def estimator_of(args: SimpleNamespace) -> str:
    return args.algo.advantage.estimator or ("group_norm" if args.actor.policy_loss_type == "real" else "gae")


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
    """Whether rollouts without a gradient are left out of training (`--train.skip_zero_gradient`)."""
    return args.train.skip_zero_gradient and why_all_train(args) is None


def why_all_train(args: SimpleNamespace) -> str | None:
    """The flag, with the reason, that makes rollouts of weight 0 train or hides which they are; None if none does."""
    kl, real = args.algo.kl, args.algo.real
    if args.actor.entropy_coef:
        return f"--actor.entropy_coef {args.actor.entropy_coef:g} trains every token"
    if args.actor.aux_loss_coef > 1e-8:  # upstream's own bound
        return f"--actor.aux_loss_coef {args.actor.aux_loss_coef:g} trains the router on every token"
    if kl.init_coef > 0:
        return f"--algo.kl.init_coef {kl.init_coef:g} is a KL to the reference model on every token"
    if real.kl_old_coef:
        return f"--algo.real.kl_old_coef {real.kl_old_coef:g} is a KL to the old policy on every token"
    objective = find(real.objective) if args.actor.policy_loss_type == "real" else None
    if objective and not objective.of_tokens:
        return None
    if objective and not objective.two_sides:
        return f"--algo.real.objective {real.objective} may give weights to tokens of advantage 0"
    if args.train.batching != "whole_groups":
        return "--train.batching upstream trains OpenRLHF's own batches"
    if args.algo.advantage.estimator not in CENTRED:
        return f"--algo.advantage.estimator {args.algo.advantage.estimator} centres over more than a prompt's rollouts"
    for flag in ("overlong_buffer_len", "stop_properly_penalty_coef"):
        if getattr(args.reward, flag) is not None:
            return f"--reward.{flag} changes rewards by length"
    return None


def zero_gradient_note(args: SimpleNamespace) -> str:
    """A line for the dry run: whether rollouts without a gradient train."""
    if not args.train.skip_zero_gradient:
        return "trained like all others; --train.skip_zero_gradient would leave them out"
    reason = why_all_train(args)
    return f"trained like all others: {reason}" if reason else "left out of training"
