"""REAL's flags in OpenRLHF's parser, and the refusal of combinations that make no sense, before anything is loaded."""

import argparse
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace

from real_openrlhf.algorithm.scoring import step_before_gradient
from real_openrlhf.errors import UserError

# Settings that only some objectives read.
READ_BY = {
    "bce_reduction": ("bce",),
    "trpa_beta": ("trpa",),
    "disco_kl_coef": ("disco_logl", "disco_lratio"),
    "disco_kl_delta": ("disco_logl", "disco_lratio"),
}


def add(parser: argparse.ArgumentParser) -> None:
    """`--algo.real.*`, and the few flags of a run that OpenRLHF lacks."""
    from real_openrlhf.algorithm.objective import OBJECTIVES  # torch, which the parser's other users can do without

    real = parser.add_argument_group("REAL (Rewards as Labels)", "used with --actor.policy_loss_type real")
    real.add_argument(
        "--algo.real.objective",
        default="real",
        choices=list(OBJECTIVES),
        help="formula over the group's scores: real (paper, Eq. REAL), no_anchor (Eq. vanilla), bce (Eq. BCE), constant "
        "(control: REAL's weights frozen at score 0), trpa, disco_logl, disco_lratio (default: real)",
    )
    real.add_argument(
        "--algo.real.tau",
        type=float,
        default=None,
        metavar="FLOAT",
        help="temperature of the scores, no unit; the weight of a rollout is below 1/tau (paper: 0.5 everywhere, 0.1 "
        "collapses early; default: 0.5, for disco_logl 10, for disco_lratio 1)",
    )
    real.add_argument(
        "--algo.real.uniform_groups",
        default="drop",
        choices=["drop", "keep"],
        help="prompts whose rollouts are all right or all wrong: drop = loss 0, still counted in the mean, as in the "
        "authors' code; keep = the paper's equation taken literally (default: drop)",
    )
    real.add_argument(
        "--algo.real.bce_reduction",
        default="sum",
        choices=["sum", "mean"],
        help="bce only: sum over a group, as in the paper's Eq. BCE, or mean over all valid rollouts, as in the authors' "
        "code (default: sum)",
    )
    real.add_argument(
        "--algo.real.scoring",
        default="auto",
        choices=["auto", "micro_batch", "deferred", "separate"],
        help="how a group's scores are known before its weights, all with the same gradient: whole groups inside a "
        "micro-batch; deferred backward (keeps the step's graphs); a separate forward without gradient (least memory); "
        "auto picks by a memory estimate and says what it chose (default: auto)",
    )
    real.add_argument(
        "--algo.real.truncated",
        default="negative",
        choices=["negative", "ignore"],
        help="rollouts cut at the length limit and not right: negative, as in the authors' code, or ignored (default: "
        "negative)",
    )
    real.add_argument(
        "--algo.real.label_threshold",
        type=float,
        default=None,
        metavar="FLOAT",
        help="a score above this is positive, else negative; without it scores other than 0 and 1 are refused (paper: "
        "scores are 0 or 1; default: none)",
    )
    real.add_argument(
        "--algo.real.kl_old_coef",
        type=float,
        default=0.0,
        metavar="FLOAT",
        help="coefficient of a KL loss to the old policy, k3, mean over tokens (paper, ablation 'KL w/ old policy', no "
        "value given; TRPA: 0.001; default: 0)",
    )
    real.add_argument(
        "--algo.real.trpa_beta",
        type=float,
        default=0.1,
        metavar="FLOAT",
        help="trpa only: factor of its score differences, no unit (default: 0.1, as in TRPA's code)",
    )
    real.add_argument(
        "--algo.real.disco_kl_coef",
        type=float,
        default=1000.0,
        metavar="FLOAT",
        help="disco only: coefficient of its squared-hinge KL constraint to the old policy (default: 1000)",
    )
    real.add_argument(
        "--algo.real.disco_kl_delta",
        type=float,
        default=1e-4,
        metavar="FLOAT",
        help="disco only: KL in nats per token up to which the constraint is silent (default: 1e-4)",
    )

    run = parser.add_argument_group("the run", "for every algorithm")
    run.add_argument(
        "--train.max_steps", type=int, default=0, metavar="N", help="end after N rollout steps (default: 0 = all data)"
    )
    run.add_argument(
        "--train.run_dir", default=None, metavar="DIR", help="write DIR/metrics.jsonl, one line a step (default: none)"
    )
    run.add_argument(
        "--rollout.seeded",
        action="store_true",
        help="give every sample a seed made of --train.seed, its prompt and its index, so that runs with one seed draw "
        "the same rollouts; vLLM then samples request by request, which is slower (default: off)",
    )
    run.add_argument(
        "--ds.logit_free",
        action="store_true",
        help="policy and reference: log-probabilities and entropies straight from the head, without a table of logits "
        "(tokens x vocabulary); the first batch is checked against the model's own logits (default: off, as upstream)",
    )
    run.add_argument(
        "--ds.head_dtype",
        default=None,
        choices=["fp32", "model"],
        help="with --ds.logit_free: logits in fp32, or first rounded to the model's format (default: fp32)",
    )
    run.add_argument(
        "--eval.at_start", action="store_true", help="evaluate before the first step (default: off, as upstream)"
    )
    run.add_argument("--eval.at_end", action="store_true", help="evaluate after the last step (default: off)")

    # The defaults of these two depend on the algorithm: see `resolve`.
    parser.set_defaults(**{"algo.kl.init_coef": None, "algo.advantage.estimator": None})


