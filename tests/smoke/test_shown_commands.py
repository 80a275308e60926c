"""Every command that is shown is run, in a shell that has HOME and no environment; the hub is off.

Nothing is replaced, but some are forks of a Python that has imported torch and vLLM: most helps, and dry runs where
another one runs as it is typed.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from every import EVERY
from forked_workers import ALL, PYTHON

BIN = Path(sys.prefix) / "bin"
SECONDS = 1200
LANES = [  # in each of these one command builds on the other, or takes long
    re.compile("NAME|comparison|runs/"),
    re.compile(r"DIR|my\.parquet|benchmarks |grade|tests/run.sh|calc|guess|noisy"),
    re.compile(r"^python (docs|benchmarks|examples/results)|doctor"),
    re.compile(""),
]

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "*.md",
    "docs/**/*.md",
    "patches/*.md",
    "requirements/*.md",
    "benchmarks/*.md",
    "examples/*.md",
    "examples/*/*.md",
)
PAGES += ("examples/results/endings/*.md", "same_answer/*.md")
SCRIPTS = ("examples/*/*.sh", "examples/*/*.sbatch", "examples/*/*.py", "benchmarks/*.sh", "benchmarks/*.py")
SCRIPTS += ("docs/*.py", "requirements/*.py", "tests/run.sh", "same_answer/benchmarks/*.py")
PROGRAM = r"(?:[A-Z_]+=\S+ )*(?:bash|python|real-openrlhf|sbatch|pip|ray|pytest|\.ci/\w+)"
COMMAND = re.compile(rf"{PROGRAM} \S|\.ci/\w+$")  # a program with words of its own; one alone is a name
START = rf"(?:{PROGRAM} (?:-m )?\S*[/.]\S*|(?:real-openrlhf|sbatch) \S+ |eval \"\S+ \S+)"
IN_HEADER = re.compile(rf"(?:^\s*|: )({START}.*?)(?:,\s|\s{{2,}}|$)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _words(line: str) -> str:
    return " ".join(re.sub(r"\s#.*", "", line).split())


def of_page(text: str) -> Iterator[str]:
    for language, block in FENCED.findall(text):
        if language in ("", "bash"):
            yield from filter(None, map(_words, block.replace("\\\n", " ").splitlines()))
    yield from of_spans(FENCED.sub("", text))


def of_spans(text: str) -> Iterator[str]:
    return (span for span in re.findall(r"`([^`\n]+)`", text) if COMMAND.match(span))


def of_script(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".py":
        header = ast.get_docstring(ast.parse(text)) or ""
    else:
        header = "\n".join(re.findall(r"^# ?(.*)$", text.partition("\nset -")[0], re.MULTILINE))
    for line in header.splitlines():
        found = IN_HEADER.search(line)
        yield from [_words(found[1])] if found else of_spans(line)


def commands_shown() -> dict[str, str]:
    """{command: where it stands first}"""
    found: dict[str, str] = {}
    for patterns, commands in ((PAGES, lambda path: of_page(path.read_text())), (SCRIPTS, of_script)):
        for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
            for command in commands(path):
                found.setdefault(command, path.relative_to(ROOT).as_posix())
    return found


@dataclass(frozen=True)
class Run:
    words: str
    code: int = 0  # that it ends with
    forked: bool = False  # its Python is a fork


def entries(text: str) -> dict[str, Run]:
    """{what is shown: what is run}, in the order of the file."""
    runs: dict[str, Run] = {}
    shown = behind = ""
    for line in filter(None, text.splitlines()):
        if line.startswith("+ "):
            behind = line[1:]
        elif not line.startswith(("#", " ")):
            shown = line
            runs[shown] = Run(line.partition(" [")[0] + behind if behind else line, forked=bool(behind))
        elif other := re.match(" +also: (.*)", line):
            runs[other[1]] = runs[shown]
        elif other := re.match(" +else in a fork: (.*)", line):
            runs[shown] = runs[shown] if EVERY else Run(other[1], forked=True)
        elif instead := re.match(r" +(?:exit (\d): )?(in a fork: )?(.*)", line):
            runs[shown] = Run(instead[3], int(instead[1] or 0), bool(behind or instead[2]))
    return runs


COMMANDS = commands_shown()
ENTRIES = entries((ROOT / "tests/data/shown_commands.txt").read_text())


def test_every_command_that_is_shown_has_an_entry():
    missing = {command: page for command, page in COMMANDS.items() if command not in ENTRIES}
    assert not missing, "say in tests/data/shown_commands.txt what is run for these"


def test_every_entry_is_shown():
    assert [command for command in ENTRIES if command not in COMMANDS] == []


@pytest.fixture(scope="session")
def folder(tmp_path_factory, benchmarks) -> Path:
    """With what the pages' commands read: answers to grade, problems to prepare, benchmarks."""
    import pyarrow
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("smoke")
    (folder / "examples").symlink_to(ROOT / "examples")
    answers = [{"response": rf"\boxed{{{number}}}", "label": "2"} for number in (1, 2)]
    (folder / "in.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    sums = [{"prompt": f"{number}=", "label": str(number)[::-1], "id": str(number)} for number in (1234, 5678)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in sums))
    rows = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(128)]  # a batch of any recipe
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "my.parquet")
    (folder / "benchmarks").symlink_to(benchmarks)
    return folder


