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
    """Every third of them, or all."""
    assert len(PAIRS) >= 1_190 and len({(pair["gold"], pair["response"]) for pair in PAIRS}) == len(PAIRS)
    assert sum(not pair["equal"] for pair in PAIRS) >= 450  # saying yes to everything must not pass
    pairs = PAIRS if EVERY else PAIRS[::3]
    verdicts = [(pair, verify(pair["response"], pair["gold"])) for pair in pairs]
    false_positives = [pair for pair, verdict in verdicts if verdict.score == 1.0 and not pair["equal"]]
    right = sum(verdict.score == float(pair["equal"]) for pair, verdict in verdicts)
    assert not false_positives
    assert right >= 0.98 * len(pairs) and sum(not pair["equal"] for pair in pairs) >= len(pairs) / 3
