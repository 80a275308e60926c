"""Extract the golds of a label, and the final answer of a response: the last box after the thinking."""

import json
import math
import numbers
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

Think = Literal["required", "optional"]

_WHOLLY_BOXED = re.compile(r"^(?:\$|\\\[|\\\()?\s*\\(?:boxed|fbox)\s*\{(.*)\}\s*(?:\$|\\\]|\\\))?$", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# Text that may stand between two boxes of one answer, as in `\boxed{3} and \boxed{4}`.
_JOINT = re.compile(r"(?:[\s$]|\\[()\[\],;]|\\text\{\s*(?:and|or)\s*\}|\\q?quad|and|or|[,;])*")
_NEIGHBOURHOOD = 1_000
_MAX_PARTS = 50
_BARE_WORD = re.compile(r"\s*([^\s$.,;\\{}]+)")


def golds_of(gold: object) -> tuple[str, ...]:
    """`'["7", "7.0"]'` is two golds, but `'[0, 1]'` is an interval: only a JSON list of texts is a list of golds."""
    gold = _plain(gold)
    if isinstance(gold, str):
        items: Sequence[object] = json_texts(gold) or [gold]
    else:
        items = [*filter(_is_answer, map(_plain, gold if isinstance(gold, list | tuple) else [gold]))]
    golds = (_WHOLLY_BOXED.sub(r"\1", str(item).strip()).strip() for item in items)
    return tuple(dict.fromkeys(gold for gold in golds if gold))


def _plain(item: object) -> object:
    """An array, a column or a number of numpy or pandas as Python's."""
    return item.tolist() if hasattr(item, "tolist") else item


def _is_answer(item: object) -> bool:
    if isinstance(item, str) or isinstance(item, bool):
        return isinstance(item, str)
    return isinstance(item, numbers.Real | Decimal) and not math.isnan(item)  # nan: none was given


def json_texts(label: str) -> list[str] | None:
    if not label.lstrip().startswith("["):
        return None
    try:
        items = json.loads(label)
    except (ValueError, RecursionError):
        return None
    return items if isinstance(items, list) and items and all(isinstance(item, str) for item in items) else None


# How models mark their thinking. A prompt may end with the opening mark.
THINKING = {
    "<think>": "</think>", "<thinking>": "</thinking>", "<reasoning>": "</reasoning>", "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}  # fmt: skip


def after_thinking(response: str, think: Think) -> str | None:
    """The text after the last `</think>` or mark like it; None where the thinking was never finished."""
    end = max(at + len(mark) if (at := response.rfind(mark)) >= 0 else 0 for mark in THINKING.values())
    rest = response[end:]
    unfinished = (think == "required" and not end) or any(mark in rest for mark in THINKING)
    return None if unfinished else rest


def boxed_answer(text: str) -> str | None:
    r"""The content of the last `\boxed` or `\fbox`; None where there is none, it is empty, or it never closes.

    Neighbouring boxes are one answer with several parts: taking only the last would reward hedging.
    """
    start = _last_box(text, len(text))
    content, _ = _content(text, start) if start >= 0 else (None, 0)
    parts = [content] if content else []
    for _ in range(_MAX_PARTS if parts else 0):
        end, start = start, _last_box(text, start)
        if start < 0 or end - start > _NEIGHBOURHOOD:
            break
        content, stop = _content(text, start)
        if content is None or stop > end or not _JOINT.fullmatch(text[stop:end]):
            break
        if content not in parts:
            parts.insert(0, content)
    return ", ".join(parts) or None


def _last_box(text: str, end: int) -> int:
    return max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))


def _content(text: str, start: int) -> tuple[str | None, int]:
    opening = _BOX.match(text, start)
    if opening is None or opening.end() >= len(text):
        return None, start
    first = opening.end()
    if text[first] != "{":
        word = _BARE_WORD.match(text, first)
        return (word[1], word.end()) if word else (None, start)
    depth = 0
    for brace in _BRACE.finditer(text, first):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[first + 1 : brace.start()].strip(), brace.end()
    return None, start
