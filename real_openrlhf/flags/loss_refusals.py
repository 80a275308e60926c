"""Refused flags of a loss of ours: parts of PPO that it lacks, and an objective that cannot be trained with."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import TokenLoss, against_sampler
from real_openrlhf.algorithm.settings import ObjectiveSettings, find, given_settings
from real_openrlhf.base.user_files import file_of


def unread_by_real(args: SimpleNamespace) -> Iterator[str]:
    """Refuse parts of PPO that REAL and losses of tokens do not have, and what would change a reward or a score after
    labels are made."""
    loss, level = args.algo.real.objective, args.algo.advantage.is_correction_level
    if args.actor.dual_clip is not None:
        yield f"--actor.dual_clip clips PPO's surrogate, which the loss {loss} does not have. Leave it out"
    if level != "off":
        yield (
            f"--algo.advantage.is_correction_level {level} reweights PPO's token ratios, which the loss {loss} does "
            "not have. Use --algo.advantage.is_correction_level off"
        )
    if args.derived.loss == "tokens":
        return
    for flag in ("overlong_buffer_len", "stop_properly_penalty_coef"):
        value = getattr(args.reward, flag)
        if value is not None:
            yield (
                f"--reward.{flag} {value} changes a reward by its length, and REAL's labels are made before that. "
                "Leave it out; --algo.real.truncated says what a rollout cut at the limit counts as"
            )
    if args.ds.lora.dropout > 0:
        yield (
            f"--ds.lora.dropout {args.ds.lora.dropout:g} makes two forwards of one rollout differ, so its score would "
            "not be the one it is weighed by. Use --ds.lora.dropout 0"
        )


def objective_problems(args: SimpleNamespace) -> Iterator[str]:
    """Refuse an objective that does not exist, cannot be trained with, or does not read a flag that is set."""
    real = args.algo.real
    try:
        objective = find(real.objective)
    except ValueError as error:
        yield f"--algo.real.objective {real.objective}: {error}"
        return
    if real.tau is not None and "tau" not in objective.settings:
        reads = " ".join(("--algo.real.set", *objective.settings)) if objective.settings else "no setting"
        yield (
            f"--algo.real.tau {real.tau} is not read by --algo.real.objective {real.objective}, which reads {reads}. "
            "Leave it out"
        )
    try:
        given = given_settings(real)
        objective.constants({name: value for name, value in given.items() if name != "tau"})
    except ValueError as error:
        yield f"--algo.real.set {' '.join(real.set)}: {error}"
        return
    if isinstance(objective, TokenLoss) and args.actor.loss_agg_mode not in ("token-mean", objective.mean):
        yield (
            f"--actor.loss_agg_mode {args.actor.loss_agg_mode}: {real.objective} declares the mean {objective.mean}. "
            "Leave the flag out, or change the file"
        )
    score, clip = args.derived.score or "", real.tis_cap
    if clip is not None and (objective.of_tokens or against_sampler(score)):
        has = "has `group.gap`" if objective.of_tokens else f"scores by {score}, which is against vLLM already"
        yield f"--algo.real.tis_cap {clip:g}: {real.objective} {has}. Leave it out"
    elif clip is not None or against_sampler(score):
        what = f"the score {score}" if clip is None else f"--algo.real.tis_cap {clip:g}"
        if args.rollout.mismatch == "off":
            yield f"{what} is made of vLLM's log-probabilities. Leave --rollout.mismatch off out"
        if args.rollout.top_p < 1:
            yield (
                f"{what} needs the sampler's own distribution, and --rollout.top_p {args.rollout.top_p:g} cuts and "
                "rescales it. Use --rollout.top_p 1, or leave this out"
            )
    if file_of(real.objective):
        from real_openrlhf.algorithm import validate_objective  # imports torch, only for a formula of the user's own

        with contextlib.suppress(ValueError):  # a bad setting, which `_values` reports
            sampled = args.rollout.mismatch != "off"
            if wrong := validate_objective.objective_problem(
                *(ObjectiveSettings(objective, settings=given), args.train.max_steps, sampled),
                size=args.rollout.n_samples_per_prompt,
            ):
                yield f"--algo.real.objective {real.objective}: {wrong}"
