"""`real-openrlhf grade`: verdicts on the responses in a JSONL file."""

import argparse
import importlib.util
import logging
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

from real_openrlhf.base import reward_variables
from real_openrlhf.base.errors import UserError, first_line, plain
from real_openrlhf.base.files import parsed
from real_openrlhf.base.manifests import MANIFEST, refuse_foreign_rows, write_rows
from real_openrlhf.base.parsing import path_of
from real_openrlhf.rewards.graders import Asked, Grader, judge_many
from same_answer.conventions import CONVENTIONS
from same_answer.extract import Think, boxed_answer, raw_gold
from same_answer.verdict import Verdict

KEYS = Asked(*Asked._fields)  # the fields of a row, if no flag names others
SHOWN, LONGEST_FORM = 20, 60  # forms that are printed, and the characters of each


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", required=True, type=path_of, metavar="FILE.jsonl", help="rows with response and label"
    )
    parser.add_argument(
        "--response-key", default="response", metavar="NAME", help="the response's field (default: %(default)s)"
    )
    parser.add_argument("--label-key", default="label", metavar="NAME", help="the gold's field (default: %(default)s)")
    parser.add_argument(
        "--prompt-key",
        default="prompt",
        metavar="NAME",
        help="the prompt's field; in rows with it, answers that copy the question are wrong (default: %(default)s)",
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
        help="disco: the rules of the paper's baselines; math_verify: that library's rules (default: robust)",
    )
    parser.add_argument(
        "--allow",
        nargs="+",
        default=[],
        choices=CONVENTIONS,
        metavar="KIND",
        help=f"{' and '.join(CONVENTIONS)}: "
        "count answers that copy a formula of the prompt, or leave its operation undone: \\gcd(12,18) for 6 "
        "(default: wrong, where the row has a prompt)",
    )
    parser.add_argument(
        "--compare",
        choices=get_args(Grader),
        metavar="GRADER",
        help="grade with this one too, and show where both differ, the most frequent forms of answers first",
    )


def run(args: argparse.Namespace) -> int:
    reward_variables.refuse_unreadable()
    manifest = Path(f"{args.output}{MANIFEST}")
    if args.output.exists() and args.input.exists() and args.output.samefile(args.input):
        raise UserError(f"--output {args.output} is the input. Name another file.")
    refuse_foreign_rows("--output", [args.output], manifest)
    graders = [args.grader, args.compare] if args.compare else [args.grader]
    if "disco" in graders and importlib.util.find_spec("openrlhf") is None:
        raise UserError("--grader disco is OpenRLHF's own grader, which is not installed. pip install openrlhf")
    keys = Asked(args.response_key, args.label_key, args.prompt_key)
    rows = _rows(args.input, keys)
    asked = [Asked(row[keys.response], row[keys.label], _text(row.get(keys.prompt))) for row in rows]
    _tell_raw_golds(asked, keys)
    log = logging.getLogger("same_answer")
    level = log.level
    log.setLevel(logging.ERROR)  # the rows and one line below say it
    try:
        verdicts = {grader: _verdicts(asked, args.think, grader, tuple(args.allow)) for grader in graders}
    finally:
        log.setLevel(level)
    for grader, graded in verdicts.items():
        _tell_failures(grader, graded)
    about = {"graders": graders, "think": args.think, "allow": args.allow}
    if args.compare:
        write_rows({args.output: _differences(rows, asked, verdicts)}, manifest, about)
        return 0
    graded = verdicts[args.grader]
    out = ({**row, **_said(verdict)} for row, verdict in zip(rows, graded, strict=True))
    write_rows({args.output: out}, manifest, about)
    print(f"{len(rows)} responses: {_counts(graded)}")
    reasons = Counter(verdict.reason for verdict in graded)
    print(", ".join(f"{reason} {count}" for reason, count in reasons.most_common()))
    return 0


def _text(prompt: object) -> str:
    """A prompt as text; it may be messages."""
    if isinstance(prompt, list):
        return "\n".join(map(_text, prompt))
    return _text(prompt.get("content")) if isinstance(prompt, dict) else str(prompt or "")


