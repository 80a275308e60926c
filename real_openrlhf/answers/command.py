"""real-openrlhf show: kept answers of a run in a terminal."""

import argparse
import textwrap
from itertools import groupby
from pathlib import Path

from real_openrlhf.answers.kept import Group, moments, read, short, steps
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import ROLLOUTS
from real_openrlhf.base.parsing import did_you_mean, path_of, whole
from real_openrlhf.runs import run_folder

BAR = 12  # characters of the bar for the largest weight
KINDS = {"train": "groups", "eval": "held-out answers (--eval)"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=path_of, metavar="RUN_DIR", help="the folder of a run")
    parser.add_argument("--step", type=whole, metavar="N", help="groups of this step (default: the last one kept)")
    parser.add_argument(
        "--eval",
        action="store_true",
        help="the same held-out questions at the start, in the middle and at the end; with --step those of that step",
    )


def run(args: argparse.Namespace) -> int:
    groups, phase = read(args.run), "eval" if args.eval else "train"
    if not groups:
        raise UserError(_why_none(args.run))
    known = steps(groups, phase)
    if args.step not in (None, *known) or not known:
        raise UserError(f"{args.run / ROLLOUTS} has no {KINDS[phase]} of that step. {_has(groups)}")
    chosen = [args.step] if args.step is not None else moments(groups) if args.eval else known[-1:]
    found = [group for group in groups if group.phase == phase and group.step in chosen]
    if args.eval:  # a question's answers one below the other
        found.sort(key=lambda group: group.prompt)
    for asked, own in groupby(found, lambda group: (group.prompt, group.gold)):
        print(_hanging("question  ", asked[0]), _hanging("expected  ", asked[1]), sep="\n")
        for group in own:
            print("\n".join(_answers(group)))
        print()
    print(_has(groups))
    return 0


def _why_none(folder: Path) -> str:
    if not folder.is_dir():
        near = did_you_mean(folder.name, (path.name for path in folder.parent.glob("*/")))
        return f"{folder} has no answers: there is no such folder. {near}Name a run's folder, like runs/NAME."
    record = run_folder.read(folder) if (folder / "run.json").exists() else {}
    if record.get("status") == "failed":
        return (
            f"{folder} has no answers: the run failed ({record.get('reason')}). Read {folder / 'train.log'}, then "
            "continue it: the same command with --resume."
        )
    if record.get("status") == "running":
        return f"{folder} has no answers yet: the run has not ended its first step. Wait for it."
    return (
        f"{folder} has no answers: {ROLLOUTS} is missing or empty. Name a run's folder, like runs/NAME. Runs "
        "write it with --train.keep_groups 1 or more (default: 2); campaigns of compare --publish leave it out."
    )


def _has(groups: list[Group]) -> str:
    """The steps that the file has, in words."""
    found = [f"{name} of {ranges(known)}" for phase, name in KINDS.items() if (known := steps(groups, phase))]
    return f"Kept: {'; '.join(found)}."


def ranges(numbers: list[int]) -> str:
    """`steps 1 to 40`, or `steps 0, 20, 40`: a row of neighbours is a range."""
    rows: list[list[int]] = []
    for number in numbers:
        if not rows or number != rows[-1][-1] + 1:
            rows.append([])
        rows[-1].append(number)
    parts = (f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)
    return f"step{'s' * (len(numbers) > 1)} {', '.join(parts)}"


def _answers(group: Group) -> list[str]:
    lines = [group.title]
    for rollout in group.rollouts:
        bar = ("+" if rollout.weight > 0 else "-") * round(BAR * abs(rollout.weight) / group.largest)
        numbers = f"reward {rollout.shown('reward')}"
        if group.phase == "train":
            numbers += f"  score {rollout.shown('score')}  weight {rollout.shown('weight')}  {bar}"
        lines += [f"  {rollout.verdict:7}  {numbers}".rstrip(), _hanging("           ", rollout.answer)]
    return lines


def _hanging(head: str, text: str) -> str:
    return head + textwrap.indent(short(text) or "(nothing)", " " * len(head), lambda line: True)[len(head) :]
