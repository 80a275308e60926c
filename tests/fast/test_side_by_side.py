"""Forks that take numbers from one list: each number once, words with a number, deaths told, signals passed on."""

import os
import signal
import subprocess
import sys
import time

from real_openrlhf.comparison.side_by_side import Numbers, side_by_side


def test_each_number_is_taken_once_and_words_carry_the_jobs(capfd):
    numbers = Numbers(5)

    def work(job: int) -> list[int]:
        mine = []
        while (number := numbers.take()) is not None:
            mine.append(number)
            print("took", number)
            os.system("echo and a process of its own")
            time.sleep(0.05)
        return mine

    found = side_by_side(2, work)
    assert [code for code, _ in found] == [0, 0]
    assert sorted(number for _, mine in found for number in mine) == [*range(5)]
    assert all(mine for _, mine in found)  # at the same time
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line[4:] for line in lines if "took" in line) == [f"took {number}" for number in range(5)]
    assert {line[:4] for line in lines} == {"[1] ", "[2] "} and len(lines) == 10


def test_after_close_there_are_no_more():
    numbers = Numbers(5)
    assert numbers.take() == 0
    numbers.close()
    assert numbers.take() is None


def test_one_that_dies_is_told(capfd):
    found = side_by_side(2, lambda job: os.kill(os.getpid(), signal.SIGKILL) if job == 1 else "done")
    assert found == [(-signal.SIGKILL, None), (0, "done")]


STOPPED = """
import time
from real_openrlhf.comparison.side_by_side import side_by_side
def work(job):
    try:
        print("up", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        return f"stopped {job}"
print(side_by_side(2, work))
"""


def test_a_ctrl_c_reaches_each_once():
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert [process.stdout.readline()[4:] for _ in range(2)] == ["up\n"] * 2
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0].splitlines()[-1] == "[(0, 'stopped 1'), (0, 'stopped 2')]"


def test_a_ctrl_c_while_they_are_started_reaches_all():
    early = STOPPED.replace('print("up", flush=True)', "job == 1 and os.kill(os.getppid(), signal.SIGINT)")
    words = [sys.executable, "-c", "import os, signal\n" + early]
    said = subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.splitlines()[-1]
    ended = ("(0, 'stopped 2')", "(1, None)")  # at its work, or before
    assert said in [f"[(0, 'stopped 1'), {end}]" for end in ended]


def test_they_die_with_whoever_started_them():
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert [process.stdout.readline()[4:] for _ in range(2)] == ["up\n"] * 2
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.kill()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{child}") for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(children) == 2 and not any(os.path.exists(f"/proc/{child}") for child in children)
