"""Refused combinations of flags: each message has the defect, the reason and the fix, before anything is loaded."""

import contextlib
import math
from collections.abc import Iterator
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import (
    FLAGGED,
    OF_THE_BATCH,
    TOKEN_WEIGHTS,
    TokenLoss,
    against_sampler,
    find,
    given_settings,
    readers,
)
from real_openrlhf.base.user_files import file_of
from real_openrlhf.hooks.controller import label_rules, run_log
from real_openrlhf.hooks.messages.settings import ranks_of


def run_problems(args: SimpleNamespace) -> Iterator[str]:
    """Refusals with any loss."""
    train, ds = args.train, args.ds
    if train.hopeless == "end" and train.async_enable:
        yield (
            "--train.hopeless end would have to stop the sampler too, which --train.async_enable has in another "
            "process. Use --train.hopeless fail"
        )
    if train.async_enable and train.colocate_all and args.vllm.enable_sleep:
        yield (
            "--vllm.enable_sleep: with --train.async_enable the engines draw while the policy trains, so they cannot "
            "sleep. Leave it out (--no-vllm.enable_sleep), and count GPUs of their own for them: on eight, --gpus 4"
        )
    if train.enable_ema and ds.zero_stage == 3:
        yield (
            "--train.enable_ema with --ds.zero_stage 3: OpenRLHF 0.11.2 does not write the average back (its pull "
            "request 1357), so the saved model would be the untrained one. Use --ds.zero_stage 2, or leave "
            "--train.enable_ema out"
        )
    if train.deal == "upstream" and args.rollout.mismatch != "off":
        yield (
            f"--rollout.mismatch {args.rollout.mismatch} is measured by the trainer of --train.deal groups. Use that, "
            "or leave --rollout.mismatch out"
        )
    if ds.logit_free and ds.tensor_parallel_size > 1:
        yield "--ds.logit_free needs the head in one piece. Use --ds.tensor_parallel_size 1, or leave it out"
    if ds.share_prompts and (ds.packing_samples or not ds.logit_free):
        yield "--ds.share_prompts needs --ds.logit_free, and no --ds.packing_samples. Add the one, leave the other out"
    if ds.share_prompts and args.data.max_images_per_prompt > 0:
        yield "--ds.share_prompts does not go with images. Leave it or --data.max_images_per_prompt out"
    if ds.share_prompts and args.actor.aux_loss_coef > 1e-8:  # upstream's own bound
        yield "--ds.share_prompts would count prompts once in --actor.aux_loss_coef. Leave one of them out"
    if ds.share_prompts and ds.attn_implementation not in ("sdpa", "eager"):
        yield (
            f"--ds.share_prompts masks attention, which {ds.attn_implementation} does not take. Use "
            "--ds.attn_implementation sdpa, or leave it out"
        )
    if ds.attn_implementation == "flash_attention_torch" and ds.ring_attn_size > 1:
        yield (
            "--ds.attn_implementation flash_attention_torch does not go with --ds.ring_attn_size. Use "
            "flash_attention_2, which ring attention needs"
        )


def problems(args: SimpleNamespace) -> Iterator[str]:
    """Refusals with `--train.deal groups`, for every method, then for its loss."""
    for topic in (_labels, _batches, _machinery, _numbers, _agent, _logger):
        yield from topic(args)
    if args.actor.policy_loss_type == "real":
        for topic in (weighted_problems,) if _of_tokens(args) else (_ppo, _shaping, _exactness):
            yield from topic(args)
        yield from _objective(args)
    elif args.actor.policy_loss_type in TOKEN_WEIGHTS:
        yield from weighted_problems(args)


def weighted_problems(args: SimpleNamespace) -> Iterator[str]:
    """Refuse parts of upstream's loss that REAL, `cispo` and `reinforce` do not have."""
    loss, level = args.actor.policy_loss_type, args.algo.advantage.is_correction_level
    if args.actor.dual_clip is not None:
        yield f"--actor.dual_clip clips PPO's surrogate, and --actor.policy_loss_type {loss} has none. Leave it out"
    if level != "off":
        yield (
            f"--algo.advantage.is_correction_level {level} reweights PPO's token ratios, and --actor.policy_loss_type "
            f"{loss} does not use them. Use --algo.advantage.is_correction_level off"
        )


