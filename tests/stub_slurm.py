"""A cluster of one machine: `sbatch --array A-B SCRIPT WORDS` starts the tasks for real, and `scontrol requeue` starts
one again. A time limit falls when the next file of STUB_LIMITS has content: every task gets SLURM's warning.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

STATE = Path(os.environ["STUB_STATE"])
running: dict[int, subprocess.Popen] = {}


def task(number: int, script: str, words: list[str]) -> None:
    """Until it ends without having asked to be requeued."""
    restarts, job = 0, 100 + number
    while True:
        environment = {
            **os.environ,
            "SLURM_JOB_ID": str(job),
            "SLURM_SUBMIT_DIR": os.getcwd(),
            "SLURM_ARRAY_TASK_ID": str(number),
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_PROCID": "0",
        }
        with open(STATE / f"slurm-{number}.log", "a") as log:
            running[number] = subprocess.Popen(["bash", script, *words], env=environment, stdout=log, stderr=log)
            code = running[number].wait()
        if not (asked := STATE / f"requeue-{job}").exists():
            (STATE / f"ended-{number}").write_text(f"{code} {restarts}")
            return
        asked.unlink()
        restarts += 1


def main(words: list[str]) -> None:
    assert words[0] == "--array"
    first, last = map(int, words[1].split("-"))
    tasks = [threading.Thread(target=task, args=(number, *words[2:3], words[3:])) for number in range(first, last + 1)]
    for one in tasks:
        one.start()
    for limit in map(Path, filter(None, os.environ["STUB_LIMITS"].split(":"))):
        while not (limit.exists() and limit.stat().st_size) and any(one.is_alive() for one in tasks):
            time.sleep(0.1)
        for child in running.values():
            child.terminate()
    for one in tasks:
        one.join()


if __name__ == "__main__":
    main(sys.argv[1:])