def _tell_raw_golds(asked: list[Asked], keys: Asked) -> None:
    """Golds in the form of a data set's file equal no answer: say it once, instead of a verdict less for each."""
    raw = [gold for item in asked if (gold := raw_gold(item.label))]
    if raw:
        print(
            f"{len(raw)} of {len(asked)} labels look raw, such as {plain(raw[0][-LONGEST_FORM:])!r}. Write the answer "
            f"alone into `{keys.label}`: what follows ####, or a JSON list of texts in double quotes.",
            file=sys.stderr,
        )


def _tell_failures(grader: str, verdicts: list[Verdict]) -> None:
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.ignored)
    if reasons:
        counts = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        print(f"{grader}: {reasons.total()} of {len(verdicts)} rows without a verdict: {counts}", file=sys.stderr)


def _verdicts(asked: list[Asked], think: Think, grader: Grader, allowed: tuple[str, ...]) -> list[Verdict]:
    from tqdm import tqdm

    verdicts = judge_many(asked, think, grader, allowed, threads=min(8, os.cpu_count() or 1))
    name = f"grading: {grader}"
    return [*tqdm(verdicts, total=len(asked), desc=name, unit="row", disable=not sys.stderr.isatty())]


def _said(verdict: Verdict) -> dict:
    return {"score": None if verdict.ignored else int(verdict.score), "reason": verdict.reason}


def _counts(verdicts: list[Verdict]) -> str:
    outcomes = Counter(_said(verdict)["score"] for verdict in verdicts)
    return f"{outcomes[1]} right, {outcomes[0]} wrong, {outcomes[None]} without a verdict"


def _differences(rows: list[dict], asked: list[Asked], verdicts: dict[str, list[Verdict]]) -> list[dict]:
    """Rows that one grader calls right and the other wrong, the most frequent form first; the forms are printed."""
    found: list[tuple[str, dict]] = []
    judged = 0
    for row, item, *both in zip(rows, asked, *verdicts.values(), strict=True):
        scores = {grader: _said(verdict)["score"] for grader, verdict in zip(verdicts, both, strict=True)}
        judged += None not in scores.values()
        if len({*scores.values()}) > 1 and None not in scores.values():
            answer = boxed_answer(item.response) or item.response[-60:].strip()
            form = "  ".join([_form(str(item.label)), "<-", _form(answer), str(scores)])
            found.append((form, {**row, "form": form, "scores": scores}))
    for grader, graded in verdicts.items():
        print(f"{grader}: {_counts(graded)}")
    counts = Counter(form for form, _ in found)
    unjudged = f" ({len(rows) - judged} more lack a verdict)" if judged < len(rows) else ""
    print(
        f"{len(found)} of {judged} responses differ{unjudged}, in {len(counts)} forms. "
        "gold  <-  answer, 0 for any number:"
    )
    for form, count in counts.most_common(SHOWN):
        print(f"{count:6}  {plain(form)}")
    return [row for _, row in sorted(found, key=lambda one: (-counts[one[0]], one[0]))]


def _form(text: str) -> str:
    return re.sub(r"\d+", "0", " ".join(text.split()))[:LONGEST_FORM]


def _rows(path: Path, keys: Asked = KEYS) -> list[dict]:
    if path.exists() and not path.is_file() and not path.is_fifo():
        raise UserError(f"--input {path} is no file. Give a text file in UTF-8.")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--input {path} cannot be read ({first_line(error)}). Give a text file in UTF-8.") from None
    rows = [_row(path, number, line, keys) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise UserError(f"--input {path}: the file is empty. Write one JSON object a line.")
    return rows


def _row(path: Path, number: int, line: str, keys: Asked) -> dict:
    try:
        row = parsed(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get(keys.response), str) or keys.label not in row:
        raise UserError(
            f"--input {path}: line {number} is no JSON object with `{keys.response}`, a text, and `{keys.label}`. "
            "--response-key and --label-key name other fields."
        )
    return row
