r"""Is one answer the other? What they say beside their value (`\approx 1.41`, `k \in \mathbb{Z}`) is taken off."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from real_openrlhf.rewards.verifier import labels, leaf, regions
from real_openrlhf.rewards.verifier.exact import significant_digits
from real_openrlhf.rewards.verifier.matching import LeafEqual, equal
from real_openrlhf.rewards.verifier.structure import parse, split

_APPROXIMATE_DIGITS = 2  # that `\sqrt{2} \approx 1.4` must show to be taken for what it approximates
_PUNCTUATION = " \t\r\n.,;:"
_INTEGERS = r"(?:[,; (]|\\text\{ *(?:where|with|for|for all|for any|for some)? *\})*"
_PARAMETER = re.compile(
    rf"{_INTEGERS}(?<!\\)\b([a-zA-Z])(?:_\{{\w+\}})?\\in ?(\\mathbb\{{[ZN]\}}(?:\^\{{[+*]\}}|_\{{[^{{}}]*\}})?)\)?$"
)
_BUILDER = re.compile(
    r"^\\\{([^{}|:]*(?:\{[^{}]*\}[^{}|:]*)*)(?:\||:)([a-zA-Z]\\in ?\\mathbb\{[ZN]\}(?:\^\{[+*]\})?)\\\}$"
)
_EVERY = r"[Ff]or (?:all|any|every|each|some)"
_FOR_ALL = re.compile(rf",? ?\(?(?:\\text\{{[^{{}}]*\b(?:{_EVERY}|where)\b[^{{}}]*\}}|\\forall(?![a-z]))[^,;]*$")
_FOR_ALL_FIRST = re.compile(
    rf"^(?:\\forall|\\text\{{ *{_EVERY}[^{{}}]*\}}) ?[a-z](?:\\in ?\\mathbb\{{[A-Z]\}})? ?[:,] ?"
)


@dataclass(frozen=True)
class Rules:
    """How leaves and regions are compared: exactly, or by algebra."""

    leaves: LeafEqual
    regions: Callable[[regions.Region, regions.Region], bool]


_tree = lru_cache(maxsize=4096)(parse)


def _undecided(gold: regions.Region, answer: regions.Region) -> bool:
    raise leaf.Undecided


EXACT = Rules(leaf.same, _undecided)


def same(gold: str, answer: str, rules: Rules = EXACT) -> bool:
    """Whether two normalised answers say the same; raises leaf.Undecided where the rules cannot tell."""
    readings = _readings(gold, rules), _readings(answer, rules)
    return any(_same_reading(one, other, rules) for one in readings[0] for other in readings[1])


def _readings(text: str, rules: Rules) -> list[str]:
    r"""`\sqrt{2} \approx 1.414` commits to the exact value, to the rough one only where that is a rounding of it."""
    pieces = split(text) if text.count(r"\approx") > 1 else []
    if len(pieces) > 1:
        return [",".join(_readings(piece, rules)[0] for piece in pieces)]
    exact, found, rough = text.partition(r"\approx")
    exact, rough = exact.strip(_PUNCTUATION), rough.strip(_PUNCTUATION)
    if not found or not rough:
        return [exact if found else text]
    if not exact or labels.is_label(exact):
        return [f"{exact}={rough}" if exact else rough]
    if significant_digits(rough) and rules.leaves(exact, rough, _APPROXIMATE_DIGITS):
        return [exact, rough]
    return [exact]


def _same_reading(gold: str, answer: str, rules: Rules) -> bool:
    gold, gold_domain, gold_tail = _without_qualifiers(gold)
    answer, domain, tail = _without_qualifiers(answer)
    if gold_tail and tail and gold_tail != tail:
        return False
    if gold_domain and domain:
        if gold_domain[1] != domain[1]:
            return False
        answer = _renamed(answer, domain[0], gold_domain[0])
    pair = regions.comparable(gold, answer)
    if gold == answer:
        return True
    if not (pair and any(map(regions.is_built, (gold, answer)))) and equal(_tree(gold), _tree(answer), rules.leaves):
        return True
    return pair is not None and rules.regions(*pair)


def _without_qualifiers(text: str) -> tuple[str, tuple[str, str] | None, str]:
    r"""The text without `, k \in \mathbb{Z}` and `\text{for all } x`; what k is; to what the rest is limited."""
    if r"\in" not in text and r"\text" not in text and r"\forall" not in text:
        return text, None, ""
    builder = _BUILDER.match(text)
    if builder:
        text = ",".join(builder.groups())
    parameter = _PARAMETER.search(text)
    if parameter and re.search(rf"(?<![a-zA-Z\\]){parameter[1]}(?![a-zA-Z])", text[: parameter.start()]):
        return text[: parameter.start()].strip(_PUNCTUATION), (parameter[1], parameter[2]), ""
    shorter = _FOR_ALL_FIRST.sub("", text)
    limits = _FOR_ALL.search(shorter)
    tail = re.sub(r"\\text\{[^{}]*\}|[\s(),]", "", limits[0]) if limits else ""
    shorter = _FOR_ALL.sub("", shorter).strip(_PUNCTUATION)
    return (shorter, None, tail) if re.search(r"[\w}]", shorter) else (text, None, "")


def _renamed(text: str, letter: str, wanted: str) -> str:
    if letter == wanted or re.search(rf"(?<![a-zA-Z\\]){wanted}(?![a-zA-Z])", text):
        return text
    return re.sub(rf"(?<![a-zA-Z\\]){letter}(?![a-zA-Z])", wanted, text)
