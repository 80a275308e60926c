"""The verifier on every real gold: itself, rewritten in equal ways, and mistaken for another."""

import random
import re
from pathlib import Path

import pytest

from real_openrlhf.rewards.verifier.extract import golds_of
from real_openrlhf.rewards.verifier.verdict import verify

DATA = Path(__file__).parents[3] / "shared" / "data"
BENCHMARKS = {"aime": 30, "aime25": 30, "amc": 83, "math": 500, "minerva": 272, "olympiad_bench": 675}
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data (benchmarks and training sets) is not here")


def labels(file: str) -> list:
    parquet = pytest.importorskip("pyarrow.parquet")
    return [row["ground_truth"] for row in parquet.read_table(DATA / file)["reward_model"].to_pylist()]


def score(answer: str, label: object) -> float:
    return verify(f"So the answer is \\boxed{{{answer}}}", label).score


def rewritings(gold: str) -> dict[str, str]:
    """Texts that say the same as `gold`, by the kind of change; only changes that are sure to keep the meaning."""
    gold = gold.strip()
    formula = gold[1:-1] if gold.count("$") == 2 and gold[0] == gold[-1] == "$" else gold
    changed = {
        "dfrac": gold.replace("\\frac", "\\dfrac"),
        "trailing dot": gold + ".",
        "dollars": gold if "$" in gold else f"${gold}$",
    }
    if not re.search(r"\d\s*,\s*(\\!)?\s*\d{3}|\de", gold):
        changed["more spaces"] = re.sub(r"(?<![\\{])([-+=,])", r" \1 ", gold)
    if not re.search(r"\\text|\\mbox|where", gold):
        changed["fewer spaces"] = re.sub(r"(?<![a-zA-Z0-9,]) +| +(?![a-zA-Z0-9])", "", gold)
    if (
        gold.count("(") == gold.count(")")
        and gold.count("[") == gold.count("]")
        and not re.search(r"\\left|\\sqrt\[", gold)
    ):
        changed["left and right"] = re.sub(r"([)\]])", r"\\right\1", re.sub(r"([(\[])", r"\\left\1", gold))
    if not re.search(r"[$=,]|\\in(?![a-z])", formula):
        changed["x ="] = "x = " + formula
    if re.fullmatch(r"-?\d+", gold):
        changed["point zero"] = gold + ".0"
        changed["reducible"] = f"\\frac{{{3 * int(gold)}}}{{3}}"
    fraction = re.fullmatch(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}", formula)
    if fraction:
        changed["reducible"] = f"{fraction[1]}\\frac{{{3 * int(fraction[2])}}}{{{3 * int(fraction[3])}}}"
    return changed


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_gold_verifies_against_itself(name):
    rows = labels(f"benchmarks/{name}.parquet")
    assert len(rows) == BENCHMARKS[name]
    failed = [gold for row in rows for gold in golds_of(row) if score(gold, row) != 1.0]
    assert all(golds_of(row) for row in rows) and not failed


@pytest.mark.parametrize("name", BENCHMARKS)
def test_rewritten_golds_verify(name):
    golds = {gold for row in labels(f"benchmarks/{name}.parquet") for gold in golds_of(row)}
    pairs = [(gold, kind, text) for gold in golds for kind, text in rewritings(gold).items()]
    failed = [pair for pair in pairs if score(pair[2], pair[0]) != 1.0]
    assert len(pairs) >= 5 * len(golds)
    assert len(failed) <= 0.01 * len(pairs), failed


@pytest.mark.parametrize("name", BENCHMARKS)
def test_shuffled_golds_give_no_false_positive(name):
    """A positive must be confirmed by math-verify on its own: some rows have equal answers."""
    from math_verify import parse
    from math_verify import verify as confirm

    rows = [golds_of(row) for row in labels(f"benchmarks/{name}.parquet")]
    generator = random.Random(7)
    positives = []
    compared = 0
    for _ in range(3):
        others = generator.sample(rows, len(rows))
        for golds, other in zip(rows, others, strict=True):
            if set(golds) & set(other):
                continue
            compared += 1
            if score(other[0], list(golds)) == 1.0:
                positives.append((golds, other[0]))
    assert compared > 2 * len(rows)
    false = [
        (golds, answer)
        for golds, answer in positives
        if not any(confirm(parse(f"${gold}$"), parse(f"${answer}$")) for gold in golds)
    ]
    assert not false and len(positives) <= 0.01 * compared


def test_dapo_golds():
    """All integers: the truth about a shuffled pair is plain integer arithmetic."""
    rows = labels("train/dapo-math-17k.parquet")
    assert len(rows) == 17_398
    assert [gold for gold in rows if score(gold, gold) != 1.0] == []
    shuffled = random.Random(7).sample(rows, len(rows))
    wrong = [
        (gold, answer)
        for gold, answer in zip(rows, shuffled, strict=True)
        if score(answer, gold) != float(int(gold) == int(answer))
    ]
    assert wrong == []
    spelled = [gold for gold in rows if score(f"x = \\frac{{{2 * int(gold)}}}{{2}}.", gold) != 1.0]
    assert spelled == []
