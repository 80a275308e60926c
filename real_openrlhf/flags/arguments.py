"""Our flags in OpenRLHF's parser, the defaults that depend on the algorithm, and all checks of a combination."""

import argparse
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import positive, whole
from real_openrlhf.base.user_files import absolute
from real_openrlhf.flags.derived import derive
from real_openrlhf.flags.refusals import problems
from real_openrlhf.flags.rules import needs

# --actor.policy_loss_type: upstream's two losses, and `real` for every objective and loss of tokens of ours.
POLICY_LOSSES = ["ppo", "gspo", "real"]


def _depth(text: str) -> str:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give auto, or a number of micro-batches of 0 or more")
    return text


def add(parser: argparse.ArgumentParser) -> None:
    """`--algo.real.*`, and the few flags of a run that OpenRLHF lacks."""
    for title, add_flags in {"REAL (Rewards as Labels)": _add_real, "the run": _add_run}.items():
        group = parser.add_argument_group(title)
        add_flags(group)
        for action in group._group_actions:
            for what, _ in needs(action.option_strings[0]):
                action.help = f"{action.help}. Needs {what}"
    # The defaults of these two depend on the algorithm: see `complete`.
    parser.set_defaults(**{"algo.kl.init_coef": None, "algo.advantage.estimator": None})


