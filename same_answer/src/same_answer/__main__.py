"""Grade a file: `python -m same_answer FILE.jsonl > graded.jsonl`; `-` is standard input.

A row has `response`, `gold` (a text, or a list of texts of which any counts) and, if you have it, `prompt`. It is
printed with `score`, which is 1, 0 or null for ungraded, and `reason`. A summary goes to standard error, where other
rows are named and left out; the exit code is then 1.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from same_answer import Verdict, __version__, verify
from same_answer.extract import Think
from same_answer.pool import settings

MOST_TOLD = 5  # rows that are named when they cannot be graded


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m same_answer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument(
        "--think",
        choices=["optional", "required"],
        default="optional",
        help="required: without a closing </think> a response is incorrect",
    )
    parser.add_argument("--version", action="version", version=f"same_answer {__version__}")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # the reasons are in the rows
    outcomes, reasons, wrong = Counter(correct=0, incorrect=0, ungraded=0), Counter[str](), list[int]()
    try:
        settings()  # raises ValueError for one that cannot be
        for row, verdict in graded(args.file, args.think, wrong):
            outcomes["correct" if verdict else "ungraded" if verdict.ungraded else "incorrect"] += 1
            reasons[verdict.reason] += 1
            print(json.dumps({**row, "score": None if verdict.ungraded else verdict.score, "reason": verdict.reason}))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except (OSError, ValueError) as error:
        parser.exit(2, f"same_answer: error: {error}\n")
    told = [", ".join(f"{count} {name}" for name, count in one.most_common()) for one in (outcomes, reasons)]
    print(f"{outcomes.total()} responses: {told[0]} ({told[1]})", file=sys.stderr)
    for line in wrong[:MOST_TOLD]:
        print(f"same_answer: error: {args.file}:{line}: no JSON object with response and gold", file=sys.stderr)
    if wrong:
        parser.exit(1, f"{len(wrong)} rows were left out\n")


def graded(file: Path, think: Think, wrong: list[int]) -> Iterator[tuple[dict, Verdict]]:
    """The rows with their verdicts; the numbers of other lines are added to `wrong`."""
    piped = contextlib.nullcontext(sys.stdin)
    with piped if str(file) == "-" else file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                verdict = verify(row["response"] or "", row["gold"], think=think, prompt=row.get("prompt") or "")
            except (ValueError, KeyError, TypeError, AttributeError):
                wrong.append(number)
            else:
                yield row, verdict


if __name__ == "__main__":
    main()
