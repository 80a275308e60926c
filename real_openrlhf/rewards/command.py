"""`real-openrlhf grade`: verdicts on the responses in a JSONL file."""

import argparse
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.errors import UserError, first_line
from real_openrlhf.files import parsed, write_jsonl


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", required=True, type=Path, metavar="FILE.jsonl", help="rows with response and label")
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE.jsonl", help="the rows, score and reason added"
    )
    parser.add_argument(
        "--think",
        choices=["required", "optional"],
        default="optional",
        help="required: a response without </think> is wrong (default: optional)",
    )
    parser.add_argument(
        "--grader",
        choices=["robust", "disco", "gym"],
        default="robust",
        help="disco: the rules of the paper's baselines, for comparison; gym: reasoning-gym's scorers, for rows of "
        "`real-openrlhf data gym` (default: robust)",
    )


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from real_openrlhf.rewards import gym_tasks
    from real_openrlhf.rewards.verifier.verdict import verify_many

    if args.grader == "disco" and importlib.util.find_spec("openrlhf") is None:
        raise UserError("--grader disco is OpenRLHF's own grader, which is not installed. pip install openrlhf")
    if args.grader == "gym":
        gym_tasks.require()
    rows = _rows(args.input)
    pairs = ((row["response"], row["label"]) for row in rows)
    verdicts = verify_many(pairs, args.think, args.grader, threads=min(8, os.cpu_count() or 1))
    progress = tqdm(verdicts, total=len(rows), desc="grading", unit="row", disable=not sys.stderr.isatty())
    reasons: Counter[str] = Counter()
    outcomes: Counter[int | None] = Counter()

    def graded() -> Iterator[dict]:
        for row, verdict in zip(rows, progress, strict=True):
            score = None if verdict.ignored else int(verdict.score)
            reasons[verdict.reason] += 1
            outcomes[score] += 1
            yield row | {"score": score, "reason": verdict.reason}

    write_jsonl(args.output, graded())
    print(f"{len(rows)} responses: {outcomes[1]} right, {outcomes[0]} wrong, {outcomes[None]} without a verdict")
    print(", ".join(f"{reason} {count}" for reason, count in reasons.most_common()))
    return 0


def _rows(path: Path) -> list[dict]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--input {path} cannot be read ({first_line(error)}). Give a text file in UTF-8.") from None
    rows = [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise UserError(f"--input {path}: the file is empty. Write one JSON object a line.")
    return rows


def _row(path: Path, number: int, line: str) -> dict:
    try:
        row = parsed(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("response"), str) or "label" not in row:
        raise UserError(f"--input {path}: line {number} is no JSON object with `response`, a text, and `label`.")
    return row
