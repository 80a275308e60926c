"""The pages say what the committed runs and the code say."""

import json
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from invented_runs import map_run, write_lines, write_run

from real_openrlhf.cli import main
from real_openrlhf.report.read_runs import campaign_records
from real_openrlhf.runs.provenance import irreproducible

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "examples" / "results"


sys.path.insert(0, str(RESULTS))
import check  # noqa: E402 (its files import each other by name)
import refresh  # noqa: E402
import sentences  # noqa: E402


def curve(campaign: str, run: str) -> list[float]:
    """pass@1 of each evaluation in order, without the project's reader."""
    evals = check.campaign(campaign)[run].evals
    return [evals[step] for step in sorted(evals)]


EDGE = [("3e-4", 64), ("3e-4", 16), ("1e-3", 64)]  # the columns of the page's table, five seeds each


@pytest.mark.parametrize(
    "algo, label",
    [
        *(("real", "REAL"), ("real_constant", "REAL, constant weights"), ("real_balanced", "REAL, balanced")),
        *(("grpo", "GRPO"), ("gspo", "GSPO"), ("cispo", "CISPO")),
    ],
)
def test_the_typed_table_of_the_maps_edge_is_of_the_runs(algo, label):
    """A table of the page that is typed: ends and collapses from the logged lines."""
    cells, collapsed = [], 0
    for rate, batch in EDGE:
        ends = []
        for seed in range(1, 6):
            found = curve("map", f"{algo}-lr-{rate}-batch_size-{batch}-s{seed}")
            ends.append(found[-1])
            collapsed += found[-1] < max(found) / 2
        cells.append(f"{statistics.mean(ends):.3f} ± {statistics.stdev(ends) / math.sqrt(5):.3f}")
    row = f"| {label} | {' | '.join(cells)} | {collapsed} of 15 |"
    assert row in (RESULTS / "archive" / "README.md").read_text().splitlines()


def test_the_ends_that_the_page_lists_of_single_runs():
    page = (RESULTS / "archive" / "README.md").read_text()
    for rate in ("1e-4", "4e-4"):
        for algo, label in {"real": "REAL", "grpo": "GRPO", "cispo": "CISPO"}.items():
            ends = [curve("stale", f"{algo}-lr-{rate}-async_queue_size-{size}-s1")[-1] for size in (1, 2, 4, 8)]
            assert f"| {label} | {rate} | {' | '.join(f'{end:.2f}' for end in ends)} |" in page.splitlines()
    algos = "real", "real_constant", "real_balanced", "grpo"
    real, constant, balanced, grpo = (curve("rates", f"tune-sums-rates/{algo}-lr-4e-4-s1")[-1] for algo in algos)
    said = f"at 4e-4 REAL ends at {real:.2f} and constant weights at {constant:.2f}, balanced REAL at {balanced:.2f}"
    assert f"{said} and GRPO at {grpo:.2f}" in " ".join(page.split())


def ends(campaign: str, run: str) -> dict[str, float]:
    """The last pass@1 of each run of this name, by seed."""
    found = {
        name: curve(campaign, name)[-1] for name in check.campaign(campaign) if re.fullmatch(rf"{run}-s\d+", name)
    }
    assert found, run
    return {name.rpartition("-s")[2]: end for name, end in found.items()}


