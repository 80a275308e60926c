"""The whole report through the command line: every file, and the page as a browser would parse it."""

import contextlib
import csv
import io
import json
import re
from argparse import Namespace

import invented_runs as invented
import pytest
import untrusted_text as untrusted

from real_openrlhf.base.errors import OBEYED
from real_openrlhf.base.files import ROLLOUTS
from real_openrlhf.cli import main
from real_openrlhf.report.read_runs import read_run


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Ten good runs on two tasks among broken folders: (what was printed, reasons, output folder)."""
    root = tmp_path_factory.mktemp("report")
    for algo, seeds in {"real": 3, "grpo": 3, "real_bce": 2}.items():
        for seed in range(1, seeds + 1):
            invented.write_run(root / "runs", algo, seed)
    for seed in (1, 2):
        invented.write_run(
            root / "runs", "real", seed, recipe="hard", name=f"hard-{seed}", flags={"--algo.real.tau": 0.1}
        )
    reasons = invented.break_folders(root / "runs") | {"gone": "no such folder"}
    folders = (root / "runs", root / "gone", root / "runs" / "hard-1")  # the last one for the second time
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["report", *map(str, folders), "--out", str(root / "out")]) == 0
    return printed.getvalue().splitlines(), reasons, root / "out"


def test_broken_folders_are_named_in_the_output_and_on_the_page(report):
    printed, reasons, out = report
    page = (out / "index.html").read_text()
    for name, reason in reasons.items():
        (line,) = [line for line in printed if f"/{name}: " in line]
        assert reason in line and f"/{name}</code>" in page
    assert f"10 runs reported, {len(reasons)} skipped" in printed
    assert len(printed) == len(reasons) + 2  # a line each


def test_every_figure_and_table_comes_in_all_its_forms(report):
    files = {str(path.relative_to(report[2])) for path in report[2].rglob("*") if path.is_file()}
    pictures = [f"{task}-{name}" for task in ("sums-cpu", "sums-hard") for name in ("dynamics", "scores")]
    pictures += ["sums-cpu-ablation", "sums-cpu-forest", "sums-hard-knobs"]
    expected = {f"figures/{n}.{s}" for n in pictures for s in ("png", "pdf", "csv")}
    sheets = [f"sums-cpu-{name}" for name in ("results", "differences", "ratios")] + [
        "sums-hard-results",
        "benchmarks",
    ]
    expected |= {f"tables/{n}.{s}" for n in sheets for s in ("md", "csv")}
    assert files == expected | {"index.html"}
    assert (report[2] / "figures/sums-cpu-dynamics.png").read_bytes().startswith(b"\x89PNG")
    assert (report[2] / "figures/sums-cpu-dynamics.pdf").read_bytes().startswith(b"%PDF")


def test_the_page_of_a_report_needs_no_network_and_no_script(report):
    """No network, no script: pictures are in the page."""
    text = (report[2] / "index.html").read_text()
    page = untrusted.Page()
    page.feed(text)
    assert page.wrong == [] and "@import" not in text and "url(http" not in text
    assert text.count('<img src="data:image/png;base64,iVBOR') == 7
    assert "width=device-width" in text and "prefers-color-scheme: dark" in text


def test_a_log_of_stock_openrlhf_is_read(tmp_path):
    """Written by OpenRLHF's own logger, with the text that it mixes in."""
    logging_utils = pytest.importorskip("openrlhf.utils.logging_utils")
    place = Namespace(tensorboard_dir=str(tmp_path), wandb=Namespace(run_name="gspo-seed4"))
    logger = logging_utils.TensorboardLogger(Namespace(logger=place))
    for step in (1, 2, 3):
        logger.log_train(step, {"policy_loss": 0.5 * step, "kl": None, "generated_samples": ("2+2=4", 1.0)})
    logger.log_eval(2, {"eval_aime24_pass1": 0.25})
    logger.close()
    run = read_run(tmp_path / "gspo-seed4")
    assert (run.algo, run.seed) == ("gspo", 4)
    assert run.logged["train"].to_dict() == {"policy_loss": {1: 0.5, 2: 1.0, 3: 1.5}}
    assert run.logged["eval"].to_dict() == {"eval_aime24_pass1": {2: 0.25}}


def test_a_map_is_figure_table_and_page(tmp_path):
    runs = invented.map_runs(tmp_path / "runs")
    words = ["report", str(runs), "--out", str(tmp_path / "out"), "--map", "actor.adam.lr", "train.batch_size"]
    assert main(words) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Where methods work and where they break" in page and "1 of 2" in page
    assert "<strong>Each cell is a setting of its own." in page and "By the mean over training" not in page
    assert (tmp_path / "out" / "figures" / "map.png").stat().st_size > 0
    with open(tmp_path / "out" / "figures" / "map.csv") as file:
        assert len(list(csv.DictReader(file))) == len(invented.MAP)
    assert "| 0.0001 | 64 | 0.850 ± 0.050 |" in (tmp_path / "out" / "tables" / "map.md").read_text()


# A whole report of runs whose names are markup, controls and paths: it shows them, and writes where it was told

PHASES = ("train", "eval")
HOSTILE = "<script>alert(1)</script>\x1b[2J../../$\\frac{\u202e|' onload='x"


def test_a_whole_report_of_hostile_runs(tmp_path, capsys):
    """Figures, tables and page, with the names where a run folder has some."""
    for number in (1, 2):
        flags = {"--algo.real.tau": HOSTILE, f"--actor.{HOSTILE}": HOSTILE}
        record = {"recipe": HOSTILE, "reason": HOSTILE, "status": "finished"}
        folder = invented.write_run(tmp_path / "runs", "real", number, flags=flags, name=f"run{number}", **record)
        meta = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(meta | {"name": HOSTILE, "algo": HOSTILE}))
        answers = [
            {"answer": HOSTILE, "label": label, "reward": 1, "weight": 1.0} for label in ("positive", "negative")
        ]
        rows = [
            {"phase": phase, "step": 1, "prompt": HOSTILE, "gold": HOSTILE, "rollouts": answers} for phase in PHASES
        ]
        (folder / ROLLOUTS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert {path for path in tmp_path.rglob("*") if out not in path.parents and path != out} == before
    assert {path.parent.name for path in out.rglob("*.*")} == {"report", "figures", "tables"}
    assert not OBEYED.search(capsys.readouterr().out)
    page = untrusted.Page()
    text = (out / "index.html").read_text()
    page.feed(text)
    assert page.wrong == [] and not OBEYED.search(text)
    assert not re.search("<script", text, re.IGNORECASE) and "&lt;script&gt;alert(1)" in text
    assert "<h3>Answers</h3>" in text and "1 of 2 right\n&lt;script" in text
