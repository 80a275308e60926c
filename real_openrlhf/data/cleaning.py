"""Select problems to train on: each text once, with a gold that verifies, and a short prompt."""

from collections import Counter
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
