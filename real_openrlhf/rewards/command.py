"""`real-openrlhf grade`: verdicts on the responses in a JSONL file."""

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_args

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import parsed
from real_openrlhf.base.ownership import MANIFEST, refuse_foreign_rows, write_rows
from real_openrlhf.base.parsing import path_of
from real_openrlhf.rewards.graders import Asked, judge_many
from real_openrlhf.rewards.variables import GRADERS, refuse_unreadable
from same_answer.conventions import CONVENTIONS
from same_answer.extract import Think

MOST_TOLD = 5  # rows that are named when they cannot be graded


def configure(parser: argparse.ArgumentParser) -> None:
    file: dict[str, Any] = {"required": True, "type": path_of, "metavar": "FILE.jsonl"}
    parser.add_argument("--input", **file, help="rows with response and label")
    parser.add_argument("--output", **file, help="the rows, score and reason added")
    for name, field in (
        ("response", "the response's field"),
        ("label", "the gold's field"),
        ("prompt", "the prompt's field; in rows with it, answers that copy the question are incorrect"),
    ):
        parser.add_argument(f"--{name}-key", default=name, metavar="NAME", help=f"{field} (default: %(default)s)")
    think = "required: a response without </think> is incorrect (default: optional)"
    parser.add_argument("--think", choices=get_args(Think), default="optional", help=think)
    graders = "; ".join(f"{name}: {about}" for name, about in GRADERS.items())
    parser.add_argument("--grader", choices=GRADERS, default="robust", help=f"{graders} (default: %(default)s)")
    kinds = f"{' and '.join(CONVENTIONS)}: count answers that copy a formula of the prompt, or leave its operation "
    kinds += "undone: \\gcd(12,18) for 6 (default: incorrect, where the row has a prompt)"
    parser.add_argument("--allow", nargs="+", default=[], choices=CONVENTIONS, metavar="KIND", help=kinds)


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    refuse_unreadable()
    manifest = Path(f"{args.output}{MANIFEST}")
    refuse_foreign_rows("--output", [args.output], manifest)
    keys = Asked(args.response_key, args.label_key, args.prompt_key)
    rows, wrong = _rows(args.input, keys)
    asked = [Asked(row[keys.response], row[keys.label], _text(row.get(keys.prompt))) for row in rows]
    judged = judge_many(asked, args.think, args.grader, tuple(args.allow), threads=min(8, os.cpu_count() or 1))
    verdicts = [*tqdm(judged, args.grader, len(asked), unit="row", disable=not sys.stderr.isatty())]
    scores = [None if verdict.ungraded else int(verdict.score) for verdict in verdicts]
    graded = zip(rows, scores, verdicts, strict=True)
    out = ({**row, "score": score, "reason": verdict.reason} for row, score, verdict in graded)
    write_rows({args.output: out}, manifest, {"graders": [args.grader], "think": args.think, "allow": args.allow})
    counts, reasons = Counter(scores), Counter(verdict.reason for verdict in verdicts)
    print(f"{len(rows)} responses: {counts[1]} correct, {counts[0]} incorrect, {counts[None]} ungraded")
    print(", ".join(f"{reason} {count}" for reason, count in reasons.most_common()))
    for line in wrong[:MOST_TOLD]:
        print(f"real-openrlhf: error: {line}", file=sys.stderr)
    if wrong:
        print(f"{len(wrong)} of {len(rows) + len(wrong)} rows were left out", file=sys.stderr)
    return int(bool(wrong))


def _text(prompt: object) -> str:
    """A prompt as text; it may be messages."""
    if isinstance(prompt, list):
        return "\n".join(map(_text, prompt))
    return _text(prompt.get("content")) if isinstance(prompt, dict) else str(prompt or "")


def _rows(path: Path, keys: Asked) -> tuple[list[dict], list[str]]:
    """The rows, and what is wrong with the others."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            read = [_row(path, number, line, keys) for number, line in enumerate(lines, start=1) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--input {path} cannot be read ({first_line(error)}). Give a text file in UTF-8.") from None
    rows, wrong = [one for one in read if isinstance(one, dict)], [one for one in read if isinstance(one, str)]
    if not rows:
        raise UserError(wrong[0] if wrong else f"--input {path}: the file is empty. Write one JSON object a line.")
    return rows, wrong


def _row(path: Path, number: int, line: str, keys: Asked) -> dict | str:
    try:
        row = parsed(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get(keys.response), str) or keys.label not in row:
        return (
            f"--input {path}: line {number} is no JSON object with `{keys.response}`, a text, and `{keys.label}`. "
            "--response-key and --label-key name other fields."
        )
    return row