def _labels(args: SimpleNamespace) -> Iterator[str]:
    reward, threshold = args.reward, args.algo.real.label_threshold
    if not reward.remote_url and not args.train.agent_func_path:
        yield (
            "labels are the `scores` of a reward function, and there is none. Give --reward.remote_url FILE.py, for "
            "example real_openrlhf/rewards/math_reward.py (a reward model's scalar is no label)"
        )
    unread = {"label_threshold": threshold, "truncated": {"ignore": "ignore"}.get(args.algo.real.truncated)}
    for name, value in unread.items() if args.algo.real.labels else ():
        if value is not None:
            yield f"--algo.real.{name} {value} is not read by --algo.real.labels. Leave one of them out"
    if threshold is not None and not math.isfinite(threshold):
        yield (
            f"--algo.real.label_threshold {threshold}: no score, or every score, is above it. Use a number between "
            "the scores of wrong and right answers"
        )
    if args.algo.real.labels:
        yield from label_rules.problems(args.algo.real.labels, _two_sides(args))


def _of_tokens(args: SimpleNamespace) -> bool:
    """Whether advantages are made, and no scores."""
    with contextlib.suppress(ValueError):  # `_objective` reports it
        return args.actor.policy_loss_type != "real" or find(args.algo.real.objective).of_tokens
    return False


def _two_sides(args: SimpleNamespace) -> bool:
    """Whether a group with equal labels trains nothing, as with advantages."""
    if args.actor.policy_loss_type != "real":
        return True
    try:
        return args.algo.real.uniform_groups == "drop" and find(args.algo.real.objective).two_sides
    except ValueError:  # `_objective` reports it
        return False


def _batches(args: SimpleNamespace) -> Iterator[str]:
    train, ranks = args.train, ranks_of(args)
    group, micro = args.rollout.n_samples_per_prompt, train.micro_batch_size
    if micro < 1:
        yield f"--train.micro_batch_size {micro}: use 1 or more"
    elif not train.dynamic_batch_enable and train.batch_size % (micro * ranks):
        yield (
            f"--train.batch_size {train.batch_size} is not a multiple of --train.micro_batch_size {micro} x {ranks} "
            "ranks. Change one of them, or use --train.dynamic_batch_enable"
        )
    if train.dynamic_batch_enable and train.batch_size < ranks:
        yield (
            f"--train.batch_size {train.batch_size} gives no sample to some of the {ranks} ranks. Use fewer ranks "
            "(--actor.num_gpus_per_node) or a larger batch"
        )
    if group < 2:
        yield from _alone(args)
    if group < 1:
        return
    rollout = args.rollout.batch_size * group
    if train.batch_size < 1 or train.batch_size % group:
        yield (
            f"--train.batch_size {train.batch_size} (samples) does not hold whole groups of "
            f"--rollout.n_samples_per_prompt {group}. Use a multiple of {group}, for example "
            f"{max(1, round(train.batch_size / group)) * group}"
        )
    if train.batch_size > rollout:
        yield (
            f"--train.batch_size {train.batch_size} is more than a rollout of --rollout.batch_size "
            f"{args.rollout.batch_size} x --rollout.n_samples_per_prompt {group} = {rollout} samples. Use {rollout} "
            "or less"
        )


