"""The labelled pairs of answers, on which verifiers differ."""

import json
from pathlib import Path

from every import EVERY

from real_openrlhf.rewards.verifier.verdict import verify

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "tricky_pairs.jsonl").read_text(encoding="utf-8").splitlines()
]


def test_tricky_pairs():
    """No wrong answer counts, and most right ones do: docs/verifier.md says which kinds were given up."""
    pairs = PAIRS if EVERY else [pair for number, pair in enumerate(PAIRS) if not pair["equal"] or number % 3 == 0]
    verdicts = [(pair, verify(pair["response"], pair["gold"])) for pair in pairs]
    assert [pair for pair, verdict in verdicts if verdict.score == 1.0 and not pair["equal"]] == []
    right = [verdict.score == 1.0 for pair, verdict in verdicts if pair["equal"]]
    assert sum(right) >= 0.74 * len(right)
