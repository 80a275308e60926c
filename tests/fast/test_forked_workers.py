"""What is forked is what Python would have been with the same words, and none outlives those who want it."""

import json
import os
import signal
import subprocess
import sys
import time

import forked_workers
import psutil
import pytest

from real_openrlhf.hooks.fixes import process_starts

CHILD = """
import json, os, sys, time
print(json.dumps({
    "words": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ), "imported": "colorsys" in sys.modules,
    "name": __name__, "pid": os.getpid(), "parent": os.getppid(), "input": sys.stdin.readline(),
    "path": sys.path[:2], "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
}), flush=True)
print("said", file=sys.stderr)
if sys.argv[1] == "stay":
    time.sleep(60)
sys.exit(int(sys.argv[1]))
"""
GIVEN = {"MARK": "of this one", "PATH": os.environ["PATH"], "PYTHONPATH": "/elsewhere"}


@pytest.fixture
def environment() -> dict[str, str]:
    # these tests may be forks
    return {name: value for name, value in os.environ.items() if name != forked_workers.PYTHON}


@pytest.fixture
def python(environment):
    with forked_workers.started(environment, ["colorsys"]) as (python, _):
        yield python


@pytest.fixture
def start(python, tmp_path):
    """start(word) -> the process in whose place a child is."""
    (tmp_path / "child.py").write_text(CHILD)
    started = []

    def start(word: str, *words: str) -> subprocess.Popen:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [python, *(words or [str(tmp_path / "child.py")]), word]
        environment = {**GIVEN, forked_workers.PYTHON: python}
        process = subprocess.Popen(command, **streams, text=True, cwd=tmp_path, env=environment)
        started.append(process)
        process.stdin.write("a line\n")
        process.stdin.flush()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen) -> dict:
    return json.loads(process.stdout.readline())


def gone(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_a_child_is_what_python_would_have_been_and_the_exit_code_is_its(start, tmp_path, how):
    script = str(tmp_path / "child.py")
    words = {"script": ["-B", script], "module": ["-m", "child"], "code": ["-c", CHILD]}[how]
    plain = subprocess.run(
        [sys.executable, *words, "7"], input="a line\n", capture_output=True, text=True, cwd=tmp_path,
        env=GIVEN,
    )  # fmt: skip
    process = start("7", *words)
    child, expected = told(process), json.loads(plain.stdout)
    assert (process.wait(10), process.stderr.read()) == (plain.returncode, plain.stderr) == (7, "said\n")
    assert child["imported"] and not expected["imported"] and child["pid"] != process.pid
    for name in ("words", "folder", "name", "input", "path", "open"):
        assert child[name] == expected[name], name
    assert child["environment"].keys() - expected["environment"] <= {forked_workers.PYTHON, "PWD", "LC_CTYPE"}
    assert expected["environment"].items() <= child["environment"].items()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_command_is_the_childs(start, number):
    process = start("stay")
    child = told(process)["pid"]
    process.send_signal(number)
    assert process.wait(10) == -number and gone(child)


def test_ray_starts_a_python_whose_path_has_a_space(monkeypatch):
    """Ray's own command for a worker lacks the quotes: each worker ended at once, and Ray waited 60 s for each."""
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert process_starts.quoted_python({"env_vars": {}}) == {"env_vars": {}, "py_executable": "'/a b/python'"}