def _alone(args: SimpleNamespace) -> Iterator[str]:
    """Refuse one answer a prompt where the method compares a prompt's answers."""
    real, group = args.algo.real, args.rollout.n_samples_per_prompt
    where = f"--rollout.n_samples_per_prompt {group}: "
    if group < 1:
        yield f"{where}use 1 or more"
    elif _of_tokens(args):
        if args.algo.advantage.estimator not in OF_THE_BATCH:
            yield (
                f"{where}--algo.advantage.estimator {args.algo.advantage.estimator} compares a prompt's answers. Use "
                f"{' or '.join(OF_THE_BATCH)}, or 8 answers"
            )
    elif _two_sides(args):
        yield (
            f"{where}--algo.real.uniform_groups drop leaves out a group of one side, and one answer is one side. Use "
            "8, as the paper does, or --algo.real.uniform_groups keep"
        )
    else:
        from real_openrlhf.algorithm import trial
        from real_openrlhf.algorithm.objective import ObjectiveSettings

        with contextlib.suppress(ValueError):  # `_objective` reports it
            if not trial.learns_alone(ObjectiveSettings(real.objective, real.uniform_groups, given_settings(real))):
                yield (
                    f"{where}--algo.real.objective {real.objective} compares a prompt's answers, so one alone has no "
                    "gradient. Use 8, or an objective of one side such as real or bce"
                )


def _ppo(args: SimpleNamespace) -> Iterator[str]:
    """Refuse parts of PPO that REAL does not use."""
    kl = args.algo.kl
    yield from weighted_problems(args)
    if kl.init_coef > 0 and not kl.use_loss:
        yield (
            f"--algo.kl.init_coef {kl.init_coef:g} without --algo.kl.use_loss puts the KL into a reward, which REAL "
            "uses as a label only. Use --algo.kl.init_coef 0 (the paper), or add --algo.kl.use_loss "
            "--algo.kl.estimator k3"
        )


def _shaping(args: SimpleNamespace) -> Iterator[str]:
    """Refuse flags that would change a reward, or choose groups, after labels are made."""
    for flag in ("overlong_buffer_len", "stop_properly_penalty_coef"):
        value = getattr(args.reward, flag)
        if value is not None:
            yield (
                f"--reward.{flag} {value} changes a reward by its length, and REAL's labels are made before that. "
                "Leave it out; --algo.real.truncated says what a rollout cut at the limit counts as"
            )
    if args.algo.dynamic_filtering_enable and args.algo.real.uniform_groups == "keep":
        yield (
            "--algo.dynamic_filtering_enable removes the groups that --algo.real.uniform_groups keep is about. Use "
            "one of them"
        )


def _exactness(args: SimpleNamespace) -> Iterator[str]:
    if args.ds.lora.dropout > 0:
        yield (
            f"--ds.lora.dropout {args.ds.lora.dropout:g} makes two forwards of one rollout differ, so its score would "
            "not be the one it is weighed by. Use --ds.lora.dropout 0"
        )


def _machinery(args: SimpleNamespace) -> Iterator[str]:
    ds = args.ds
    if args.algo.advantage.estimator == "gae":
        yield (
            "--train.deal groups has no critic to deal to, and --algo.advantage.estimator gae starts one. Use another "
            "estimator (group_norm), or --train.deal upstream"
        )
    if args.ref.offload and ds.zero_stage < 3:
        yield (
            f"--ref.offload does nothing with --ds.zero_stage {ds.zero_stage}: DeepSpeed moves weights to the "
            "host under ZeRO-3 only. Use --ds.zero_stage 3, or leave it out"
        )
    if ds.zero_stage not in (1, 2, 3):
        yield f"--ds.zero_stage {ds.zero_stage}: --train.deal groups needs ZeRO stage 1, 2 or 3. Use --ds.zero_stage 2"
    if ds.ring_attn_size > 1 or args.data.max_images_per_prompt > 0:
        yield (
            "--train.deal groups does not support ring attention or image inputs. Use --ds.ring_attn_size 1 and text "
            "prompts"
        )


