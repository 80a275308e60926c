"""Do training problems contain benchmark problems? Word n-grams, as in the GPT-3 and later contamination checks."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

NGRAM = 13  # words
THRESHOLD = 0.5  # share of a benchmark problem's n-grams that a training problem must contain

_SPELLING = re.compile(r"\\(?:left|right|[dt]?frac|text|mathrm)\b")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Match:
    benchmark: str
    benchmark_id: str
    overlap: float


def words(text: str) -> tuple[str, ...]:
    """Letters and digits only: spacing, punctuation and LaTeX's ways to write a fraction do not matter."""
    return tuple(_WORD.findall(_SPELLING.sub(" ", text.lower())))


def ngrams(text: str) -> set[tuple[str, ...]]:
    """A text shorter than one n-gram counts as a single one."""
    sequence = words(text)
    return {sequence[i : i + NGRAM] for i in range(max(1, len(sequence) - NGRAM + 1))}


class BenchmarkIndex:
    """Every n-gram of the benchmarks, with the problems that contain it."""

    def __init__(self, problems: Iterable[tuple[str, str, str]]) -> None:
        """`problems`: benchmark name, problem id, text."""
        self._sizes: dict[tuple[str, str], int] = {}
        self._where: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
        for benchmark, identity, text in problems:
            grams = ngrams(text)
            self._sizes[benchmark, identity] = len(grams)
            for gram in grams:
                self._where[gram].append((benchmark, identity))

    def matches(self, text: str) -> list[Match]:
        """Benchmark problems of which `text` contains at least half, the nearest first."""
        shared: dict[tuple[str, str], int] = defaultdict(int)
        for gram in ngrams(text):
            for where in self._where.get(gram, ()):
                shared[where] += 1
        matches = [Match(*where, overlap=count / self._sizes[where]) for where, count in shared.items()]
        return sorted((match for match in matches if match.overlap >= THRESHOLD), key=lambda match: -match.overlap)
