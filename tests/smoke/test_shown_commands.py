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
from dataclasses import dataclass
from pathlib import Path

import pytest
import shown_commands

from real_openrlhf.data.benchmarks import BENCHMARKS

BIN = Path(sys.prefix) / "bin"
COMMANDS = shown_commands.shown()
SECONDS = 300
FIRST_HOUR = re.compile("NAME|comparison|runs/")  # one builds on the other
ON_A_COPY = re.compile(r"DIR|my\.parquet|benchmarks |grade|tests/run.sh")


@dataclass(frozen=True)
class Run:
    words: str
    code: int = 0  # that it ends with


def entries(text: str) -> dict[str, Run]:
    """{what is shown: what is run}, in the order of the file, where commands that share a run may stand anywhere."""
    runs: dict[str, Run] = {}
    same: dict[str, str] = {}
    shown = behind = ""
    for line in filter(None, text.splitlines()):
        if line.startswith("+ "):
            behind = line[1:]
        elif not line.startswith(("#", " ")):
            shown = line
            runs[shown] = Run(line.partition(" [")[0] + behind if behind else line)
        elif other := re.match(" +as: (.*)", line):
            same[shown] = other[1]
        elif instead := re.match(r" +(?:exit (\d): )?(.*)", line):
            runs[shown] = Run(instead[2], int(instead[1] or 0))
    return runs | {shown: runs[other] for shown, other in same.items()}


ENTRIES = entries((shown_commands.ROOT / "tests/data/shown_commands.txt").read_text())


def test_every_command_that_is_shown_has_an_entry():
    missing = {command: page for command, page in COMMANDS.items() if command not in ENTRIES}
    assert not missing, "say in tests/data/shown_commands.txt what is run for these"


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

    write(folder / "my.parquet", 128)  # enough for a batch of any recipe
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
    started: dict[Run, Future] = {}
    lanes = [ThreadPoolExecutor(1) for _ in range(3)]
    for command, run in ENTRIES.items():
        if run not in started and command in wanted:
            lane = 0 if FIRST_HOUR.search(run.words) else 1 if ON_A_COPY.search(run.words) else 2
            started[run] = lanes[lane].submit(in_a_bare_shell, run.words, folder)
    yield lambda command: started[ENTRIES[command]].result()
    for lane in lanes:
        lane.shutdown(cancel_futures=True)


LEFT = {  # what must be there when a command has ended
    "bash examples/scripts/train_real_cpu.sh": ("runs/NAME/model/model.safetensors", "runs/NAME/curves.png"),
    "real-openrlhf eval --out RUN_DIR/eval": ("runs/NAME/eval/table.md", "runs/NAME/eval/samples.jsonl"),
    "bash examples/scripts/compare_cpu.sh": ("comparison/report/index.html", "comparison/runs/gspo-s1/metrics.jsonl"),
    "real-openrlhf grade --input in.jsonl --output out.jsonl": ("out.jsonl",),
    "real-openrlhf grade --grader gym --input gym.jsonl --output graded.jsonl": ("graded.jsonl",),
    "real-openrlhf data gym mixture.json --out data/mixture": ("data/mixture/train.jsonl", "data/mixture/test.jsonl"),
    "real-openrlhf report runs/* --out report": ("report/index.html",),
}


@pytest.mark.parametrize("command", [command for command in ENTRIES if command in COMMANDS], ids=str)
def test_a_shown_command_runs(command, result, folder):
    run, done = ENTRIES[command], result(command)
    said = f"{run.words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.returncode == run.code, said
    assert "Traceback" not in done.stderr, said
    for left in LEFT.get(command, ()):
        assert (folder / left).stat().st_size > 0, f"{left} is missing\n{said}"
    if "--json" in command:
        assert json.loads(done.stdout)["ok"], said


@pytest.mark.parametrize("command", ["bash examples/scripts/train_real_cpu.sh"])
def test_the_first_run_is_recorded_whole(command, result, folder):
    result(command)
    record = json.loads((folder / "runs/NAME/run.json").read_text())
    assert (record["name"], record["algo"], record["recipe"], record["seed"]) == ("NAME", "real", "cpu", 42)
    assert (record["status"], record["reason"]) == ("finished", None) and record["started"] <= record["finished"]
    assert record["flags"]["--actor.adam.lr"] == 1e-4 and record["flags"]["--train.colocate_all"] is True
    assert record["flags"]["--ckpt.path"] == str(folder / "runs/NAME/checkpoints")
    assert record["command"][1:5] == ["train", "--recipe", "cpu", "--max-steps"]
