"""Every command that is shown is run for real, in a shell that has HOME and no environment; nothing is replaced.

The hub is off, so that a machine with a network and one without see the same.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import shown_commands
import smoke_table as table

from real_openrlhf import cli
from real_openrlhf.data.benchmarks import BENCHMARKS

BIN = Path(sys.prefix) / "bin"
COMMANDS = shown_commands.shown()
SECONDS = 300
FIRST_HOUR = re.compile("NAME|comparison|report|runs/")  # one builds on the other
ON_A_COPY = re.compile(r"DIR|my\.parquet|benchmarks |grade|tests/run.sh")


def entries() -> dict[str, str]:
    """{what is shown: what is run}, in the order in which it is run"""
    groups = ((table.AS_TYPED, ""), (table.DRY_RUN, " --dry-run"), (table.HELP, " --help"))
    found = dict(table.INSTEAD)
    for text, behind in groups:
        for line in text.strip().splitlines():
            found[line] = line.partition(" [")[0] + behind if behind else line
    return found


ENTRIES = entries()


def test_every_command_that_is_shown_has_an_entry():
    missing = {command: page for command, page in COMMANDS.items() if command not in ENTRIES}
    assert not missing, "say in tests/smoke_table.py what is run for these"


def test_every_entry_is_shown():
    assert [command for command in ENTRIES if command not in COMMANDS] == []


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """With what the pages' commands read: answers to grade, problems to prepare, benchmarks of the right size."""
    import pyarrow
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("smoke")
    (folder / "examples").symlink_to(shown_commands.ROOT / "examples")
    answers = [{"response": rf"\boxed{{{number}}}", "label": "2"} for number in (1, 2)]
    (folder / "in.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    sums = [{"prompt": f"{number}=", "label": str(number)[::-1], "id": str(number)} for number in (1234, 5678)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in sums))

    def write(path: Path, rows: int) -> None:
        problems = [f"What is {row} + {rows}?" for row in range(rows)]
        answers = [str(row + rows) for row in range(rows)]
        parquet.write_table(pyarrow.table({"problem": problems, "answer": answers}), path)

    write(folder / "my.parquet", 3)
    (folder / "benchmarks").mkdir()
    for benchmark in BENCHMARKS.values():
        write(folder / "benchmarks" / f"{benchmark.stem}.parquet", benchmark.rows)
    return folder


def in_a_bare_shell(command: str, folder: Path) -> subprocess.CompletedProcess:
    ours = re.match(r"real-openrlhf|less", command)
    place = folder if ours else shown_commands.ROOT
    activate = "" if "examples/scripts/" in command else f"source '{BIN}/activate' && "
    words = ["HOME=" + os.environ["HOME"], "PATH=/usr/bin:/bin", f"OUT={folder}", "HF_HUB_OFFLINE=1"]
    words += [f"GIT_{who}_{what}=smoke" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    words += [f"REAL_VENV={sys.prefix}"] if BIN.parent != shown_commands.ROOT / ".venv" else []
    words = ["env", "-i", *words, "bash", "-c", activate + command]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, errors="replace", timeout=SECONDS)


@pytest.fixture(scope="session")
def result(folder, request) -> Callable[[str], subprocess.CompletedProcess]:
    """What came of a command; all that are asked for begin at once, in three lanes."""
    wanted = {item.callspec.params["command"] for item in request.session.items if "result" in item.fixturenames}
    started: dict[str, Future] = {}
    lanes = [ThreadPoolExecutor(1) for _ in range(3)]
    for command, run in ENTRIES.items():
        if run not in started and command in wanted:
            lane = 0 if FIRST_HOUR.search(run) else 1 if ON_A_COPY.search(run) else 2
            started[run] = lanes[lane].submit(in_a_bare_shell, run, folder)
    yield lambda command: started[ENTRIES[command]].result()
    for lane in lanes:
        lane.shutdown(cancel_futures=True)


@pytest.mark.parametrize("command", [command for command in ENTRIES if command in COMMANDS], ids=str)
def test_a_shown_command_runs(command, result, folder):
    done = result(command)
    said = f"{ENTRIES[command]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.returncode == table.EXIT.get(ENTRIES[command], 0), said
    assert "Traceback" not in done.stderr, said
    for left in LEFT.get(ENTRIES[command], ()):
        assert (folder / left).stat().st_size > 0, f"{left} is missing\n{said}"
    if "--json" in command:
        assert json.loads(done.stdout)["ok"], said


LEFT = {  # what must be there when they have ended
    table.TRAIN: ("runs/NAME/model/model.safetensors", "runs/NAME/curves.png", "runs/NAME/metrics.jsonl"),
    table.EVAL: ("runs/NAME/eval/table.md", "runs/NAME/eval/samples.jsonl"),
    table.COMPARE: ("comparison/report/index.html", "comparison/runs/grpo-s1/metrics.jsonl"),
    "real-openrlhf grade --input in.jsonl --output out.jsonl": ("out.jsonl",),
    "real-openrlhf report runs/* --out report": ("report/index.html",),
}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_subcommand_runs_beyond_its_help(name):
    runs = " ".join(run for run in ENTRIES.values() if "--help" not in run)
    assert f"real-openrlhf {name} " in runs or name in ("train", "compare") and f"/{name}" in runs
