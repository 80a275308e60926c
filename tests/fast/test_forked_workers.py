"""What is forked is what Python would have been with the same words, and none outlives those who want it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
SPAWNS = """
import multiprocessing, sys
def job():
    print("colorsys" in sys.modules, flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=job)
    process.start()
    process.join()
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


def test_what_a_child_spawns_is_forked_too(start, tmp_path):
    (tmp_path / "spawns.py").write_text(SPAWNS)
    assert start("x", str(tmp_path / "spawns.py")).communicate()[0] == "True\n"


def test_a_file_that_was_left_open_for_it_has_its_number(start, python, tmp_path):
    reading, writing = os.pipe()
    words = [python, "-c", f"import os; os.write({writing}, b'here')"]
    subprocess.run(words, pass_fds=(writing,), check=True)
    assert os.read(reading, 10) == b"here"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_command_is_the_childs(start, number):
    process = start("stay")
    child = told(process)["pid"]
    process.send_signal(number)
    assert process.wait(10) == -number and gone(child)


@pytest.fixture
def importing(environment, tmp_path):
    """(what is used like Python, a file that appears when the server begins to import)."""
    began = tmp_path / "began"
    (tmp_path / "takes_long.py").write_text(f"import time; open({str(began)!r}, 'w'); time.sleep(60)")
    with forked_workers.started({**environment, "PYTHONPATH": str(tmp_path)}, ["takes_long"]) as (python, _):
        yield python, began
    assert gone_folder(Path(python).parent)


def gone_folder(folder: Path) -> bool:
    deadline = time.monotonic() + 30
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_server_imports_ends_the_command_and_then_the_server(importing, number):
    python, began = importing
    process = subprocess.Popen([python, "-c", "pass"])
    while not began.exists():
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) == -number


def test_a_signal_that_comes_before_the_child_has_its_handlers_is_not_lost(python):
    about = os.memfd_create("about")
    words = ["-c", "import time; time.sleep(60)", "x" * 30_000_000]  # which take a moment to read
    with os.fdopen(os.dup(about), "wb") as file:
        file.write(json.dumps([words, dict(os.environ), os.getcwd(), [0, 1, 2]]).encode())
    with socket.socket(socket.AF_UNIX) as server, open(os.devnull, "r+b") as nowhere:
        server.settimeout(30)
        server.connect(str(Path(python).parent / "socket"))
        socket.send_fds(server, [b"?"], [about, *[nowhere.fileno()] * 3])
        server.send(bytes([signal.SIGTERM]))
        assert server.recv(1) == forked_workers.FORKED and server.recv(16) == b"-15"


def test_a_command_that_dies_at_once_takes_no_server_along(start, python):
    for number in range(6):
        process = subprocess.Popen([python, "-c", "import time; time.sleep(60)"], stderr=subprocess.DEVNULL)
        time.sleep(number * 0.03)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    assert told(start("0"))["imported"]


def test_an_import_that_fails_in_the_server_fails_where_it_is_seen(environment, tmp_path):
    (tmp_path / "broken.py").write_text("raise OSError('the home folder is read-only')")
    environment = {**environment, "PYTHONPATH": str(tmp_path)}
    with forked_workers.started(environment, ["broken"]) as (python, environment):
        done = subprocess.run([python, "-c", "import broken"], env=environment, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "OSError: the home folder is read-only"


def test_a_killed_child_leaves_a_killed_command(start):
    process = start("stay")
    os.kill(told(process)["pid"], signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


def test_the_server_stays_for_its_last_child(environment, tmp_path):
    with forked_workers.started(environment, ["colorsys"]) as (python, _):
        process = subprocess.Popen(
            [python, "-c", CHILD, "stay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        process.stdin.write("a line\n")
        process.stdin.flush()
        child = told(process)
    assert not gone(child["parent"], 1) and process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert gone(child["parent"]) and not Path(python).parent.exists()


def test_a_killed_server_leaves_no_child_that_nobody_hears_of(start):
    process = start("stay")
    child = told(process)
    os.kill(child["parent"], signal.SIGKILL)
    assert process.wait(60) == 1 and gone(child["pid"])
    assert "the server that forked this process was killed" in process.stderr.read()


def test_words_run_once_if_the_server_dies_right_after_its_fork(environment, tmp_path):
    """A command without the server's first answer starts Python itself; so the answer comes before the fork."""
    (tmp_path / "dies_after_a_fork.py").write_text(
        "import os, signal\nfork = os.fork\n"
        "def dying():\n    if pid := fork():\n        os.kill(os.getpid(), signal.SIGKILL)\n    return pid\n"
        "os.fork = dying\n"
    )
    paths = os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])
    with forked_workers.started(environment | {"PYTHONPATH": paths}, ["dies_after_a_fork"]) as (python, found):
        words = [python, "-c", "import time; open('ran', 'a').write('!'); time.sleep(60)"]
        done = subprocess.run(words, env=found, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the server that forked this process was killed" in done.stderr
    ran = tmp_path / "ran"
    assert not ran.exists() or ran.read_text() in ("", "!")


def test_without_the_server_it_is_python(start):
    os.kill(told(start("0"))["parent"], signal.SIGKILL)
    child = told(start("0"))
    assert not child["imported"] and child["environment"]["MARK"] == "of this one"


@pytest.mark.parametrize("name", ["a folder with $signs 'and \"quotes", "x" * 100])
def test_whatever_the_temporary_folder_is_called(environment, monkeypatch, name):
    """A name that is too long for a socket's path leaves Python as it is."""
    with tempfile.TemporaryDirectory() as short, monkeypatch.context() as patch:
        (Path(short) / name).mkdir()
        patch.setattr(tempfile, "tempdir", f"{short}/{name}")
        with forked_workers.started(environment, ["colorsys"]) as (python, _):
            said = subprocess.run([python, "-c", "import sys; print('colorsys' in sys.modules)"], capture_output=True)
    assert (python == sys.executable) == (len(name) == 100)
    assert said.stdout.split() == [str(len(name) < 100).encode()]


def test_ray_starts_a_python_whose_path_has_a_space(monkeypatch):
    """Ray's own command for a worker lacks the quotes: each worker ended at once, and Ray waited 60 s for each."""
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert process_starts.quoted_python({"env_vars": {}}) == {"env_vars": {}, "py_executable": "'/a b/python'"}
