"""`real-openrlhf show`: the responses of a step that a run logged (rollouts.jsonl), with their weights."""

import argparse
import textwrap
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed
from real_openrlhf.base.parsing import path_of, whole
from real_openrlhf.base.run_files import ROLLOUTS
from real_openrlhf.base.terminal import plain

LETTERS = 600  # at most, of each text that is shown
LEGEND = "score: mean log(π/π_old) of the tokens; a positive weight makes the response more likely"
VERDICTS = {"positive": "correct", "negative": "incorrect"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=path_of, metavar="RUN_DIR", help="the folder of a run")
    parser.add_argument("--step", type=whole, metavar="N", help="responses of this step (default: the last one)")


def run(args: argparse.Namespace) -> int:
    groups = read(args.run)
    if not groups:
        why = "it is missing, empty or damaged" if args.run.is_dir() else "there is no such folder"
        raise UserError(
            f"{args.run / ROLLOUTS} has no responses: {why}. Name a run's folder, like runs/NAME. A run writes the "
            "file with --logger.rollout_groups 1 or more (default: 2), from its first step on."
        )
    steps = sorted({group["step"] for group in groups})
    step = steps[-1] if args.step is None else args.step
    if step not in steps:
        raise UserError(f"{args.run / ROLLOUTS} has no step {step}. It has {spans(steps)}.")
    print(LEGEND)
    for group in sorted((group for group in groups if group["step"] == step), key=spread, reverse=True):
        texts = hanging("question  ", group["prompt"]), hanging("expected  ", group["gold"])
        print(f"\nstep {step}", *texts, sep="\n")
        for response in group["rollouts"]:
            numbers = [f"{name} {value:+.4f}" for name in ("score", "weight") if (value := response[name]) is not None]
            reward = "none" if response["reward"] is None else f"{response['reward']:.4g}"
            print(f"  {VERDICTS.get(response['label'], 'ungraded'):9}", f"reward {reward}", *numbers, sep="  ")
            print(hanging("           ", response["answer"]))
    print(f"\nlogged steps: {spans(steps)}")
    return 0


def spans(steps: list[int]) -> str:
    """`1 to 40`, or `2, 4 to 6`."""
    ends = [[step] for step in steps if step - 1 not in steps]
    for end in ends:
        last = next(step for step in steps if step >= end[0] and step + 1 not in steps)
        end += [last] if last > end[0] else []
    return ", ".join(" to ".join(map(str, end)) for end in ends)


def read(folder: Path) -> list[dict[str, Any]]:
    """The groups in the order of writing, each with its rollouts; lines that are cut off or of others are skipped."""
    text = (folder / ROLLOUTS).read_bytes() if (folder / ROLLOUTS).exists() else b""
    groups = []
    for line in text.splitlines():
        try:
            row = parsed(line)
            texts = {key: str(row[key]) for key in ("prompt", "gold")}
            groups.append({**texts, "step": int(row["step"]), "rollouts": [*map(_response, row["rollouts"])]})
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            continue
    return groups


def _response(logged: dict[str, Any]) -> dict[str, Any]:
    given = {key: logged.get(key) for key in ("reward", "score", "weight")}
    numbers = {key: v for key, v in given.items() if isinstance(v, int | float) and abs(v) < 1e100}  # no nan
    return {key: str(logged[key]) for key in ("answer", "label")} | {key: numbers.get(key) for key in given}


def spread(group: dict[str, Any]) -> float:
    """Between the largest and the smallest score."""
    scores = [response["score"] or 0.0 for response in group["rollouts"]]
    return max(scores, default=0.0) - min(scores, default=0.0)


def hanging(head: str, text: str) -> str:
    """The beginning and the end of a text behind a head, without control characters: it may come from others."""
    text = text if len(text) <= LETTERS else f"{text[: LETTERS // 2]} ... {text[-LETTERS // 2 :]}"
    text = plain("\n".join(text.splitlines())) or "(nothing)"
    return head + textwrap.indent(text, " " * len(head), lambda line: True)[len(head) :]
