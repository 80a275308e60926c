"""Runs a command, and ends it with all that it started above GB of memory or after SECONDS: watch.py GB SECONDS ..."""

import signal
import sys
import time
from contextlib import suppress

import psutil


def used(process: psutil.Process) -> float:
    """GB, what processes share once for each."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            total += one.memory_info().rss - one.memory_info().shared // 2
    return total / 1e9


def watched(words, gb: float, seconds: float, **how) -> tuple[int, float]:
    """(exit code, the most GB)"""
    process = psutil.Popen(words, start_new_session=True, **how)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))  # what was started ends with us
    until, most = time.time() + seconds, 0.0
    try:
        while process.poll() is None:
            with suppress(psutil.TimeoutExpired):
                process.wait(0.5)
            with suppress(psutil.Error):
                most = max(most, used(process))
            if most > gb or time.time() > until:
                print(f"watch: ended after {seconds:.0f} s or at {most:.1f} of {gb} GB", file=sys.stderr, flush=True)
                return 9, most
        return process.wait(), most
    finally:
        with suppress(psutil.Error):
            for one in [*process.children(recursive=True), process]:
                one.kill()


if __name__ == "__main__":
    sys.exit(watched(sys.argv[3:], float(sys.argv[1]), float(sys.argv[2]))[0])
