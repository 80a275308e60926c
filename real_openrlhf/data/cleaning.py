"""Select problems to train on: each text once, with a gold that verifies, a short prompt, no benchmark problem."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tqdm import tqdm

from real_openrlhf.data.problems import Problem

DUPLICATE = "same problem text as an earlier row"
NO_PROBLEM = "no problem text"
NO_GOLD = "no gold answer"
CONFLICT = "same problem text with different golds"
UNVERIFIED = "the gold does not verify against itself"
TOO_LONG = "the prompt is too long"
CONTAMINATED = "contains a benchmark problem"
NGRAM = 13  # words
SHORTEST = 5  # words of a problem that is looked for inside others; fewer are part of many a problem by chance
THRESHOLD = 0.5  # share of a benchmark problem's n-grams that a training problem must contain

_SPELLING = re.compile(r"\\(?:left|right|[dt]?frac|text|mathrm)\b")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass
class Selection:
    """The kept problems, and the dropped problems with reasons; duplicates are counted, not listed."""

    kept: list[Problem]
    counts: Counter = field(default_factory=Counter)  # reason -> rows
    dropped: list[dict] = field(default_factory=list)  # a line for each

    def keep(self, judge: Callable[[Problem], str | None], reason: str) -> None:
        """Drop every problem for which `judge` has an objection."""
        survivors = []
        for problem in tqdm(self.kept, desc="checking", disable=None):
            objection = judge(problem)
            if objection is None:
                survivors.append(problem)
            else:
                self.drop(problem, reason, objection)
        self.kept = survivors

    def drop(self, problem: Problem, reason: str, detail: str = "", rows: int = 1) -> None:
        self.counts[reason] += rows
        why = {"row": problem.row, "reason": reason, "detail": detail}
        self.dropped.append(why | {"golds": problem.golds, "problem": problem.text})


def distinct(problems: Iterable[Problem], agree: Callable[[Problem, Problem], bool]) -> Selection:
    """Keep one problem per text, and none if the golds of a text disagree. Memory grows with texts, not rows."""
    seen: dict[str, tuple[Problem, Counter]] = {}  # text -> its first row, how often each spelling of the golds
    selection = Selection(kept=[])
    for problem in problems:
        if not problem.key:
            selection.drop(problem, NO_PROBLEM)
        elif not problem.golds:
            selection.drop(problem, NO_GOLD)
        else:
            _, spellings = seen.setdefault(problem.key, (problem, Counter()))
            spellings[problem.golds] += 1
    for first, spellings in seen.values():
        rows = spellings.total()
        others = (Problem(first.row, first.text, golds) for golds in spellings)
        if all(other.golds == first.golds or agree(first, other) for other in others):
            selection.kept.append(first)
            if rows > 1:
                selection.counts[DUPLICATE] += rows - 1
        else:
            selection.drop(first, CONFLICT, " | ".join(map(", ".join, spellings)), rows)
    return selection


@dataclass(frozen=True)
class Match:
    benchmark: str
    benchmark_id: str
    overlap: float


def words(text: str) -> tuple[str, ...]:
    """Letters and digits only: spacing, punctuation and LaTeX's ways to write a fraction do not matter."""
    return tuple(_WORD.findall(_SPELLING.sub(" ", text.lower())))


def ngrams(text: str, length: int = NGRAM) -> set[tuple[str, ...]]:
    """A text shorter than one n-gram counts as a single one."""
    sequence = words(text)
    return {sequence[i : i + length] for i in range(max(1, len(sequence) - length + 1))}


class BenchmarkIndex:
    """Every n-gram of the benchmarks, with the problems that contain it, as in the GPT-3 and later checks.

    A problem of SHORTEST words or more that is shorter than an n-gram is one gram of its own length. A training
    problem matches if it contains all of it.
    """

    def __init__(self, problems: Iterable[tuple[str, str, str]]) -> None:
        """`problems`: benchmark name, problem id, text."""
        self._where: dict[tuple[str, ...], list[tuple[str, str, int]]] = defaultdict(list)
        self._lengths = {NGRAM}
        for benchmark, identity, text in problems:
            grams = ngrams(text)
            self._lengths |= {len(gram) for gram in grams if len(gram) >= SHORTEST}
            for gram in grams:
                self._where[gram].append((benchmark, identity, len(grams)))

    def nearest(self, text: str) -> Match | None:
        """The benchmark problem of which `text` contains most, if that is at least half."""
        grams = set().union(*(ngrams(text, length) for length in self._lengths))
        shared = Counter(where for gram in grams for where in self._where.get(gram, ()))
        matches = [Match(benchmark, identity, count / size) for (benchmark, identity, size), count in shared.items()]
        most = max(matches, key=lambda match: match.overlap, default=None)
        return most if most and most.overlap >= THRESHOLD else None
