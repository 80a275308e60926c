"""Find an objective by name: a key of `OBJECTIVES`, or FILE.py:NAME. Standard library only until a file is loaded."""

import inspect

from real_openrlhf.algorithm.formulas import OBJECTIVES, Objective, TokenLoss
from real_openrlhf.base.user_files import file_of, load


def find(name: str | Objective) -> Objective:
    """The objective, or a ValueError that says in one line why there is none."""
    if isinstance(name, Objective):
        return name
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if file_of(name) is None:
        raise ValueError(
            f"unknown objective {name!r}: choose one of {', '.join(OBJECTIVES)}, or your own, FILE.py:NAME"
        )
    found, path, own = load(name), file_of(name), name.rpartition(":")[2]
    if isinstance(found, Objective):
        return found
    if not callable(found):
        raise ValueError(f"{path} defines no {own!r}. Give the name of a function (scores, groups, settings) in it")
    first, *_ = (found.__doc__ or "").strip().splitlines() or [""]
    # a token loss has (log_ratio, advantage, mask, group)
    kind = TokenLoss if len(inspect.signature(found).parameters) == 4 else Objective
    return kind(found, label=own, about=first, source=str(path))