def in_a_bare_shell(run: Run, folder: Path, forks: tuple[str, dict[str, str]]) -> subprocess.CompletedProcess:
    ours = re.match(r"real-openrlhf|less", run.words)
    place = folder if ours else ROOT
    command = run.words if "examples/scripts/" in run.words else f"source '{BIN}/activate' && {run.words}"
    words = ["HOME=" + os.environ["HOME"], "PATH=/usr/bin:/bin", f"OUT={folder}", "HF_HUB_OFFLINE=1"]
    if run.forked:
        python, environment = forks
        words += [f"{name}={environment[name]}" for name in (PYTHON, "PYTHONPATH")] + [f"{ALL}=1"]
        command = f'python() {{ {python} "$@"; }}; real-openrlhf() {{ python -m real_openrlhf.cli "$@"; }}; {command}'
    words += [f"GIT_{who}_{what}=smoke" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    words += [f"REAL_VENV={sys.prefix}"] if BIN.parent != ROOT / ".venv" else []
    words = ["env", "-i", *words, "bash", "-c", command]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, errors="replace", timeout=SECONDS)


@pytest.fixture(scope="session")
def result(folder, forked, request) -> Callable[[str], subprocess.CompletedProcess]:
    """What came of a command; all that are asked for begin at once, in lanes."""
    items = [item for item in request.session.items if item.path == Path(__file__) and "result" in item.fixturenames]
    wanted = {item.callspec.params["command"] for item in items}  # other files of the session have a `result` too
    started: dict[Run, Future] = {}
    lanes = [ThreadPoolExecutor(1) for _ in LANES]
    for command, run in ENTRIES.items():
        if run not in started and command in wanted:
            lane = next(number for number, words in enumerate(LANES) if words.search(run.words))
            started[run] = lanes[lane].submit(in_a_bare_shell, run, folder, forked)
    yield lambda command: started[ENTRIES[command]].result()
    for lane in lanes:
        lane.shutdown(cancel_futures=True)


LEFT = {  # what must be there when a command has ended
    "bash examples/scripts/train_real_cpu.sh": ("runs/NAME/model/model.safetensors", "runs/NAME/metrics.jsonl"),
    "real-openrlhf eval --out RUN_DIR/eval": ("runs/NAME/eval/table.md", "runs/NAME/eval/samples.jsonl"),
    "real-openrlhf grade --input in.jsonl --output ours.jsonl": ("ours.jsonl",),
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
