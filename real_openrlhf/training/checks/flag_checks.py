"""Checks of a command line's flags: unknown ones, wrong values, and flags that contradict each other."""

import difflib
from collections.abc import Iterator

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.old_names import current_flag, current_value
from real_openrlhf.hooks.refusals import ABOVE_ZERO, batch_problems, not_above_zero
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.run_flags import DERIVED, RunFlags
from real_openrlhf.training.checks.findings import Line

# Names of OpenRLHF before 0.11, TRL and verl -> ours. The last part of a verl key is looked up too.
OLD_NAMES = {
    name: flag
    for flag, names in {
        "--actor.adam.lr": "learning_rate lr actor.lr actor_learning_rate actor.learning_rate actor.optim.lr",
        "--critic.adam.lr": "critic_learning_rate critic.learning_rate critic.lr",
        "--actor.model_name_or_path": "pretrain model_name_or_path model_name actor_rollout_ref.model.path model.path",
        "--data.prompt_dataset": "prompt_data dataset_name train_dataset data.train_files",
        "--eval.dataset": "eval_dataset data.val_files",
        "--data.input_key": "input_key data.prompt_key",
        "--data.label_key": "label_key",
        "--data.max_len": "max_len max_length",
        "--data.max_samples": "max_samples",
        "--rollout.n_samples_per_prompt": "num_generations n_samples n_samples_per_prompt rollout.n group_size",
        "--rollout.batch_size": "rollout_batch_size data.train_batch_size",
        "--rollout.max_new_tokens": "generate_max_len max_completion_length data.max_response_length max_new_tokens",
        "--rollout.temperature": "temperature",
        "--rollout.top_p": "top_p",
        "--algo.kl.init_coef": "beta kl_coef init_kl_coef actor.kl_loss_coef",
        "--train.batch_size": "train_batch_size actor.ppo_mini_batch_size mini_batch_size",
        "--train.micro_batch_size": "micro_train_batch_size per_device_train_batch_size micro_batch_size",
        "--rollout.micro_batch_size": "micro_rollout_batch_size",
        "--train.max_epochs": "max_epochs num_iterations ppo_epochs",
        "--train.num_episodes": "num_episodes num_train_epochs trainer.total_epochs",
        "--reward.remote_url": "remote_rm_url reward_funcs reward_func custom_reward_function.path",
        "--ckpt.output_dir": "save_path output_dir",
        "--ckpt.save_steps": "save_steps",
        "--ds.zero_stage": "zero_stage",
        "--logger.wandb.key": "use_wandb",
        "--actor.eps_clip": "eps_clip epsilon clip_ratio",
        "--actor.lr_scheduler": "lr_scheduler lr_scheduler_type",
    }.items()
    for name in names.split()
}


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
        if flag in removed and flag in ours:
            yield flag, f"--no-{flag.removeprefix('--')}: {flag} is an option of this command. Leave it out."
        elif flag not in actions:
            old = OLD_NAMES.get(flag[2:].replace("-", "_"))
            near = [old] if old else difflib.get_close_matches(flag, [*actions, *ours], n=1, cutoff=0.6)
            hint = f"Did you mean {near[0]}?" if near else "`real-openrlhf train --help` says where they are listed."
            yield flag, f"unknown flag {flag}. {hint}"
        elif flag in flags.settings and flags.settings[flag].origin != DERIVED:  # a derived one is wrong by its source
            _, error = openrlhf_parser.parsed(parser.parse_args, flags.typed(flag))
            if error:
                switch = " It is a switch: give it no value." if actions[flag].nargs == 0 else ""
                yield flag, f"{flag} {flags.text(flag)}: {error.removeprefix(f'argument {flag}: ')}.{switch}"
            elif flag in ABOVE_ZERO and (wrong := not_above_zero(flag, flags.settings[flag].words)):
                yield flag, wrong


def combination(flags: RunFlags) -> Iterator[str]:
    """Notes on the combined flags. Raises all objections of REAL's checks, or the first one of OpenRLHF's."""
    from real_openrlhf.hooks.settings import zero_gradient_note

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
    they = "rollouts without a gradient (ungraded ones, prompts whose responses are all correct or all incorrect)"
    yield Line(f"{they}: {zero_gradient_note(args)}")


LOSS = "--actor.policy_loss_type"


def chosen_loss(flags: RunFlags) -> Iterator[str]:
    """The run is named after its method, so another method's loss needs that method's name."""
    for flag, before, after in flags.changes:
        if flag == LOSS and before is not None and after is not None:
            of_it = [name for name, algorithm in ALGORITHMS.items() if algorithm.settings[LOSS].words == after.words]
            if of_it:
                yield f"{LOSS} {after.text}: the method chooses it, {before.text} here. Use --algo {of_it[0]}."


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
