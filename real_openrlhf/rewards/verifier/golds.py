"""A label is one gold answer or several of which any counts; data sets keep both in one column of text."""

import json
import re
from collections.abc import Sequence

_WHOLLY_BOXED = re.compile(r"^\$?\s*\\(?:boxed|fbox)\s*\{(.*)\}\s*\$?$", re.DOTALL)


def golds_of(label: object) -> tuple[str, ...]:
    """`'["7", "7.0"]'` is two golds, but `'[0, 1]'` is an interval: only a JSON list of texts is a list of golds."""
    if isinstance(label, str):
        items: Sequence[object] = _json_texts(label) or [label]
    elif isinstance(label, list | tuple):
        items = [item for item in label if _is_answer(item)]
    else:
        items = [label] if _is_answer(label) else []
    golds = (_WHOLLY_BOXED.sub(r"\1", str(item).strip()).strip() for item in items)
    return tuple(dict.fromkeys(gold for gold in golds if gold))


def _is_answer(item: object) -> bool:
    return isinstance(item, str | int | float) and not isinstance(item, bool)


def _json_texts(label: str) -> list[str] | None:
    if not label.lstrip().startswith("["):
        return None
    try:
        items = json.loads(label)
    except (ValueError, RecursionError):
        return None
    return items if isinstance(items, list) and items and all(isinstance(item, str) for item in items) else None
