"""How every method looks and is called, the same in each figure, table and page."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    label: str
    colour: str
    line: str | tuple
    marker: str


# Colours told apart by colour-blind readers (Okabe and Ito's palette, darkened where it was weak on white, plus three);
# line style and marker say the same without colour.
METHODS = {
    "real": Method("REAL", "#0072B2", "-", "o"),
    "real_bce": Method("REAL with BCE", "#56B4E9", "--", "s"),
    "real_no_anchor": Method("REAL without anchor", "#CC79A7", "-.", "^"),
    "real_constant": Method("REAL, constant weights", "#7F7F7F", ":", "D"),
    "grpo": Method("GRPO", "#D55E00", "--", "v"),
    "dapo": Method("DAPO", "#E69F00", "-.", "P"),
    "gspo": Method("GSPO", "#009E73", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "X"),
    "trpa": Method("TRPA", "#A89600", (0, (3, 1)), "<"),
    "disco_logl": Method("DisCO log-L", "#8C564B", (0, (1, 1)), ">"),
    "disco_lratio": Method("DisCO L-ratio", "#7B3FA0", (0, (8, 2)), "*"),
}
REAL_FAMILY = ("real", "real_bce", "real_no_anchor", "real_constant")
UNKNOWN_LOOK = Method("", "#444444", (0, (2, 2)), "h")


def method(algo: str) -> Method:
    """The look of an algorithm; one that we do not know keeps its own name in dark grey."""
    return METHODS.get(algo) or Method(algo, UNKNOWN_LOOK.colour, UNKNOWN_LOOK.line, UNKNOWN_LOOK.marker)
