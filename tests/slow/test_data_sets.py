"""The real training files, counted before and after, against an independent count."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from real_openrlhf.cli import main

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
ENDING = " Let's think step by step and output the final answer within \\boxed{}."
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the training and benchmark files are not at {DATA}")


def prepare(tmp_path, what, source, *options):
    out = tmp_path / "out.jsonl"
    command = ["data", what, "--source", str(source), "--benchmarks", str(DATA / "benchmarks"), "--out", str(out)]
    assert main([*command, *options]) == 0
    manifest = json.loads(out.with_suffix(".manifest.json").read_text())
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == manifest["rows"]["written"]
    assert manifest["rows"]["kept"] + sum(manifest["rows"]["dropped"].values()) == manifest["rows"]["read"]
    return rows, manifest


def listed(tmp_path, part):
    return [json.loads(line) for line in (tmp_path / f"out.{part}.jsonl").read_text().splitlines()]


def squeezed(text):
    return " ".join(text.split())


def test_dapo_17k(tmp_path):
    source = DATA / "train" / "dapo-math-17k.parquet"
    before = pyarrow.parquet.read_table(source).to_pylist()
    golds = {}
    for row in before:
        problem = row["prompt"][0]["content"].rsplit("Let's think step by step", 1)[0]
        golds.setdefault(squeezed(problem), set()).add(int(row["reward_model"]["ground_truth"]))
    agreeing = {problem for problem, answers in golds.items() if len(answers) == 1}
    assert (len(before), len(golds), len(agreeing)) == (17398, 17188, 17183)

    rows, manifest = prepare(tmp_path, "dapo17k", source)
    assert manifest["rows"] == {
        "read": 17398,
        "kept": 17183,
        "written": 17183,
        "dropped": {"same problem text as an earlier row": 205, "same problem text with different golds": 10},
    }
    assert {squeezed(row["prompt"][0]["content"].removesuffix(ENDING)) for row in rows} == agreeing
    assert len({row["id"] for row in rows}) == 17183
    assert manifest["contamination"]["problems"] == len(listed(tmp_path, "contamination")) == 143


def test_deepscaler_parts_without_the_benchmarks(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in ("aime-train", "math-train"):
        (folder / f"{part}.json").symlink_to((DATA / "train" / f"{part}.json").resolve())
    before = [row for part in sorted(folder.iterdir()) for row in json.loads(part.read_text())]
    texts = {squeezed(row["problem"]) for row in before if row["answer"]}
    assert (len(before), sum(not row["answer"] for row in before)) == (975 + 7474, 4)

    rows, manifest = prepare(tmp_path, "deepscaler", folder, "--decontaminate")
    assert manifest["rows"]["read"] == len(before) and manifest["rows"]["dropped"]["no gold answer"] == 4
    kept = {squeezed(row["prompt"][0]["content"].removesuffix(ENDING)) for row in rows}
    dropped = listed(tmp_path, "dropped")
    unverified = {squeezed(row["problem"]) for row in dropped if row["reason"].startswith("the gold does not verify")}
    assert len(unverified) <= 0.002 * len(before), unverified
    contaminated = listed(tmp_path, "contamination")
    # six AIME problems stand in MATH-500 word for word
    assert sum(match["overlap"] == 1.0 and int(match["id"].split("-")[1]) < 975 for match in contaminated) == 6
    assert not {match["id"] for match in contaminated} & {row["id"] for row in rows}
    assert len(rows) == len(kept) == len(texts - unverified) - len(contaminated) and kept <= texts
