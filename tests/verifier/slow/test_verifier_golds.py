"""The verifier on every real gold: itself, rewritten in equal ways, and mistaken for another."""

import importlib.util
import random
import re
from pathlib import Path

import pyarrow.parquet
import pytest

from real_openrlhf.verifier.extract import golds_of
from real_openrlhf.verifier.verdict import verify

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data"
BENCHMARKS = {"aime": 30, "aime25": 30, "amc": 83, "math": 500, "minerva": 272, "olympiad_bench": 675}
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data (benchmarks and training sets) is not here")


def labels(file: str) -> list:
    return [row["ground_truth"] for row in pyarrow.parquet.read_table(DATA / file)["reward_model"].to_pylist()]


def score(answer: str, label: object) -> float:
    return verify(f"So the answer is \\boxed{{{answer}}}", label).score


def rewritings(gold: str) -> list[str]:
    """Texts that say the same as `gold`; only changes that are sure to keep the meaning."""
    gold = gold.strip()
    formula = gold[1:-1] if gold.count("$") == 2 and gold[0] == gold[-1] == "$" else gold
    changed = [gold.replace("\\frac", "\\dfrac"), gold + ".", gold if "$" in gold else f"${gold}$"]
    if not re.search(r"\d\s*,\s*(\\!)?\s*\d{3}|\de", gold):
        changed.append(re.sub(r"(?<![\\{])([-+=,])", r" \1 ", gold))
    if not re.search(r"\\text|\\mbox|where", gold):
        changed.append(re.sub(r"(?<![a-zA-Z0-9,]) +| +(?![a-zA-Z0-9])", "", gold))
    if not re.search(r"[$=,]|\\in(?![a-z])", formula):
        changed.append("x = " + formula)
    fraction = re.fullmatch(r"(-?)(?:\\d?frac\{)?(\d+)(?:\}\{(\d+)\})?", formula)
    if fraction:
        changed.append(f"{fraction[1]}\\frac{{{3 * int(fraction[2])}}}{{{3 * int(fraction[3] or 1)}}}")
    return changed


@pytest.mark.parametrize("name", BENCHMARKS)
def test_golds_verify_as_they_are_and_rewritten(name):
    rows = labels(f"benchmarks/{name}.parquet")
    assert len(rows) == BENCHMARKS[name] and all(map(golds_of, rows))
    assert [gold for row in rows for gold in golds_of(row) if score(gold, row) != 1.0] == []
    golds = {gold for row in rows for gold in golds_of(row)}
    pairs = [(gold, text) for gold in golds for text in rewritings(gold)]
    failed = [pair for pair in pairs if score(pair[1], pair[0]) != 1.0]
    assert len(pairs) >= 5 * len(golds) and len(failed) <= 0.01 * len(pairs), failed


@pytest.mark.parametrize("name", BENCHMARKS)
def test_shuffled_golds_give_no_false_positive(name):
    """A positive must be confirmed by math-verify on its own: some rows have equal answers."""
    from math_verify import parse
    from math_verify import verify as confirm

    rows = [golds_of(row) for row in labels(f"benchmarks/{name}.parquet")]
    generator = random.Random(7)
    pairs = [pair for _ in range(3) for pair in zip(rows, generator.sample(rows, len(rows)), strict=True)]
    pairs = [(golds, other[0]) for golds, other in pairs if not set(golds) & set(other)]
    positives = [pair for pair in pairs if score(pair[1], list(pair[0])) == 1.0]
    false = [
        (golds, answer)
        for golds, answer in positives
        if not any(confirm(parse(f"${gold}$"), parse(f"${answer}$")) for gold in golds)
    ]
    assert len(pairs) > 2 * len(rows) and not false and len(positives) <= 0.01 * len(pairs)


def test_a_policy_that_copies_the_question_gets_nothing():
    """It boxes the last formula of the problem. docs/evidence/verifier.md has the numbers of more sets."""
    spec = importlib.util.spec_from_file_location("copying_policy", ROOT / "benchmarks/copying_policy.py")
    policy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(policy)
    problems = policy.read(DATA / "benchmarks/math.parquet")
    copies = [(copied[-1], label, problem) for problem, label, _ in problems if (copied := policy.formulas(problem))]
    before = sum(policy.right(copy, label) for copy, label, _ in copies)
    after = sum(policy.right(*one) for one in copies)
    assert len(problems) == 500 and before >= 35 and after <= 2
    lost = [
        problem for problem, label, _ in problems if verify(f"\\boxed{{{label}}}", label, prompt=problem).score != 1
    ]
    assert lost == []
