"""`real-openrlhf grade`: verdicts on the responses in a JSONL file."""

import argparse
import contextlib
import importlib.util
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError, first_line, plain
from real_openrlhf.base.files import parsed, read_bytes, write_jsonl
from real_openrlhf.base.parsing import path_of
from real_openrlhf.rewards import gym_tasks
from real_openrlhf.rewards.verifier.extract import Think, boxed_answer
from real_openrlhf.rewards.verifier.verdict import Grader, Verdict, verify_many

SHOWN, LONGEST_FORM = 20, 60  # forms that are printed, and the characters of each


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", required=True, type=path_of, metavar="FILE.jsonl", help="rows with response and label"
    )
    parser.add_argument(
        "--output",
        required=True,
        type=path_of,
        metavar="FILE.jsonl",
        help="the rows, score and reason added; with --compare those on which two graders differ",
    )
    parser.add_argument(
        "--think",
        choices=["required", "optional"],
        default="optional",
        help="required: a response without </think> is wrong (default: optional)",
    )
    parser.add_argument(
        "--grader",
        choices=get_args(Grader),
        default="robust",
        help="disco: the rules of the paper's baselines, for comparison; math_verify: that library's rules; gym: "
        "reasoning-gym's scorers, for rows of `real-openrlhf data gym` (default: robust)",
    )
    parser.add_argument(
        "--compare",
        choices=get_args(Grader),
        metavar="GRADER",
        help="grade with this one too, and show where both differ, the most frequent forms of answers first",
    )


def run(args: argparse.Namespace) -> int:
    refuse_foreign(args.input, args.output)
    graders = [args.grader, *[args.compare] * bool(args.compare)]
    if "disco" in graders and importlib.util.find_spec("openrlhf") is None:
        raise UserError("--grader disco is OpenRLHF's own grader, which is not installed. pip install openrlhf")
    if "gym" in graders:
        gym_tasks.require()
    rows = _rows(args.input)
    verdicts = {grader: _verdicts(rows, args.think, grader) for grader in graders}
    if args.compare:
        write_jsonl(args.output, _differences(rows, verdicts))
        return 0
    graded = verdicts[args.grader]
    write_jsonl(args.output, ({**row, **_said(verdict)} for row, verdict in zip(rows, graded, strict=True)))
    print(f"{len(rows)} responses: {_counts(graded)}")
    reasons = Counter(verdict.reason for verdict in graded)
    print(", ".join(f"{reason} {count}" for reason, count in reasons.most_common()))
    return 0


def refuse_foreign(source: Path, out: Path) -> None:
    """Raise if the output would replace the input, or a file whose first line is no graded row."""
    if out.exists() and source.exists() and out.samefile(source):
        raise UserError(f"--output {out} is the input. Name another file.")
    ours = False
    with contextlib.suppress(OSError, ValueError, AttributeError):
        first = parsed(read_bytes(out).partition(b"\n")[0] or b"{}")
        ours = not first or {"score", "reason"} <= first.keys() or {"form", "scores"} <= first.keys()
    ownership.refuse_foreign("--output", [out], ours)


def _verdicts(rows: list[dict], think: Think, grader: Grader) -> list[Verdict]:
    from tqdm import tqdm

    pairs = ((row["response"], row["label"]) for row in rows)
    verdicts = verify_many(pairs, think, grader, threads=min(8, os.cpu_count() or 1))
    name = f"grading: {grader}"
    return [*tqdm(verdicts, total=len(rows), desc=name, unit="row", disable=not sys.stderr.isatty())]


def _said(verdict: Verdict) -> dict:
    return {"score": None if verdict.ignored else int(verdict.score), "reason": verdict.reason}


def _counts(verdicts: list[Verdict]) -> str:
    outcomes = Counter(_said(verdict)["score"] for verdict in verdicts)
    return f"{outcomes[1]} right, {outcomes[0]} wrong, {outcomes[None]} without a verdict"


def _differences(rows: list[dict], verdicts: dict[str, list[Verdict]]) -> list[dict]:
    """Rows on which the two graders differ, the most frequent form first; the forms are printed."""
    found: list[tuple[str, dict]] = []
    for row, *both in zip(rows, *verdicts.values(), strict=True):
        scores = {grader: _said(verdict)["score"] for grader, verdict in zip(verdicts, both, strict=True)}
        if len({*scores.values()}) > 1:
            answer = boxed_answer(row["response"]) or row["response"][-60:].strip()
            form = "  ".join([_form(str(row["label"])), "<-", _form(answer), str(scores)])
            found.append((form, {**row, "form": form, "scores": scores}))
    for grader, graded in verdicts.items():
        print(f"{grader}: {_counts(graded)}")
    counts = Counter(form for form, _ in found)
    print(f"{len(found)} of {len(rows)} responses differ, in {len(counts)} forms. gold  <-  answer, 0 for any number:")
    for form, count in counts.most_common(SHOWN):
        print(f"{count:6}  {plain(form)}")
    return [row for _, row in sorted(found, key=lambda one: (-counts[one[0]], one[0]))]


def _form(text: str) -> str:
    return re.sub(r"\d+", "0", " ".join(text.split()))[:LONGEST_FORM]


def _rows(path: Path) -> list[dict]:
    if path.exists() and not path.is_file() and not path.is_fifo():
        raise UserError(f"--input {path} is no file. Give a text file in UTF-8.")
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
