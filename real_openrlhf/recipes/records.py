"""A run's flags on the terminal and in run.json, and whether a finished run has the same flags."""

import sys
from collections.abc import Mapping
from pathlib import Path

from real_openrlhf.recipes.plan import Plan
from real_openrlhf.recipes.setting import USER, Setting
from real_openrlhf.runs import run_folder

SECRET, HIDDEN = "--logger.wandb.key", "***"
# Where a run is and how it was continued; these may differ between runs of one setting.
PLACES = {"--train.run_dir", "--logger.tensorboard_dir", "--ckpt.path", "--ckpt.output_dir", "--ckpt.load_enable"}


def recorded_flags(plan: Plan) -> dict:
    return {flag: HIDDEN if flag == SECRET else run_folder.json_value(s.words) for flag, s in plan.flags.items()}


def flags_of(record: dict) -> dict:
    """A record's flags; {} if it has none (old or foreign record)."""
    flags = record.get("flags")
    return flags if isinstance(flags, dict) else {}


def changed_flags(record: dict, plan: Plan) -> dict[str, tuple]:
    """{flag: (value in the record, value now)} of those that differ, but for places."""
    before, now = flags_of(record), recorded_flags(plan)
    both = {flag: (before.get(flag), now.get(flag)) for flag in sorted({*before, *now} - PLACES)}
    return {flag: (old, new) for flag, (old, new) in both.items() if old != new}


def is_finished(path: Path, plan: Plan) -> bool:
    """Finished, with these flags."""
    record = run_folder.read(path)
    return record["status"] == "finished" and not changed_flags(record, plan)


def typed() -> list[str]:
    """The command line as it was typed, without its secret."""
    words = ["real-openrlhf", *sys.argv[1:]]
    return [HIDDEN if before == SECRET else word for before, word in zip(["", *words], words, strict=False)]


def flag_lines(flags: Mapping[str, Setting]) -> list[str]:
    """One flag a line, in columns: the flag with its words, the origin, the note."""
    words = {flag: f"{flag} {_shown(flag, setting)}".strip() for flag, setting in flags.items()}
    left = min(max(map(len, words.values())), 60)
    middle = max(len(setting.origin) for setting in flags.values())
    return [
        f"{words[flag]:{left}}  {setting.origin:{middle}}  {setting.note}".rstrip() for flag, setting in flags.items()
    ]


def _shown(flag: str, setting: Setting) -> str:
    return HIDDEN if flag == SECRET else setting.text


def in_words(flag: str, setting: Setting | None) -> str:
    if setting is None:
        return "OpenRLHF's default"
    value = _shown(flag, setting) or "on"
    return value if setting.origin == USER else f"{value} ({setting.origin})"
