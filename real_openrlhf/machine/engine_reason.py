"""Why a vLLM engine died, in one line for the command's last lines. vLLM loads this as a plugin (setup.py).

vLLM's last message is "See stack trace (above) for the root cause". The cause is the first exception of the engine
process, which vLLM logs, or the signal that killed it. Remove this file when vLLM's EngineDeadError names the cause.
"""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

MARK = "vLLM's engine process "  # `last_error` searches a run's log for it
# A variable, without which other uses of vLLM in this environment are left alone: PRINTED, or the path of a file for
# the line, if nobody reads the output.
FILE, PRINTED = "REAL_ENGINE_REASON", "print"


def tell_reason() -> None:
    """In vLLM's processes: an engine prints its exception, the process above it the signal that killed it.

    An older or newer vLLM may lack the method that is replaced: then only exceptions are told.
    """
    if not os.environ.get(FILE):
        return
    logging.getLogger("vllm.v1.engine.core").addFilter(_see)
    try:
        from vllm.v1.engine.utils import CoreEngineProcManager
    except ImportError:
        return
    watch = getattr(CoreEngineProcManager, "monitor_engine_liveness", None)
    if watch is None:
        return

    def monitor_engine_liveness(self: Any) -> None:
        watch(self)  # returns when an engine has ended
        codes = [process.exitcode for process in self.processes if process.name == self.failed_proc_name]
        for code in filter(lambda code: code is not None and code < 0, codes):
            tell(f"was {killed_by(code)}")

    CoreEngineProcManager.monitor_engine_liveness = monitor_engine_liveness


def _see(record: logging.LogRecord) -> bool:
    if record.exc_info and (error := record.exc_info[1]):
        lines = str(error).strip().splitlines()
        tell(f"ended with {type(error).__name__}{f': {lines[0]}' if lines else ''}")
    return True


def killed_by(code: int) -> str:
    """The signal's name for a negative exit code of a process."""
    memory = ", as the kernel does when memory runs out" if -code == signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{memory}"


def tell(what: str) -> None:
    print(f"{MARK}{what}", file=sys.stderr, flush=True)
    if (path := os.environ.get(FILE, PRINTED)) != PRINTED and not Path(path).exists():
        Path(path).write_text(f"{MARK}{what}", encoding="utf-8")
