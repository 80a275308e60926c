"""Checks of a command line's flags: unknown ones, wrong values, and flags that contradict each other."""

import difflib
from collections.abc import Iterator

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.old_names import current_flag, current_value
from real_openrlhf.hooks.refusals import ABOVE_ZERO, batch_problems, not_above_zero, notes
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.run_flags import DERIVED, RunFlags

# Names of OpenRLHF before 0.11, TRL and verl that end otherwise than ours
OTHER_NAMES = {
    "--actor.adam.lr": "learning_rate actor_learning_rate lr",
    "--actor.model_name_or_path": "pretrain model_name",
    "--actor.eps_clip": "epsilon clip_ratio",
    "--algo.kl.init_coef": "beta kl_coef init_kl_coef kl_loss_coef",
    "--data.prompt_dataset": "prompt_data dataset_name train_files",
    "--reward.remote_url": "remote_rm_url reward_funcs",
    "--rollout.batch_size": "rollout_batch_size",
    "--rollout.max_new_tokens": "generate_max_len max_completion_length max_response_length",
    "--rollout.micro_batch_size": "micro_rollout_batch_size",
    "--rollout.n_samples_per_prompt": "num_generations n_samples group_size",
    "--train.batch_size": "train_batch_size ppo_mini_batch_size mini_batch_size",
    "--train.max_steps": "max_steps",
    "--train.micro_batch_size": "micro_train_batch_size per_device_train_batch_size",
}
BY_OTHER_NAME = {name: flag for flag, names in OTHER_NAMES.items() for name in names.split()}


def split_flags(words: list[str]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """(flags with their words, flags to remove) from the words for OpenRLHF; `--no-FLAG` removes a flag.

    Of two words about one flag the last one counts.
    """
    flags: dict[str, tuple[str, ...] | None] = {}  # None: removed
    current = None
    for word in words:
        if word.startswith("--no-"):
            flags[current_flag("--" + word.removeprefix("--no-"))] = current = None
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            current = current_flag(name)
            flags[current] = (value,) if equals else ()
        elif current is None:
            raise UserError(f"{word!r} follows no flag that takes it. Flags start with two dashes.")
        else:
            flags[current] = (*(flags[current] or ()), word)
    removed = [flag for flag, words in flags.items() if words is None]
    given = {flag: words for flag, words in flags.items() if words is not None}
    return {flag: tuple(current_value(flag, word) for word in words) for flag, words in given.items()}, removed


def flag_problems(flags: RunFlags, removed: list[str], ours: list[str]) -> Iterator[tuple[str, str]]:
    """(flag, message) of unknown flags, with the most similar known one, and for values that cannot be right."""
    parser = openrlhf_parser.functions().build_parser()
    actions = parser._option_string_actions
    for flag in [*flags.settings, *removed]:
        if flag not in actions:
            ending = [name for name in actions if name.endswith(f".{flag[2:]}")]
            same = [name for name in ending if not name.startswith("--eval.") and ".muon." not in name]
            near = difflib.get_close_matches(flag, same or [*actions, *ours], n=1, cutoff=0.0 if same else 0.6)
            other = BY_OTHER_NAME.get(flag.rpartition(".")[2].lstrip("-").replace("-", "_"))
            near = [other] if other else near
            hint = f"Did you mean {near[0]}?" if near else "`real-openrlhf train --help` says where they are listed."
            yield flag, f"unknown flag {flag}. {hint}"
        elif flag in flags.settings and flags.settings[flag].origin != DERIVED:  # a derived one is wrong by its source
            _, error = openrlhf_parser.parsed(parser.parse_args, flags.typed(flag))
            if error:
                switch = " It is a switch: give it no value." if actions[flag].nargs == 0 else ""
                yield flag, f"{flag} {flags.text(flag)}: {error.removeprefix(f'argument {flag}: ')}.{switch}"
            elif flag in ABOVE_ZERO and (wrong := not_above_zero(flag, flags.settings[flag].words)):
                yield flag, wrong


def combination_notes(flags: RunFlags) -> list[str]:
    """Notes on the combined flags. Raises all objections of REAL's checks, or the first one of OpenRLHF's."""
    try:
        args, refusal = openrlhf_parser.parsed(openrlhf_parser.functions().parse_args, flags.argv())
    except UserError:
        raise
    except AssertionError as error:
        raise UserError(f"OpenRLHF refuses this combination: {error}") from error
    except Exception as error:  # OpenRLHF's checks crash where a flag is missing
        failed = f"OpenRLHF's own checks fail on this combination ({type(error).__name__}: {error})"
        raise UserError(f"{failed}. Look at the flags under `changed by you`.") from error
    if refusal:
        raise UserError(refusal)
    return [*notes(args)]


def size_problems(flags: RunFlags) -> Iterator[str]:
    """A micro-batch by tokens must hold the longest sample; and OpenRLHF would drop the rest of an uneven rollout."""
    if flags.args.train.batching == "upstream" and flags.args.actor.policy_loss_type in ("ppo", "gspo"):
        yield from batch_problems(flags.args)  # with --train.batching whole_groups REAL's own checks report that
    longest, response = flags.args.data.max_len, flags.args.rollout.max_new_tokens or 0
    if response >= longest:
        yield (
            f"--rollout.max_new_tokens {response} is not below --data.max_len {longest}, which is of prompt and "
            "response: no prompt would fit. Change one of them."
        )
    for flag in ("--train.max_tokens_per_gpu", "--rollout.max_tokens_per_gpu"):
        if flags.args.train.dynamic_batch_enable and flag in flags.settings and flags.number(flag) < longest:
            yield f"{flag} {flags.number(flag)} cannot hold one sample of --data.max_len {longest}. Give that or more."
