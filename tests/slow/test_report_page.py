"""The whole report through the command line: every file, and the page as a browser would parse it."""

import contextlib
import io

import invented_runs as invented
import pytest
import untrusted_text as untrusted

from real_openrlhf.cli import main


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Ten good runs on two tasks among broken folders: (what was printed, reasons, output folder)."""
    root = tmp_path_factory.mktemp("report")
    for algo, seeds in {"real": 3, "grpo": 3, "real_bce": 2}.items():
        for seed in range(1, seeds + 1):
            invented.write_run(root / "runs", algo, seed)
    for seed in (1, 2):
        other = {"recipe": "hard", "name": f"hard-{seed}", "flags": {"--algo.real.tau": 0.1}}
        invented.write_run(root / "runs", "real", seed, **other)
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
    drawn = [f"figures/{task}-{name}" for task in ("1-sums-cpu", "2-sums-hard") for name in ("dynamics", "weights")]
    sheets = [f"tables/1-sums-cpu-{name}" for name in ("summary", "results", "ratios")]
    sheets += ["tables/2-sums-hard-summary", "tables/2-sums-hard-results"]
    expected = {f"{name}.{suffix}" for name in drawn for suffix in ("png", "csv")}
    assert files == expected | {f"{name}.{suffix}" for name in sheets for suffix in ("md", "csv")} | {"index.html"}
    assert (report[2] / "figures/1-sums-cpu-dynamics.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_of_a_report_needs_no_network_and_no_script(report):
    """No network, no script: pictures are in the page."""
    text = (report[2] / "index.html").read_text()
    page = untrusted.Page()
    page.feed(text)
    assert page.wrong == [] and "@import" not in text and "url(http" not in text
    assert text.count('<img src="data:image/png;base64,iVBOR') == 4
    assert "width=device-width" in text and "prefers-color-scheme: dark" in text


def test_the_page_begins_with_a_summary_and_leaves_out_columns_that_never_vary(report):
    page = (report[2] / "index.html").read_text()
    assert "<details class=warn>" in page  # eleven skipped folders stand in no table's way
    assert "<h1>REAL vs REAL with BCE, GRPO on 2 tasks</h1>" in page
    assert page.index("Conclusion") < page.index("Training dynamics") < page.index("Results") < page.index("id=notes")
    assert "In every row: " in page and page.count(">Learning rate</th>") == 1  # of a task with one row