def _add_real(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    objective = (
        f"formula over a prompt's scores: {', '.join(OBJECTIVES)}; or your own, FILE.py:NAME, a function (scores, "
        "groups, settings) -> loss per group, or (log_ratio, advantage, mask, group) -> weight per token (default: "
        "real)"
    )
    tau = (
        "temperature of the scores; the weight of a response stays below 1/tau (paper: 0.5 everywhere, 0.1 collapses "
        "early; default: 0.5)"
    )
    uniform = (
        "prompts whose responses are all correct or all incorrect: zero_loss: they count in the mean with loss 0, as "
        "in the authors' code; keep: the paper's equation taken literally (default: zero_loss)"
    )
    kl_old = (
        "coefficient of a KL loss to the old policy, k3, mean over tokens (paper, ablation 'KL w/ old policy', no "
        "value given; TRPA: 0.001; default: 0)"
    )
    cap = (
        "multiply the weight of a response by its pi_old / pi of vLLM, at most this (truncated importance sampling of "
        "sequences; paper: none; default: none)"
    )
    depth = (
        "most micro-batches of a rank whose graphs are kept while ranks exchange scores. auto: as few as pack nearly "
        "as well as no limit, and fit in memory; 0: none, score first without gradient (default: auto)"
    )
    truncated = (
        "an incorrect response cut at the length limit: negative: it stays incorrect, as in the authors' code; "
        "ignore: it is not trained, and counts as incorrect in metrics (default: negative)"
    )
    threshold = (
        "a score above this is correct, else incorrect; without it REAL refuses scores other than 0 and 1 (paper: "
        "scores are 0 or 1; default: none; 0.5 where labels are for metrics only, as with GRPO or graded rewards)"
    )
    settings = (
        "the objective's own settings: score=log_ratio_rollout scores against vLLM's log-probabilities of the "
        "response, sum_log_ratio_old takes sums over tokens (default: log_ratio_old, the paper's); reduction=mean is "
        "the authors' bce (default: sum); beta of trpa (default: 0.1); those of your file"
    )
    add("--algo.real.objective", default="real", metavar="NAME", help=objective)
    add("--algo.real.tau", type=float, metavar="FLOAT", help=tau)
    add("--algo.real.uniform_groups", default="zero_loss", choices=["zero_loss", "keep"], help=uniform)
    add("--algo.real.kl_old_coef", type=float, default=0.0, metavar="FLOAT", help=kl_old)
    add("--algo.real.tis_cap", type=float, metavar="FLOAT", help=cap)
    add("--algo.real.max_live_micro_batches", default="auto", type=_depth, metavar="auto|N", help=depth)
    add("--algo.real.truncated", default="negative", choices=["negative", "ignore"], help=truncated)
    add("--algo.real.label_threshold", type=float, metavar="FLOAT", help=threshold)
    add("--algo.real.set", nargs="+", metavar="NAME=VALUE", help=settings)


def _add_run(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    rollout_groups = (
        "write N groups of each step into DIR/rollouts.jsonl, which `real-openrlhf show DIR` "
        "prints (default: 2; 0: none)"
    )
    watchdog = (
        "real-openrlhf train ends a run after N minutes in one phase, such as generation or an update (default: 120; "
        "0: never)"
    )
    fused = (
        "compute log-probabilities and entropies without a table of logits (tokens x vocabulary); the first batch is "
        "checked against the model's own logits (default: off)"
    )
    batching = (
        "how responses are assigned to updates. whole_groups: all responses of a prompt together, in an order from "
        "--train.seed, so that every loss trains the same batches; upstream: OpenRLHF's batches, which with token "
        "budgets sort by length and split prompts; not for REAL (default: whole_groups for REAL, else upstream; every "
        "recipe here: whole_groups)"
    )
    skip = (
        "do not train responses whose gradient is exactly 0 (ungraded ones, and prompts that are all correct or all "
        "incorrect); means and denominators still count them. With a KL or an entropy bonus every response trains "
        "(default: off; every recipe here: on)"
    )
    order = (
        "draw and train prompts in an order from --train.seed, so that runs of one seed see the same prompts in the "
        "same step (default: off)"
    )
    seeded = (
        "give every response a seed from --train.seed, its prompt and its index, so that runs of one seed draw the "
        "same responses; includes --rollout.seeded_order. On CPU it is slower (default: off)"
    )
    mismatch = (
        "log how far the policy's log-probabilities are from vLLM's (sampling/*), and warn if rounding cannot explain "
        "it. stop: also end the run if the two are unrelated, except with --train.async_enable (default: stop with "
        "--train.batching whole_groups, else off)"
    )
    at_once = (
        "responses that a vLLM engine draws at once, at most (default: vLLM's, 128 for OpenRLHF's engines; every "
        "recipe here: responses per step / engines, from 128 to 512)"
    )
    steps, run_dir = "end after N rollout steps (default: 0 = all data)", "write DIR/metrics.jsonl, one line per step"
    start, end = "evaluate before the first step (default: off)", "evaluate after the last step"
    add("--train.max_steps", type=whole, default=0, metavar="N", help=steps)
    add("--train.run_dir", metavar="DIR", help=f"{run_dir} (default: none)")
    add("--logger.rollout_groups", type=whole, default=2, metavar="N", help=rollout_groups)
    add("--train.watchdog_minutes", type=float, default=120.0, metavar="N", help=watchdog)
    add("--ds.fused_logprobs", action="store_true", help=fused)
    add("--train.batching", choices=["whole_groups", "upstream"], help=batching)
    add("--train.skip_zero_gradient", action="store_true", help=skip)
    add("--rollout.seeded_order", action="store_true", help=order)
    add("--rollout.seeded", action="store_true", help=seeded)
    add("--rollout.mismatch", choices=["stop", "log", "off"], help=mismatch)
    add("--vllm.max_num_seqs", type=positive, metavar="N", help=at_once)
    add("--eval.at_start", action="store_true", help=start)
    add("--eval.at_end", action="store_true", help=f"{end} (default: off)")


def complete(args: SimpleNamespace) -> SimpleNamespace:
    """Defaults that depend on the algorithm (upstream's own for ppo and gspo), and `args.derived`."""
    real, kl = args.actor.policy_loss_type == "real", args.algo.kl
    args.train.batching = args.train.batching or ("whole_groups" if real else "upstream")
    rollout = args.rollout
    rollout.seeded_order = rollout.seeded_order or rollout.seeded
    if not args.eval.dataset:  # as --no-eval.dataset leaves it
        args.eval.at_start = args.eval.at_end = False
    if rollout.mismatch is None:
        rollout.mismatch = "stop" if args.train.batching == "whole_groups" else "off"
    if rollout.mismatch == "stop" and args.train.async_enable:
        rollout.mismatch = "log"
    if kl.init_coef is None:
        kl.init_coef = 0.0 if real else 0.01
    args.algo.advantage.estimator = args.algo.advantage.estimator or ("group_norm" if real else "gae")
    args.algo.real.objective = absolute(args.algo.real.objective)
    args.derived = derive(args)
    # OpenRLHF keeps a reference's log-probabilities with this flag alone
    kl.use_loss = kl.use_loss or (args.derived.reference and not kl.init_coef)
    return args


def resolve(args: SimpleNamespace) -> SimpleNamespace:
    """Complete arguments, or all objections to them."""
    if wrong := [*problems(complete(args))]:
        raise UserError(*wrong)
    return args
