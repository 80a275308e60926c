"""Questions of reasoning-gym to train on and to test with, no question in both: FOLDER/train.jsonl, FOLDER/test.jsonl.

    python examples/gym/gym_questions.py chain_sum gym --train 1000 --test 100 --set max_terms=3

An unknown task prints those that there are. reasoning-gym draws question number i with the seed plus i, so sets of two
seeds share most of their questions. So this draws one stream, leaves out repeated questions, and divides the rest.
Left out too is a question whose scorer accepts junk or refuses the question's own answer. gym_reward.py grades.
"""

import argparse
import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gym_reward import dataset, is_right

PROMPT = "{}\n\nGive the final answer in \\boxed{{}}."
JUNK = ("xyzzy plugh", "?", "[]", "{}")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=1000, metavar="N")
    parser.add_argument("--test", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the task")
    args = parser.parse_args(words)
    settings = dict(map(setting, args.set))
    left_out: Counter[str] = Counter()
    wanted = args.train + args.test
    try:
        rows = [
            row
            for _, row in zip(
                range(wanted), drawn(args.task, settings, args.seed, 20 * wanted + 1000, left_out), strict=False
            )
        ]
    except (AssertionError, TypeError, ValueError) as error:
        sys.exit(f"gym_questions.py: error: {error}")
    if len(rows) < wanted:
        sys.exit(
            f"gym_questions.py: error: {args.task} has {len(rows)} questions that can be used; left out: {left_out}"
        )
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", rows[args.test :]), ("test", rows[: args.test])):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        (args.folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    about = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "none"
    print(f"{args.folder}: {args.train} questions to train on, {args.test} to test; left out: {about}")


def setting(word: str) -> tuple[str, Any]:
    key, _, text = word.partition("=")
    with contextlib.suppress(ValueError):
        return key, json.loads(text)
    return key, text


def drawn(task: str, settings: dict[str, Any], seed: int, limit: int, left_out: Counter[str]) -> Iterator[dict]:
    seen: set[str] = set()
    source = dataset(task, settings, seed, limit)
    for number in range(limit):
        with contextlib.redirect_stdout(io.StringIO()):  # the task bf prints dots
            entry = source[number]
        about = {"task": task, "settings": settings, "answer": entry["answer"], "metadata": entry["metadata"]}
        label = json.dumps(about, ensure_ascii=False)
        text = " ".join(entry["question"].split())
        if objection := "repeated" if text in seen else unfit(label, entry["answer"]):
            left_out[objection] += 1
        else:
            message = {"role": "user", "content": PROMPT.format(entry["question"])}
            yield {"prompt": [message], "label": label, "datasource": task, "id": f"{task}-{number}"}
        seen.add(text)


def unfit(label: str, answer: str | None) -> str | None:
    for junk in JUNK:
        with contextlib.suppress(Exception):
            if junk != answer and is_right(label, junk):
                return "whose scorer accepts any text"
    try:
        return None if answer is None or is_right(label, answer) else "whose own answer is refused"
    except Exception:
        return "whose own answer is refused"


if __name__ == "__main__":
    main()
