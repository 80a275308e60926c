"""A reward for TRL: `GRPOTrainer(reward_funcs=[accuracy_reward], ...)`, with the name and columns of TRL's own."""

from collections.abc import Callable
from typing import Any

from same_answer import extract, verify

Text = str | list[dict[str, Any]]  # the last message of a conversation counts


def accuracy_reward(
    completions: list[Text],
    solution: list[str],
    prompts: list[Text] | None = None,
    log_extra: Callable[[str, list], None] | None = None,
    **columns: object,
) -> list[float | None]:
    """1.0, 0.0, or None for ungraded: TRL leaves such a response out of its group. A solution may be worked out."""
    golds = [extract.boxed_answer(text) or text if isinstance(text, str) else text for text in solution]
    rows = zip(completions, golds, prompts or [""] * len(golds), strict=True)
    verdicts = [verify(_text(completion), gold, prompt=_text(prompt)) for completion, gold, prompt in rows]
    if log_extra:
        log_extra("verdict", [verdict.reason for verdict in verdicts])
    return [None if verdict.ungraded else verdict.score for verdict in verdicts]


def _text(text: Text) -> str:
    return text if isinstance(text, str) else str((text[-1].get("content") if text else "") or "")
