"""The user's words for flags: split, and those that are wrong by themselves."""

import difflib
from collections.abc import Iterable, Mapping

from real_openrlhf.base.errors import UserError
from real_openrlhf.flags import parser
from real_openrlhf.flags.rules import VALUED, wrong_value

# Options of `train` that are a short name of OpenRLHF's flag; of several the last one counts.
SHORTHANDS = {
    "--model": "--actor.model_name_or_path",
    "--data": "--data.prompt_dataset",
    "--seed": "--train.seed",
    "--max-steps": "--train.max_steps",
    "--gpus": "--actor.num_gpus_per_node",
    "--nodes": "--actor.num_nodes",
}
OPTIONS = [*SHORTHANDS, *"--recipe --algo --dry-run --resume --run-name --runs-dir --data-dir --config".split()]
# Names that end otherwise than ours: of OpenRLHF before 0.11, TRL and verl
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
            flags["--" + word.removeprefix("--no-")] = current = None
        elif word.startswith("--"):
            current, equals, value = word.partition("=")
            flags[current] = (value,) if equals else ()
        elif current is None:
            raise UserError(f"{word!r} follows no flag that takes it. Flags start with two dashes.")
        else:
            flags[current] = (*(flags[current] or ()), word)
    removed = [flag for flag, words in flags.items() if words is None]
    return {flag: words for flag, words in flags.items() if words is not None}, removed


def as_typed(flag: str, words: tuple[str, ...]) -> list[str]:
    """With `=` where argparse would take a value such as -1e-3 for a flag."""
    return [f"{flag}={words[0]}"] if len(words) == 1 and words[0].startswith("-") else [flag, *words]


def wrong_flags(given: Mapping[str, tuple[str, ...]], removed: Iterable[str]) -> dict[str, str]:
    """{flag: what is wrong}: unknown flags, with the most similar known one, and values that cannot be right."""
    wrong = {flag: unknown(flag) for flag in (*given, *removed) if flag not in parser.options()}
    for flag in given.keys() - wrong.keys():
        words, action = given[flag], parser.options()[flag]
        if error := parser.wrong_value(as_typed(flag, words)):
            switch = " It is a switch: give it no value." if action.nargs == 0 else ""
            wrong[flag] = f"{flag} {' '.join(words)}: {error.removeprefix(f'argument {flag}: ')}.{switch}"
        elif (flag in VALUED or action.type is float) and (message := wrong_value(flag, words)):
            wrong[flag] = message
    return {flag: wrong[flag] for flag in (*given, *removed) if flag in wrong}


def unknown(flag: str) -> str:
    known = parser.options()
    ending = [name for name in known if name.endswith(f".{flag[2:]}")]
    same = [name for name in ending if not name.startswith("--eval.") and ".muon." not in name]
    near = difflib.get_close_matches(flag, same or [*known, *OPTIONS], n=1, cutoff=0.0 if same else 0.6)
    other = BY_OTHER_NAME.get(flag.rpartition(".")[2].lstrip("-").replace("-", "_"))
    option = flag.replace("_", "-")  # as in a TOML file
    near = [other] if other else [option] if option in OPTIONS else near
    hint = f"Did you mean {near[0]}?" if near else "`real-openrlhf train --help` says where they are listed."
    if flag in OPTIONS:
        hint = "It is an option of this command: leave it out."
    return f"unknown flag {flag}. {hint}"