def _numbers(args: SimpleNamespace) -> Iterator[str]:
    real = args.algo.real
    if real.tau is not None and not 0 < real.tau < math.inf:
        yield f"--algo.real.tau {real.tau}: it must be a positive number. Use 0.5, as the paper does"
    for flag, value in (
        ("algo.kl.init_coef", args.algo.kl.init_coef),
        ("algo.real.kl_old_coef", real.kl_old_coef),
        ("algo.real.disco_kl_coef", real.disco_kl_coef or 0),
        ("algo.real.disco_kl_delta", real.disco_kl_delta or 0),
    ):
        if not 0 <= value < math.inf:
            yield f"--{flag} {value}: a KL term with it would push the policy away. Use 0 or more"
    limit, clip = real.mismatch_limit, real.sampler_clip
    if clip is not None and not 0 < clip < math.inf:
        yield f"--algo.real.sampler_clip {clip}: it must be a positive number. Use 2"
    if limit is not None and not 0 < limit < math.inf:
        yield f"--algo.real.mismatch_limit {limit}: it must be a positive number. Use more than mismatch/rollout_max"
    if limit is not None and args.rollout.mismatch == "off":
        yield (
            f"--algo.real.mismatch_limit {limit:g} needs vLLM's log-probabilities, which --rollout.mismatch off does "
            "without. Leave one of them out"
        )


def _objective(args: SimpleNamespace) -> Iterator[str]:
    """Refuse an objective that does not exist, cannot be trained with, or does not read a flag that is set."""
    real = args.algo.real
    try:
        objective = find(real.objective)
    except ValueError as error:
        yield f"--algo.real.objective {real.objective}: {error}"
        return
    for name in FLAGGED:
        if name in objective.settings or getattr(real, name) is None:
            continue
        reads = " and ".join(f"--algo.real.{one}" for one in FLAGGED if one in objective.settings)
        reads = reads or f"--algo.real.set {' '.join(objective.settings)}".strip()
        yield (
            f"--algo.real.{name} {getattr(real, name)} is not read by --algo.real.objective {real.objective}, "
            f"which reads {reads}. Leave it out, or use an objective that reads it: {', '.join(readers(name))}"
        )
    try:
        given = given_settings(real)
        own = objective.constants({name: value for name, value in given.items() if name not in FLAGGED})
    except ValueError as error:
        yield f"--algo.real.set {' '.join(real.set)}: {error}"
        return
    if objective.of_tokens and real.uniform_groups == "keep":
        yield f"--algo.real.uniform_groups keep is not read by {real.objective}, a loss of tokens. Leave it out"
    if isinstance(objective, TokenLoss) and args.actor.loss_agg_mode not in ("token-mean", objective.mean):
        yield (
            f"--actor.loss_agg_mode {args.actor.loss_agg_mode}: {real.objective} declares the mean {objective.mean}. "
            "Leave the flag out, or change the file"
        )
    score, clip = str(own.get("score", objective.score)), real.sampler_clip
    if clip is not None and (objective.of_tokens or against_sampler(score)):
        has = "has `group.gap`" if objective.of_tokens else f"scores by {score}, which is against vLLM already"
        yield f"--algo.real.sampler_clip {clip:g}: {real.objective} {has}. Leave it out"
    elif clip is not None or against_sampler(score):
        what = f"the score {score}" if clip is None else f"--algo.real.sampler_clip {clip:g}"
        if args.rollout.mismatch == "off":
            yield f"{what} is made of vLLM's log-probabilities. Leave --rollout.mismatch off out"
        if args.rollout.top_p < 1:
            yield (
                f"{what} needs the sampler's own distribution, and --rollout.top_p {args.rollout.top_p:g} cuts and "
                "rescales it. Use --rollout.top_p 1, or leave this out"
            )
    if file_of(real.objective):
        from real_openrlhf.algorithm import trial  # imports torch, only for a formula of the user's own
        from real_openrlhf.algorithm.objective import ObjectiveSettings

        with contextlib.suppress(ValueError):  # a bad setting, which `_numbers` reports
            sampled = args.rollout.mismatch != "off"
            if wrong := trial.problem(ObjectiveSettings(objective, own=given), args.train.max_steps, sampled):
                yield f"--algo.real.objective {real.objective}: {wrong}"


def _agent(args: SimpleNamespace) -> Iterator[str]:
    if path := args.train.agent_func_path:
        from real_openrlhf.hooks.rollout.agents import find_agent  # imports OpenRLHF

        try:
            find_agent(path)
        except ValueError as error:
            yield f"--train.agent_func_path {path}: {error}"


def _logger(args: SimpleNamespace) -> Iterator[str]:
    if args.logger.file:
        yield from run_log.logger_problems(args.logger.file)
