"""Colour, line style, marker and label of every method, the same in each figure, table and page."""

from dataclasses import dataclass, replace

from real_openrlhf.recipes.algorithms import ALGORITHMS


@dataclass(frozen=True)
class Look:
    colour: str
    line: str | tuple
    marker: str
    label: str = ""  # the name of a method


# Colours that colour-blind readers can distinguish (Okabe and Ito's palette, darkened where weak on white, and a few
# more); line style and marker distinguish the methods without colour.
LOOKS = {
    "real": Look("#0072B2", "-", "o"),
    "real_bce": Look("#56B4E9", "--", "s"),
    "real_no_anchor": Look("#CC79A7", "-.", "^"),
    "real_constant": Look("#7F7F7F", ":", "D"),
    "real_permuted": Look("#6A8A22", (0, (5, 2, 1, 2)), "2"),
    "real_shrunk": Look("#B05A7A", (0, (2, 2)), "1"),
    "grpo": Look("#D55E00", "--", "v"),
    "dapo": Look("#E69F00", "-.", "P"),
    "gspo": Look("#009E73", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "X"),
    "trpa": Look("#A89600", (0, (3, 1)), "<"),
    "disco_logl": Look("#8C564B", (0, (1, 1)), ">"),
    "disco_lratio": Look("#7B3FA0", (0, (8, 2)), "*"),
    "real_balanced": Look("#882255", (0, (5, 1, 1, 1)), "p"),
    "cispo": Look("#332288", (0, (2, 1)), "d"),
    "reinforce": Look("#2F4F2F", (0, (4, 1, 1, 1, 1, 1)), "8"),
    "listwise": Look("#B8336A", (0, (7, 1)), "h"),
    "conspo": Look("#5C4033", (0, (3, 1, 1, 1)), "H"),
    "maxrl": Look("#00736B", (0, (1, 2)), "."),
}
UNKNOWN = Look("#444444", (0, (2, 2)), "h")
METHODS = {name: replace(LOOKS.get(name, UNKNOWN), label=one.label) for name, one in ALGORITHMS.items()}
REAL_FAMILY = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.family == "REAL")


def method(algo: str) -> Look:
    """The look of an algorithm; an unknown algorithm is dark grey, with its name as label."""
    return METHODS.get(algo) or replace(UNKNOWN, label=algo)
