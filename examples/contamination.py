"""Training problems that contain a benchmark problem, by word 13-grams, as in the GPT-3 and later checks.

    python examples/contamination.py data/my.jsonl data/benchmarks --out data/clean.jsonl

Both hold rows of `real-openrlhf data`. A problem is listed if it has at least half of a benchmark problem's 13-grams;
with --out the others are written. A benchmark problem of 5 to 12 words is one gram of its own length.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from real_openrlhf.data.problems import bare_problem

NGRAM = 13  # words
SHORTEST = 5  # words of a problem that is looked for inside others; fewer are part of many a problem by chance
THRESHOLD = 0.5  # share of a benchmark problem's n-grams that a training problem must contain
SPELLING = re.compile(r"\\(?:left|right|[dt]?frac|text|mathrm)\b")
WORD = re.compile(r"[a-z0-9]+")


class Match(NamedTuple):
    problem: str  # its id
    overlap: float


def words(text: str) -> tuple[str, ...]:
    """Letters and digits only: spacing, punctuation and LaTeX's ways to write a fraction do not matter."""
    return tuple(WORD.findall(SPELLING.sub(" ", text.lower())))


def ngrams(text: str, length: int = NGRAM) -> set[tuple[str, ...]]:
    """A text shorter than one n-gram counts as a single one."""
    sequence = words(text)
    return {sequence[i : i + length] for i in range(max(1, len(sequence) - length + 1))}


class BenchmarkIndex:
    """Every n-gram of the benchmarks, with the problems that contain it."""

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        """`problems`: id, text."""
        self._where: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
        self._lengths = {NGRAM}
        for identity, text in problems:
            grams = ngrams(text)
            self._lengths |= {len(gram) for gram in grams if len(gram) >= SHORTEST}
            for gram in grams:
                self._where[gram].append((identity, len(grams)))

    def nearest(self, text: str) -> Match | None:
        """The benchmark problem of which `text` contains most, if that is at least half."""
        grams = set().union(*(ngrams(text, length) for length in self._lengths))
        shared = Counter(where for gram in grams for where in self._where.get(gram, ()))
        matches = [Match(identity, count / size) for (identity, size), count in shared.items()]
        most = max(matches, key=lambda match: match.overlap, default=None)
        return most if most and most.overlap >= THRESHOLD else None


def problem_of(row: dict) -> str:
    """Its last message, without the instructions around the problem."""
    prompt = row["prompt"]
    return bare_problem(prompt if isinstance(prompt, str) else prompt[-1]["content"])


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", type=Path, metavar="FILE.jsonl")
    parser.add_argument("benchmarks", type=Path, metavar="FOLDER", help="of `real-openrlhf data benchmarks`")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help="the rows that contain no benchmark problem")
    args = parser.parse_args(given)
    files = sorted(args.benchmarks.glob("*.jsonl"))
    index = BenchmarkIndex((row["id"], problem_of(row)) for file in files for row in rows_of(file))
    clean, counts = [], Counter[str]()
    for number, row in enumerate(rows_of(args.training)):
        if match := index.nearest(problem_of(row)):
            counts[match.problem.rpartition("-")[0]] += 1
            print(f"{row.get('id', number)} contains {match.overlap:.0%} of {match.problem}")
        else:
            clean.append(row)
    print(f"{counts.total()} contain a benchmark problem ({dict(counts)}), {len(clean)} do not")
    if args.out:
        args.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in clean), encoding="utf-8")


if __name__ == "__main__":
    main()
