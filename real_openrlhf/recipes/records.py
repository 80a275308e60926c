"""What run.json keeps of a command, and whether it asks for what is there already."""

import sys
from pathlib import Path

from real_openrlhf.recipes.plan import Plan
from real_openrlhf.runs import run_folder

SECRET, HIDDEN = "--logger.wandb.key", "***"
# Where a run is and how it was continued; these may differ between runs of one setting.
PLACES = {"--train.run_dir", "--logger.tensorboard_dir", "--ckpt.path", "--ckpt.output_dir", "--ckpt.load_enable"}


def recorded_flags(plan: Plan) -> dict:
    return {flag: HIDDEN if flag == SECRET else run_folder.json_value(s.words) for flag, s in plan.flags.items()}


def flags_of(record: dict) -> dict:
    """None of a record that an earlier version, or nobody of ours, wrote."""
    flags = record.get("flags")
    return flags if isinstance(flags, dict) else {}


def is_finished(path: Path, plan: Plan) -> bool:
    """Finished, with these flags."""
    record, now = run_folder.read(path), recorded_flags(plan)
    before = flags_of(record)
    same = all(before.get(flag) == now.get(flag) for flag in {*before, *now} - PLACES)
    return record["status"] == "finished" and same


def typed() -> list[str]:
    """The command line as it was typed, without its secret."""
    words = ["real-openrlhf", *sys.argv[1:]]
    return [HIDDEN if before == SECRET else word for before, word in zip(["", *words], words, strict=False)]
