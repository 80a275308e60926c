r"""Answers as long as an answer may be, of one piece that is repeated or nested: `text(random.Random(1))` is one.

A model in a loop writes such answers, and whatever takes twice as long for each further piece never ends on them.
"""

from random import Random

LONGEST = 1_000
_ATOMS = (
    "5", "x", "x=5", r"5\%", "50", "0.5", r"\pi", r"180^\circ", r"5\text{ cm}", r"5\text{ m}", "(A) ", "(1,2)",
    "[1,2)", r"\{1,2\}", r"1\frac12", r"\sqrt2", r"\frac12", "f(x)", "|x|", "n!", r"\binom{5}{2}", "101_2",
    "3:40", r"\text{yes}", r"\text{if }x>0", r"k\in\mathbb{Z}", r"\mathbb{R}", r"\infty", r"\log_2 3",
    r"\text{ apples}", "x^2", r"1.23\ldots", r"2\text{ hours }", "30^\\circ 30'", r"x\equiv 2\pmod 5",
    r"\text{and }", r"\text{wrong}", r"\mathbb{E}[k]",
)  # fmt: skip
_JOINTS = (
    "", " ", ",", ";", "=", r"\approx ", r"\le ", ">", r"\pm ", r"\cup ", r"\cap ", r"\setminus ",
    r"\text{ or }", r"\text{ and }", r"\text{ for }", ":", "+", "-", "/", "^", "_", r"\cdot ", r"\ne ", r"\in ",
    r"\Rightarrow ", r"\\", "&", "!", "|", r"\to ", r"\equiv ", r"\mod ",
)  # fmt: skip
_WRAPPERS = (
    "(<>)", "[<>]", r"\{<>\}", r"\sqrt{<>}", r"\frac{<>}{2}", r"\frac{1}{<>}", r"1\frac{<>}{2}", "|<>|", "(1,<>)",
    r"\{1,<>\}", "x=(<>)", "5(=<>)", r"5 (\approx <>)", r"5\text{ or }(<>)", "2^{<>}", "x_{<>}", r"\sin(<>)", "f(<>)",
    r"\text{<>}", r"\overline{<>}", r"\log_{<>}2", r"\binom{<>}{2}", r"\pm(<>)", r"\mathbb{R}\setminus\{<>\}",
    r"\lfloor <>\rfloor ", r"\begin{pmatrix}<>\end{pmatrix}", "-(<>)", "(A) (<>)", r"x\in(<>)", "[<>,5)",
)  # fmt: skip


def text(rng: Random) -> str:
    return _repeated(rng) if rng.random() < 0.5 else _nested(rng)


def _repeated(rng: Random) -> str:
    one, other, joint = rng.choice(_ATOMS), rng.choice(_ATOMS), rng.choice(_JOINTS)
    piece = one + joint if one == other else one + joint + other + rng.choice((joint, joint, rng.choice(_JOINTS)))
    return piece * ((LONGEST - len(other)) // len(piece)) + other


def _nested(rng: Random) -> str:
    """Brackets as deep as an answer may have them, around an atom or a list."""
    wrappers = [rng.choice(_WRAPPERS) for _ in range(rng.choice((1, 1, 2)))]
    inner = rng.choice(_ATOMS) + rng.choice(("", rng.choice(_JOINTS) + rng.choice(_ATOMS)))
    for at in range(24):
        outer = wrappers[at % len(wrappers)].replace("<>", inner)
        if len(outer) > LONGEST:
            break
        inner = outer
    return inner
