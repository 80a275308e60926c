"""`--train.skip_weightless`: whether rollouts without a gradient may be left out of training, and which they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from real_openrlhf.algorithm.lookup import find

if TYPE_CHECKING:  # a dry run asks `said`, and does not wait for the stack
    from openrlhf.trainer.ppo_utils.experience import Experience

CENTRED = ("group_norm", "rloo", "dr_grpo")  # advantages of a uniform group are 0, and depend on no other group


def skips(args: SimpleNamespace) -> bool:
    return args.train.skip_weightless and why_all_train(args) is None


def why_all_train(args: SimpleNamespace) -> str | None:
    """Why rollouts of weight 0 must train: the flag that needs them or hides which they are; None if none does."""
    kl, real = args.algo.kl, args.algo.real
    if args.actor.entropy_coef:
        return f"--actor.entropy_coef {args.actor.entropy_coef:g} trains every token"
    if args.actor.aux_loss_coef > 1e-8:  # upstream's own bound
        return f"--actor.aux_loss_coef {args.actor.aux_loss_coef:g} trains the router on every token"
    if kl.init_coef > 0:
        return f"--algo.kl.init_coef {kl.init_coef:g} is a KL to the reference model on every token"
    if args.actor.policy_loss_type == "real":
        if real.kl_old_coef:
            return f"--algo.real.kl_old_coef {real.kl_old_coef:g} is a KL to the old policy on every token"
        if find(real.objective).needs_step_kl and real.disco_kl_coef > 0:
            return f"--algo.real.disco_kl_coef {real.disco_kl_coef:g} is a constraint on every token"
        return None
    if args.train.deal != "groups":
        return "--train.deal upstream deals as released"
    if args.algo.advantage.estimator not in CENTRED:
        return f"--algo.advantage.estimator {args.algo.advantage.estimator} centres over more than a prompt's rollouts"
    for flag in ("overlong_buffer_len", "stop_properly_penalty_coef"):
        if getattr(args.reward, flag) is not None:
            return f"--reward.{flag} changes rewards by length"
    return None


def said(args: SimpleNamespace) -> str:
    """A line for the dry run."""
    if not args.train.skip_weightless:
        return "trained like all others; --train.skip_weightless would leave them out"
    reason = why_all_train(args)
    return f"trained like all others: {reason}" if reason else "left out of training"


def without_advantage(items: list[Experience]) -> frozenset[int]:
    """Rollouts whose advantage is exactly 0 on every token that they trained."""
    return frozenset(
        position
        for position, item in enumerate(items)
        if not bool((item.advantages * item.action_mask.to(item.advantages)).any())
    )
