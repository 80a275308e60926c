"""real-openrlhf show: kept answers of a run in a terminal."""

import argparse
import textwrap
from itertools import groupby
from pathlib import Path

from real_openrlhf.answers.kept import Group, moments, read, short, steps
from real_openrlhf.errors import UserError
from real_openrlhf.files import ROLLOUTS
from real_openrlhf.parsing import positive, whole

BAR = 12  # letters of the largest weight
KINDS = {"train": "groups", "eval": "held-out answers (--eval)"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="the folder of a run")
    parser.add_argument("--step", type=whole, metavar="N", help="groups of this step (default: the last one kept)")
    parser.add_argument(
        "--eval",
        action="store_true",
        help="the same held-out questions at the start, in the middle and at the end; with --step those of that step",
    )
    parser.add_argument(
        "--letters", type=positive, default=600, metavar="N", help="of each text at most (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    groups, phase = kept(args.run), "eval" if args.eval else "train"
    known = steps(groups, phase)
    if args.step not in (None, *known) or not known:
        raise UserError(f"{args.run / ROLLOUTS} has no {KINDS[phase]} of that step. {_has(groups)}")
    chosen = [args.step] if args.step is not None else moments(groups) if args.eval else known[-1:]
    found = [group for group in groups if group.phase == phase and group.step in chosen]
    if args.eval:  # a question's answers one below the other
        found.sort(key=lambda group: group.prompt)
    for asked, own in groupby(found, lambda group: (group.prompt, group.gold)):
        print(_hanging("question  ", asked[0], args.letters), _hanging("expected  ", asked[1], args.letters), sep="\n")
        for group in own:
            print("\n".join(_answers(group, args.letters)))
        print()
    print(_has(groups))
    return 0


def kept(folder: Path) -> list[Group]:
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder. Name a run's, like runs/NAME.")
    if groups := read(folder):
        return groups
    if below := sorted(path.parent.name for path in folder.glob(f"*/{ROLLOUTS}")):
        raise UserError(f"{folder} is not a run, it holds some. Name one of them: {', '.join(below[:8])}.")
    raise UserError(
        f"{folder} has no answers: {ROLLOUTS} is missing or empty. Runs write it with --train.keep_groups 1 or more "
        "(default: 2); campaigns of compare --publish leave it out."
    )


def _has(groups: list[Group]) -> str:
    """Which steps there are to ask for."""
    found = [f"{name} of steps {_ranges(steps(groups, phase))}" for phase, name in KINDS.items()]
    return f"Kept: {'; '.join(found)}."


def _ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 -> 1-3, 7"""
    parts = ([number for _, number in part] for _, part in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    return ", ".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts) or "none"


def _answers(group: Group, letters: int) -> list[str]:
    lines = [group.title]
    for rollout in group.rollouts:
        bar = ("+" if rollout.weight > 0 else "-") * round(BAR * abs(rollout.weight) / group.largest)
        numbers = f"reward {rollout.shown('reward')}"
        if group.phase == "train":
            numbers += f"  score {rollout.shown('score')}  {group.weight_name} {rollout.shown('weight')}  {bar}"
        lines += [f"  {rollout.verdict:7}  {numbers}".rstrip(), _hanging("           ", rollout.answer, letters)]
    return lines


def _hanging(head: str, text: str, letters: int) -> str:
    return head + textwrap.indent(short(text, letters) or "(nothing)", " " * len(head), lambda line: True)[len(head) :]