def resolve(args: SimpleNamespace) -> SimpleNamespace:
    """Defaults that depend on the algorithm (upstream's own for ppo and gspo), then REAL's checks."""
    real = args.actor.policy_loss_type == "real"
    if args.train.max_steps < 0:
        raise UserError(
            f"--train.max_steps {args.train.max_steps} is negative. Use a number of steps, or 0 for all data"
        )
    if args.ds.logit_free and args.ds.tensor_parallel_size > 1:
        raise UserError(
            "--ds.logit_free needs the head in one piece. Use --ds.tensor_parallel_size 1, or leave it out"
        )
    if args.ds.head_dtype and not args.ds.logit_free:
        raise UserError(
            f"--ds.head_dtype {args.ds.head_dtype} is read by --ds.logit_free only. Add it, or leave this out"
        )
    if args.algo.kl.init_coef is None:
        args.algo.kl.init_coef = 0.0 if real else 0.01
    if args.algo.advantage.estimator is None:
        args.algo.advantage.estimator = "group_norm" if real else "gae"
    if real:
        wrong = problems(args)
        if wrong:
            raise UserError(" | ".join(wrong))
        if args.algo.real.objective == "trpa":
            args.algo.kl.use_loss = True  # keeps the reference's log-probabilities, which trpa's scores are made of
    # Whether a reference model is started: upstream's rule, and for objectives that score against it.
    args.algo.real.reference = args.algo.kl.init_coef > 0 or (real and args.algo.real.objective == "trpa")
    return args


