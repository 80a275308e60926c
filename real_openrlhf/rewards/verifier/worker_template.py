"""Where workers come from: one process that has imported the algebra, of which each worker is a fork.

Importing takes two seconds of a core, a fork a hundredth of one, so a worker that was killed is soon replaced. The
client's end is `Template`; the other end is this module as a program, with a socket's number.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

START_SECONDS = 60.0
MESSAGE_BYTES = 4096


class Template:
    """The process is started when the first worker is wanted, and again if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._connection: socket.socket | None = None

    def fork(self, deadline: float, memory: int, pipes: Sequence[int]) -> int:
        """The number of a new worker that reads from the first pipe and writes to the second."""
        faults = os.environ.get("REAL_VERIFIER_FAULTS", "{}")
        about = {"deadline": deadline, "memory": memory, "faults": json.loads(faults)}
        with self._lock:
            try:
                return self._ask(about, pipes)
            except OSError:  # the process was killed, or is not there yet
                self._close()
                self._start()
                return self._ask(about, pipes)

    def kill(self, worker: int) -> None:
        """And wait for its end."""
        with self._lock:
            try:
                self._ask({"kill": worker})
            except OSError:  # the process was killed, or does not answer: its workers end with it
                self._close()

    def _ask(self, request: dict, files: Sequence[int] = ()) -> int:
        if self._connection is None:
            raise OSError("no process to fork workers from")
        socket.send_fds(self._connection, [json.dumps(request).encode() + b"\n"], files)
        return self._answer()

    def _answer(self) -> int:
        assert self._connection
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._connection.recv(MESSAGE_BYTES)
            if not part:
                raise OSError("the process that workers are forked from has ended")
            answer += part
        return int(answer)

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parents[3])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        }
        here, there = socket.socketpair()
        with there:
            words = [sys.executable, "-m", "real_openrlhf.rewards.verifier.worker_template", str(there.fileno())]
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(there.fileno(),), env=environment
            )
        self._connection = here
        here.settimeout(START_SECONDS)
        self._answer()

    def _close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


def main() -> None:
    from real_openrlhf.rewards.verifier import worker

    worker.die_with_parent()
    connection = socket.socket(fileno=int(sys.argv[1]))
    worker.import_libraries()
    gc.collect()
    gc.freeze()  # what is shared is not copied for being collected
    connection.sendall(f"{os.getpid()}\n".encode())
    children: set[int] = set()  # that nobody has waited for, so that their numbers are still their own
    while True:
        message, files = _receive(connection)
        if not message:  # the client is gone
            return
        request = json.loads(message)
        number = request.get("kill")
        if number in children:  # not one of a process that was killed, whose number may be a stranger's by now
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            children.remove(number)
        elif number is None:
            number = os.fork()
            if number == 0:
                connection.close()
                _become(files, request)
            children.add(number)
            for file in files:
                os.close(file)
        connection.sendall(f"{number}\n".encode())


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    message, files = b"", []
    while not message.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 2)
        files += more
        if not part:
            return b"", files
        message += part
    return message, files


def _become(files: list[int], about: dict) -> None:
    from real_openrlhf.rewards.verifier import worker

    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        worker.serve(**about)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
