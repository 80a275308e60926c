"""rollouts.jsonl: the fields of a prompt and its responses, and the choice of the groups that are logged.

Training and metrics do not depend on this file, and no random number is drawn for it.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.hooks.controller.groups import groups_of

LABELS = {POSITIVE: "positive", NEGATIVE: "negative", UNPARSABLE: "negative", IGNORED: "ungraded"}
LETTERS = {"prompt": 2000, "gold": 400, "answer": 4000}  # at most, half from a text's start and half from its end
Weighed = tuple[float | None, float | None]  # score, weight


class RolloutLogger:
    """Chooses and formats groups; each sample is an Experience of OpenRLHF with one rollout."""

    def __init__(self, args: Any, tokenizer: Any) -> None:
        self.args, self.tokenizer = args, tokenizer

    def of_step(self, samples: list, tables: Iterable[Tensor]) -> list[dict]:
        """The groups to keep of a step. Scores and weights come from REAL's tables; built-in losses have none."""
        weighed, groups, logged = in_last_update(tables), groups_of(samples, self.args), []
        labels = [{LABELS[sample.label] for sample in own} for own in groups]
        for group in choose(labels, weighed, self.args.logger.rollout_groups):
            own = groups[group]
            gold = expected_answer(str(own[0].labels[0]))
            question = {"prompt": cut("prompt", own[0].prompts[0]), "gold": cut("gold", gold)}
            rows = zip(own, weighed.get(group, [(None, None)] * len(own)), strict=True)
            logged.append(question | {"rollouts": [self.rollout(sample, *row) for sample, row in rows]})
        return logged

    def rollout(self, sample: Any, score: float | None, weight: float | None) -> dict:
        tokens = sample.sequences[0][1:][sample.action_mask[0].bool()]
        answer = cut("answer", self.tokenizer.decode(tokens, skip_special_tokens=True))
        numbers = {"reward": number(sample.rewards), "score": score, "weight": weight, "tokens": len(tokens)}
        return {"answer": answer, "label": LABELS[sample.label], **numbers, "truncated": bool(sample.truncated[0])}


def in_last_update(tables: Iterable[Tensor]) -> dict[int, list[Weighed]]:
    """{group: its rollouts in the last update that trained it}, in the order of training.

    The weight's sign is flipped: a positive weight makes the response more likely.
    """
    rows: dict[int, list[Weighed]] = {}
    for table in tables:
        for group in table[0].unique().tolist():
            rows.pop(int(group), None)
            rows[int(group)] = [
                (None if math.isnan(score) else score, 0.0 - weight)
                for score, weight in table[1:, table[0] == group].T.tolist()
            ]
    return rows


def choose(labels: Sequence[set[str]], trained: Iterable[int], count: int) -> list[int]:
    """The first groups drawn, then the mixed group that was trained last: by then its scores had moved most."""
    drawn = range(len(labels))
    last = [group for group in (*drawn, *trained) if {"positive", "negative"} <= labels[group]][-1:]
    return [*(group for group in drawn if group not in last)][: count - len(last)] + last


def expected_answer(label: str) -> str:
    """The label, or its `answer` if the label is an object that has one."""
    try:
        return str(json.loads(label)["answer"])
    except (LookupError, TypeError, ValueError):
        return label


def number(column: Tensor | None) -> float | None:
    """The column's number, or None for nan and infinity, which JSON does not have."""
    value = math.nan if column is None else float(column[0])
    return value if math.isfinite(value) else None


def cut(name: str, text: str) -> str:
    half, left_out = LETTERS[name] // 2, len(text) - LETTERS[name]
    return text if left_out <= 0 else f"{text[:half]} ... [{left_out} letters left out] ... {text[-half:]}"