def said(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def test_the_ends_and_differences_that_are_typed_recomputed():
    page = " ".join((RESULTS / "archive" / "README.md").read_text().split())
    mixed = {"dapo": "DAPO", "real_no_anchor": "REAL without anchor", "grpo": "GRPO", "real": "REAL"}
    mixed |= {"real_constant": "constant weights", "real_bce": "BCE", "gspo": "GSPO"}
    for algo, label in mixed.items():
        assert f"{label} {said([*ends('archive', f'mixed/{algo}').values()])}" in page
    hard = [said([*ends("archive", f"hard/{name}").values()]) for name in ("real", "real-uniform_groups-keep", "grpo")]
    assert f"REAL ends at {hard[0]}, with `keep` at {hard[1]}," in page and f"GRPO at {hard[2]}; three seeds" in page
    demo = [said([*ends("smollm2-demo", name).values()]) for name in ("real-lr-3e-5", "gspo-lr-6e-5", "grpo-lr-6e-5")]
    assert "REAL ends at {}, GSPO at {}, GRPO at {}.".format(*demo) in page
    real = ends("smollm2", "real-lr-3e-05")
    for label, folder, run in (
        ("random labels", "smollm2", "real-lr-3e-05-labels-.*"),
        ("right answers only", "smollm2-controls", "real-lr-3e-5-labels-.*"),
        ("constant weights", "smollm2-controls", "real_constant-lr-3e-5"),
        ("GRPO", "smollm2", "grpo-lr-3e-05"),
        ("listwise targets", "smollm2-controls", "listwise-lr-3e-5"),
    ):
        assert f"| {label} | {said([end - real[seed] for seed, end in ends(folder, run).items()])} |" in page


def test_every_number_of_the_readme_and_the_results_is_that_of_the_records(capsys):
    assert check.main() == 0, capsys.readouterr().err
    for name in ("check.py", "sentences.py"):
        assert "real_openrlhf" not in re.sub("#.*", "", (RESULTS / name).read_text())


WRONG = {  # on the page, what stands in its place, what the check says
    "| 0.497 ± 0.021 |": ("| 0.498 ± 0.021 |", "'0.498 ± 0.021'"),
    "0.199 ± 0.058": ("0.198 ± 0.058", "does not say: weights lose 0.199"),
    "## What to set": ("REAL gains 0.123.\n\n## What to set", "nothing here computes 0.123"),
    "| at most 0.03 | 9 |": ("| at most 0.03 | 8 |", "places by_z: ['at most 0.03', '8'"),
}


def test_the_check_sees_every_number_that_is_not_of_the_records(tmp_path, monkeypatch, capsys):
    text = check.RESULTS.read_text()
    for before, (after, _) in WRONG.items():
        assert before in text
        text = text.replace(before, after)
    page = tmp_path / "results.md"
    page.write_text(text)
    for module in (check, sentences):
        monkeypatch.setattr(module, "RESULTS", page)
    assert check.main() == 1
    said = capsys.readouterr().err
    for _, complaint in WRONG.values():
        assert complaint in said


def test_the_page_for_the_reader_is_short_and_its_tables_are_of_the_runs(monkeypatch):
    page = (ROOT / "docs/evidence/results.md").read_text()
    assert len([word for word in page.split() if re.search(r"\w", word)]) <= 1500
    assert [*refresh.problems()] == []


def test_a_table_that_is_not_of_the_runs_is_named(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: tune results columns Setting|Runs -->\n| REAL | 99 runs |\n<!-- end -->\n")
    assert "| REAL | 5 runs |" in refresh.filled(page)
    monkeypatch.setattr(refresh, "PAGES", (*refresh.PAGES, page))
    assert [*refresh.problems()] == [f"{page} is not what {RESULTS} says"]


def block_of_next(*words: str, **environment: str) -> str:
    run = ["/bin/bash", "examples/results/next/run.sh", *words, "--dry-run"]
    done = subprocess.run(
        run, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "SMOKE": "1", **environment}
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


def test_a_block_of_the_next_experiments_is_a_command_that_trains():
    """With one arm; the others are tried below."""
    assert "nothing is wrong" in block_of_next("ratio", "--algos", "real") and not (ROOT / "comparison/next").exists()


@pytest.mark.parametrize("block", ["ratio", "old"])  # the others have the same arms
def test_every_cell_of_the_next_experiments_is_accepted_and_its_objectives_load(block, tmp_path, monkeypatch, capsys):
    """Dry runs in this process, with the words that the script gives to compare_cpu.sh."""
    shell = tmp_path / "bash"
    shell.write_text("#!/bin/sh\nshift\nprintf '%s\\n' compare \"$@\" ''\n")
    shell.chmod(0o755)
    commands = block_of_next(block, PATH=f"{tmp_path}:{os.environ['PATH']}").strip().split("\n\n")
    monkeypatch.chdir(ROOT)
    for words in commands:
        assert main(words.splitlines()) == 0, capsys.readouterr()
    assert len(commands) == {"ratio": 1, "old": 2}[block]


def test_committed_runs_say_what_they_are_and_nothing_of_the_machine():
    folders = sorted(path.parent for path in RESULTS.rglob("campaign.json"))
    assert len(folders) >= 8
    for folder in folders:
        records, sources = campaign_records(folder)
        assert len(sources) == 2 * len(records) and all(re.fullmatch("[0-9a-f]{64}", sha) for sha in sources.values())
        for name, record in records.items():
            told = folder.name == "map" or name.startswith("weights-small/")  # pages show which runs broke, and why
            broke = record["status"] == "failed" and told and record["reason"]
            assert (record["status"] == "finished" or broke) and record["code_version"] and record["seed"] >= 1
            assert not re.search(r'"/(?!dev)', json.dumps(record)), name  # no absolute path


def test_new_campaigns_can_be_made_again():
    """Those of the first release are what they are; archive/README.md says what is known of them."""
    early = {"map", "stale", "tune", "tune-hard", "tune-hard-rates", "tune-rates", "tune-sums", "tune-sums-rates"}
    early |= {"mixed", "knobs", "hard", "more", "deal"}
    campaigns: dict[str, list[dict]] = {}
    for folder in (path.parent for path in RESULTS.rglob("campaign.json")):
        for name, record in campaign_records(folder)[0].items():
            campaigns.setdefault(name.rpartition("/")[0] or folder.name, []).append(record)
    for name, records in campaigns.items():
        if name not in early or any("tree" in record for record in records):
            assert not any(map(irreproducible, records)), name


def best_rates(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, RESULTS / "best_rates.py", *words], capture_output=True, text=True)


def test_the_best_rate_of_each_method_is_of_the_tuning_seeds(tmp_path):
    """By the mean of the last validations; seeds that are kept for later, and runs that failed, do not decide."""
    ends = {("real", 1e-4): [0.5, 0.7], ("real", 2e-4): [0.9, 0.1], ("real", 4e-4): [0.6, 0.6]}
    ends |= {("grpo", 1e-4): [0.2, 0.2], ("grpo", 2e-4): [0.8, 0.9, 0.0], ("grpo", 4e-4): [1.0]}
    for (algo, rate), values in ends.items():
        for seed, end in enumerate(values, 1):
            status = "failed" if rate == 4e-4 and algo == "grpo" else "finished"
            map_run(tmp_path, algo, rate, 64, seed, [end, end], status=status)
    done = best_rates(str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["grpo --actor.adam.lr 0.0002", "real --actor.adam.lr 0.0001"]
    done = best_rates("--seeds=3", str(tmp_path))
    assert "grpo --actor.adam.lr 0.0002" in done.stdout  # 0.57 with the third seed


def test_best_rates_tell_objectives_in_files_apart_and_count_any_updates_if_asked(tmp_path):
    """`--algo.real.set` is a list of words in a record."""
    own = {"--algo.real.objective": "oapl.py:oapl", "--algo.real.set": ["beta=1.0", "score=log_prob"]}
    ends = (own, 1e-4, 0.2), (own, 2e-4, 0.3), ({}, 1e-4, 0.5), ({}, 2e-4, 0.4)
    for number, (flags, rate, end) in enumerate(ends):
        flags = {**flags, "--actor.adam.lr": rate, "--train.batch_size": 256}
        folder = write_run(tmp_path, "real", 1, 2, flags, f"real-{number}-s1")
        write_lines(folder, [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)])
    assert best_rates(str(tmp_path)).stdout == ""
    done = best_rates("--any-updates", str(tmp_path))
    first = "oapl.py:oapl --algo.real.set beta=1.0 score=log_prob --actor.adam.lr 0.0002"
    told = [f"real --algo.real.objective {one}" for one in (first, "real --actor.adam.lr 0.0001")]
    assert sorted(done.stdout.splitlines()) == told


def test_best_rates_keep_the_flags_of_a_method_that_has_one_arm(tmp_path):
    """The runs after the tuning of `old` trained GRPO without its correction: no other run of GRPO told it apart."""
    fix = {"--algo.advantage.is_correction_level": "token", "--algo.advantage.is_correction_threshold": 2}
    for rate, end in (1e-4, 0.2), (2e-4, 0.3):
        for algo, own in (("grpo", fix), ("cispo", {"--actor.policy_loss_type": "cispo"})):
            folder = write_run(tmp_path, algo, 1, 2, {**own, "--actor.adam.lr": rate}, f"{algo}-{rate}-s1")
            write_lines(folder, [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)])
    corrected = "grpo " + " ".join(f"{flag} {value}" for flag, value in fix.items())
    done = sorted(best_rates(str(tmp_path)).stdout.splitlines())
    assert done == ["cispo --actor.adam.lr 0.0002", f"{corrected} --actor.adam.lr 0.0002"]