def problems(args: SimpleNamespace) -> list[str]:
    """What does not go together with `--actor.policy_loss_type real`: what, why, and the fix."""
    real, train = args.algo.real, args.train
    samples = args.rollout.n_samples_per_prompt
    group, micro = max(samples, 1), max(train.micro_batch_size, 1)  # so that what follows a wrong one can be computed
    rollout = args.rollout.batch_size * group
    ranks = (
        args.actor.num_nodes * args.actor.num_gpus_per_node // args.ds.ring_attn_size // args.ds.tensor_parallel_size
    )
    found = []

    def refuse(condition, message: str) -> None:
        if condition:
            found.append(message)

    refuse(
        args.algo.advantage.estimator == "gae",
        "REAL has no value function, but --algo.advantage.estimator gae would start a critic. "
        "Use --algo.advantage.estimator group_norm, or leave the flag out (REAL makes no advantages)",
    )
    refuse(
        not args.reward.remote_url and not train.agent_func_path,
        "REAL's labels are the `scores` of a reward function, and there is none. Give --reward.remote_url FILE.py, for "
        "example real_openrlhf/rewards/math_reward.py (a reward model's scalar is no label)",
    )
    for flag, value in (
        ("overlong_buffer_len", args.reward.overlong_buffer_len),
        ("stop_properly_penalty_coef", args.reward.stop_properly_penalty_coef),
    ):
        refuse(
            value is not None,
            f"--reward.{flag} {value} changes a reward by its length, and REAL's labels are made before that. Leave it "
            "out; --algo.real.truncated says what a rollout cut at the limit counts as",
        )

    refuse(
        samples < 2,
        f"--rollout.n_samples_per_prompt {samples}: a group of one has nothing to classify. Use 8, as the paper does",
    )
    refuse(
        train.batch_size < 1 or train.batch_size % group,
        f"--train.batch_size {train.batch_size} (samples) does not hold whole groups of "
        f"--rollout.n_samples_per_prompt {group}. Use a multiple of {group}, for example "
        f"{max(1, round(train.batch_size / group)) * group}",
    )
    refuse(
        train.batch_size > rollout,
        f"--train.batch_size {train.batch_size} is more than a rollout of --rollout.batch_size "
        f"{args.rollout.batch_size} x --rollout.n_samples_per_prompt {group} = {rollout} samples. Use {rollout} or less",
    )
    refuse(train.micro_batch_size < 1, f"--train.micro_batch_size {train.micro_batch_size}: use 1 or more")
    refuse(
        not train.dynamic_batch_enable and train.batch_size % (micro * ranks),
        f"--train.batch_size {train.batch_size} is not a multiple of --train.micro_batch_size {micro} x {ranks} ranks. "
        "Change one of them, or use --train.dynamic_batch_enable",
    )
    refuse(
        train.dynamic_batch_enable and train.batch_size < ranks,
        f"--train.batch_size {train.batch_size} gives no sample to some of the {ranks} ranks. Use fewer ranks "
        "(--actor.num_gpus_per_node) or a larger batch",
    )

    refuse(
        args.actor.dual_clip is not None,
        "--actor.dual_clip clips a PPO ratio; REAL has none to clip (its weights are bounded by 1/tau). Leave it out",
    )
    refuse(
        args.algo.advantage.is_correction_level != "off",
        f"--algo.advantage.is_correction_level {args.algo.advantage.is_correction_level} reweights PPO's token ratios; "
        "REAL's loss has none. Use --algo.advantage.is_correction_level off",
    )
    refuse(
        args.algo.kl.init_coef > 0 and not args.algo.kl.use_loss,
        f"--algo.kl.init_coef {args.algo.kl.init_coef:g} without --algo.kl.use_loss puts the KL into a reward, which REAL "
        "uses as a label only. Use --algo.kl.init_coef 0 (the paper), or add --algo.kl.use_loss --algo.kl.estimator k3",
    )
    refuse(
        args.ds.lora.dropout > 0,
        f"--ds.lora.dropout {args.ds.lora.dropout:g} makes two forwards of one rollout differ, so its score would not be "
        "the one it is weighed by. Use --ds.lora.dropout 0",
    )
    refuse(
        args.algo.dynamic_filtering_enable and real.uniform_groups == "keep",
        "--algo.dynamic_filtering_enable removes the groups that --algo.real.uniform_groups keep is about. Use one of them",
    )
    refuse(
        args.ds.zero_stage not in (1, 2, 3),
        f"--ds.zero_stage {args.ds.zero_stage}: REAL's trainer needs ZeRO stage 1, 2 or 3. Use --ds.zero_stage 2",
    )
    refuse(
        train.enable_ema and args.ds.zero_stage == 3,
        "--train.enable_ema with --ds.zero_stage 3: OpenRLHF 0.11.2 does not write the average back (its pull request "
        "1357), so the saved model would be the untrained one. Use --ds.zero_stage 2, or leave --train.enable_ema out",
    )
    refuse(
        args.ds.ring_attn_size > 1 or args.data.max_images_per_prompt > 0,
        "REAL's trainer does not support ring attention or image inputs. Use --ds.ring_attn_size 1 and text prompts",
    )

    refuse(
        real.tau is not None and not 0 < real.tau < math.inf,
        f"--algo.real.tau {real.tau}: it must be a positive number. Use 0.5, as the paper does",
    )
    refuse(
        not 0 < real.trpa_beta < math.inf,
        f"--algo.real.trpa_beta {real.trpa_beta}: it must be a positive number. Use 0.1",
    )
    for flag, value in (
        ("algo.kl.init_coef", args.algo.kl.init_coef),
        ("algo.real.kl_old_coef", real.kl_old_coef),
        ("algo.real.disco_kl_coef", real.disco_kl_coef),
        ("algo.real.disco_kl_delta", real.disco_kl_delta),
    ):
        refuse(
            not 0 <= value < math.inf,
            f"--{flag} {value}: a KL term with it would push the policy away. Use 0 or more",
        )
    refuse(
        real.label_threshold is not None and not math.isfinite(real.label_threshold),
        f"--algo.real.label_threshold {real.label_threshold}: no score, or every score, is above it. Use a number between "
        "the scores of wrong and right answers",
    )
    refuse(
        real.objective == "trpa" and real.tau is not None,
        "--algo.real.tau is not read by --algo.real.objective trpa, whose scale is --algo.real.trpa_beta. Leave it out",
    )
    for name, readers in READ_BY.items():
        refuse(
            real.objective not in readers and getattr(real, name) != _default(name),
            f"--algo.real.{name} {getattr(real, name)} is read by {' and '.join(readers)} only, not by "
            f"--algo.real.objective {real.objective}. Leave it out",
        )
    if real.scoring == "micro_batch":
        refuse(
            not train.dynamic_batch_enable and micro < group,
            f"--algo.real.scoring micro_batch needs whole groups of {group} in a micro-batch, but "
            f"--train.micro_batch_size is {micro}. Use --train.micro_batch_size {group} or --algo.real.scoring auto",
        )
        refuse(
            train.batch_size // group < ranks,
            f"--algo.real.scoring micro_batch gives each of {ranks} ranks whole groups, but an optimizer step has "
            f"{train.batch_size // group}. Use --algo.real.scoring auto",
        )
        refuse(
            step_before_gradient(real),
            f"--algo.real.scoring micro_batch knows a group's scores only in its own forward, but the KL constraint of "
            f"{real.objective} needs the whole step's before any gradient. Use --algo.real.scoring auto",
        )
    return found


def _default(name: str):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.get_default(f"algo.real.{name}")


def or_exit(parse: Callable[[], SimpleNamespace]) -> SimpleNamespace:
    """For the training script: a refused combination is one line on standard error and exit code 2."""
    try:
        return parse()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
