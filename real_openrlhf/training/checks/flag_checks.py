"""Checks of a command line's flags: unknown ones, wrong values, and flags that contradict each other."""

import argparse
import difflib
from collections.abc import Iterator

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import whole
from real_openrlhf.hooks.flags.refusals import BOUNDS, batch_problems, out_of_bounds
from real_openrlhf.hooks.messages.settings import dealt, estimator_of
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import DERIVED, USER, Plan
from real_openrlhf.training.checks.findings import Note


def split_flags(words: list[str]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """(flags with their words, flags to remove) from the words for OpenRLHF; `--no-FLAG` removes a flag.

    Of two words about one flag the last one counts.
    """
    flags: dict[str, tuple[str, ...] | None] = {}  # None: removed
    current = None
    for word in words:
        if word.startswith("--no-"):
            flags["--" + word.removeprefix("--no-")] = current = None
        elif word.startswith("--"):
            current, equals, value = word.partition("=")
            flags[current] = (value,) if equals else ()
        elif current is None:
            raise UserError(f"{word!r} follows no flag that takes it. Flags start with two dashes.")
        else:
            flags[current] = (*(flags[current] or ()), word)
    removed = [flag for flag, values in flags.items() if values is None]
    return {flag: values for flag, values in flags.items() if values is not None}, removed


def flag_problems(plan: Plan, removed: list[str], ours: list[str]) -> Iterator[tuple[str, str]]:
    """(flag, message) of unknown flags, with the most similar known one, and for values that cannot be right."""
    parser = openrlhf_parser.functions().build_parser()
    actions = parser._option_string_actions
    for flag in [*plan.flags, *removed]:
        if flag in removed and flag in ours:
            yield flag, f"--no-{flag.removeprefix('--')}: {flag} is an option of this command. Leave it out."
        elif flag not in actions:
            same_end = [known for known in plan.flags if known in actions and _is_short(flag, known)]
            near = same_end or difflib.get_close_matches(flag, [*actions, *ours], n=1, cutoff=0.6)
            hint = f"Did you mean {near[0]}?" if near else "`real-openrlhf train --help` says where they are listed."
            yield flag, f"unknown flag {flag}. {hint}"
        elif flag in plan.flags and plan.flags[flag].origin != DERIVED:  # a derived flag is wrong if its source is
            _, error = openrlhf_parser.parsed(parser.parse_args, plan.typed(flag))
            if error:
                reason = error.removeprefix(f"argument {flag}: ").partition(" (choose")[0]
                yield flag, f"{flag} {plan.text(flag)}: {reason}. {_takes(actions[flag])}"
            elif flag in BOUNDS and (wrong := out_of_bounds(flag, plan.flags[flag].words)):
                yield flag, wrong


def _is_short(flag: str, known: str) -> bool:
    """--lr and --actor.lr are short for --actor.adam.lr."""
    first, _, last = flag[2:].rpartition(".")
    return known.endswith(f".{last}") and known.startswith(f"--{first}")


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "It is a switch: give it no value."
    if action.choices:
        return f"Choose one of {', '.join(map(str, action.choices))}."
    kind = "whole number" if action.type in (int, whole) else "number" if action.type is float else "value"
    return f"Give it {action.nargs} {kind}s." if isinstance(action.nargs, int) else f"Give it a {kind}."


def combination(plan: Plan) -> str:
    """A note on the combined flags. Raises all objections of REAL's checks, or the first one of OpenRLHF's."""
    from real_openrlhf.hooks.messages.settings import weightless_note

    try:
        args, refusal = openrlhf_parser.parsed(openrlhf_parser.functions().parse_args, plan.argv())
    except UserError:
        raise
    except AssertionError as error:
        raise UserError(f"OpenRLHF refuses this combination: {error}") from error
    except Exception as error:  # OpenRLHF's checks crash where a flag is missing
        failed = f"OpenRLHF's own checks fail on this combination ({type(error).__name__}: {error})"
        raise UserError(f"{failed}. Look at the flags under `changed by you`.") from error
    if refusal:
        raise UserError(refusal)
    they = "rollouts without a gradient (ignored ones, prompts that are all right or all wrong)"
    return f"{they}: {weightless_note(args)}. The estimates assume that there are none"


# Of --algo.real.*: what every method reads under --train.deal groups, and what only the objectives over groups read.
OF_ALL = ("label_threshold", "truncated", "kl_old_coef")
READERS = {  # the estimators that read a flag, in OpenRLHF's experience maker
    "--algo.advantage.gamma": ("gae", "reinforce"),
    "--algo.advantage.lambd": ("gae",),
    "--algo.advantage.no_std_norm": ("gae", "reinforce", "reinforce_baseline"),
}
LOSS, CLIP, CLIPS = "--actor.policy_loss_type", "--actor.eps_clip", "--actor.eps_clip_low_high"


def unread(plan: Plan) -> Iterator[str]:
    """Notes on flags of yours that the run does not read; of two flags for one thing, a refusal of the other one."""
    not_read = unread_flags(plan)
    if CLIPS in plan.flags and CLIP in plan.flags and CLIP not in not_read and plan.flags[CLIP].origin == USER:
        actor, both = plan.args.actor, " ".join([plan.text(CLIP)] * 2)
        if {*actor.eps_clip_low_high} != {actor.eps_clip}:
            yield f"{CLIP} {plan.text(CLIP)} is not read, as {CLIPS} {plan.text(CLIPS)} is set. Give {CLIPS} {both}."
    for flag, why in not_read.items():
        yield Note(f"{flag} {plan.text(flag)} is not read: {why}")


def unread_flags(plan: Plan) -> dict[str, str]:
    """{flag of yours: why nothing reads it}; `compare` trains plans once that differ in these only."""
    yours = [flag for flag, setting in plan.flags.items() if setting.origin == USER]
    return {flag: why for flag in yours if (why := _why_unread(flag, plan))}


def _why_unread(flag: str, plan: Plan) -> str | None:
    args = plan.args
    loss, optim, deal, estimator = args.actor.policy_loss_type, args.actor.optim, dealt(args), estimator_of(args)
    without = f"{LOSS} {loss}" + ("" if deal == "groups" else " with --train.deal upstream") + " trains without it"
    if flag.startswith("--algo.real."):
        read = {f"--algo.real.{name}" for name in OF_ALL} if deal == "groups" else {"--algo.real.label_threshold"}
        return without if loss != "real" and flag not in read else None
    if flag in (CLIP, CLIPS):
        return without if loss == "real" else None
    if flag.startswith("--algo.advantage.") and plan.objective is not None and not plan.objective.of_tokens:
        return without
    if estimator not in READERS.get(flag, (estimator,)):
        return f"--algo.advantage.estimator {estimator} has no use for it"
    if flag.startswith("--critic.") and estimator != "gae":
        return f"--algo.advantage.estimator {estimator} has no critic"
    if flag.startswith("--actor.muon.") and optim != "muon":
        return f"--actor.optim is {optim}"
    return None


def chosen_loss(plan: Plan) -> Iterator[str]:
    """The run is named after its method, so another method's loss needs that method's name."""
    for flag, before, after in plan.changes:
        if flag == LOSS and before is not None and after is not None:
            of_it = [name for name, algorithm in ALGORITHMS.items() if algorithm.settings[LOSS].words == after.words]
            if of_it:
                yield f"{LOSS} {after.text}: the method chooses it, {before.text} here. Use --algo {of_it[0]}."


def size_problems(plan: Plan) -> Iterator[str]:
    """A micro-batch by tokens must hold the longest sample; and OpenRLHF would drop the rest of an uneven rollout."""
    if plan.args.train.deal == "upstream" and plan.args.actor.policy_loss_type in ("ppo", "gspo"):
        yield from batch_problems(plan.args)  # with --train.deal groups REAL's own checks report that
    longest = plan.args.data.max_len
    for flag in ("--train.max_tokens_per_gpu", "--rollout.max_tokens_per_gpu"):
        if plan.args.train.dynamic_batch_enable and flag in plan.flags and plan.number(flag) < longest:
            yield f"{flag} {plan.number(flag)} cannot hold one sample of --data.max_len {longest}. Give at least that."
