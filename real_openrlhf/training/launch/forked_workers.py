"""Ray's driver and workers as forks of one process that has imported the stack: 10 s of a core less for each of them.

    with started(environment) as (python, environment):
        subprocess.Popen([python, "-m", "some.ray.driver"], env=environment)

`python` is used like Python. It hands its arguments, environment, folder and open files to a server, which forks. The
child runs what Python would have run, and the two end together. Ray starts its workers with it, and they what they
spawn. The server knows nothing of Ray, whose C++ part reads a worker's environment when it is imported. CUDA does not
survive a fork: this is for machines without a GPU.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

# What drivers and workers import, and what does not import Ray.
MODULES = "torch transformers deepspeed datasets peft torch.utils.tensorboard vllm.engine.arg_utils".split()
WANTED = "REAL_FORKED_WORKERS"  # 0: Python as it is
PYTHON = "REAL_WORKER_PYTHON"
HOOK = {"RAY_RUNTIME_ENV_HOOK": "real_openrlhf.training.launch.forked_workers.runtime_env"}
LENGTH_BYTES = 8
SOCKET_BYTES = 107  # of a socket's path, at most
PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def started(environment: Mapping[str, str], modules: Sequence[str] = MODULES) -> Iterator[tuple[str, dict[str, str]]]:
    """(what to use as Python, with what environment). What was forked lives on after this, and the server with it."""
    import shlex
    import shutil
    import tempfile

    if environment.get(WANTED) != "1":
        yield sys.executable, dict(environment)
        return
    folder = tempfile.mkdtemp(prefix="forked_workers_")
    python = os.path.join(folder, "python")
    asks = shlex.join([sys.executable, "-I", "-S", os.path.abspath(__file__), f"{folder}/socket"])
    with open(python, "w") as script:
        script.write(f'#!/bin/sh\nexec {asks} "$@"\n')
    os.chmod(python, 0o700)
    if len(os.fsencode(f"{folder}/socket")) > SOCKET_BYTES or not os.access(python, os.X_OK):
        shutil.rmtree(folder)
        yield sys.executable, dict(environment)  # a TMPDIR with a long name, or one where nothing may be executed
        return
    environment = {**environment, **HOOK, PYTHON: python}
    command = [sys.executable, "-m", "real_openrlhf.training.launch.forked_workers", folder]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(64)
        server = subprocess.Popen(
            [*command, str(listener.fileno()), *modules],
            env=environment,
            pass_fds=(listener.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield python, environment
    finally:
        assert server.stdin
        server.stdin.close()


def runtime_env(given: dict | None) -> dict:
    """What `ray.init` asks about its workers' environment."""
    import shlex

    python = {"py_executable": shlex.quote(os.environ[PYTHON])} if PYTHON in os.environ else {}
    return {**(given or {}), **python}


# ---------------------------------------------------------------------------------------------------------------------
# the server


@dataclass(frozen=True)
class Child:
    pid: int
    process: int  # a descriptor that can be read once it has ended
    connection: socket.socket  # of the command whose place it takes


class Server:
    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.waiting = selectors.DefaultSelector()
        self.children: dict[int, Child] = {}

    def run(self) -> None:
        """Until whoever started it is gone and its last child has ended."""
        self.waiting.register(self.listener, selectors.EVENT_READ, self._fork)
        self.waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
        wanted = True
        while wanted or self.children:
            due = [key.data for key, _ in self.waiting.select()]
            for act in filter(None, due):
                act()
            if None in due:
                wanted = False
                self.waiting.unregister(sys.stdin.fileno())

    def _fork(self) -> None:
        connection, _ = self.listener.accept()
        try:
            request, files = _receive(connection)
        except (OSError, ValueError):  # the command is gone
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            _leave_after(lambda: _become(files=files, **request))
        for file in files:
            os.close(file)
        child = self.children[pid] = Child(pid, os.pidfd_open(pid), connection)
        self.waiting.register(child.process, selectors.EVENT_READ, lambda: self._ended(child))
        self.waiting.register(child.connection, selectors.EVENT_READ, lambda: self._abandoned(child))
        _tell(child, pid)

    def _ended(self, child: Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        _tell(child, os.waitstatus_to_exitcode(status))
        if child.connection in self.waiting.get_map():
            self.waiting.unregister(child.connection)
        self.waiting.unregister(child.process)
        child.connection.close()
        os.close(child.process)
        del self.children[child.pid]

    def _abandoned(self, child: Child) -> None:
        """The command was killed."""
        if child.pid in self.children:
            self.waiting.unregister(child.connection)
            os.kill(child.pid, signal.SIGKILL)


def serve(folder: str, descriptor: int, modules: Sequence[str]) -> None:
    import gc
    import importlib
    import shutil

    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    listener = socket.socket(fileno=descriptor)
    listener.set_inheritable(False)
    for module in modules:
        importlib.import_module(module)
    assert "ray" not in sys.modules
    gc.collect()
    gc.freeze()  # what is shared is not copied for being collected
    try:
        Server(listener).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(child: Child, number: int) -> None:
    with contextlib.suppress(OSError):
        child.connection.sendall(f"{number}\n".encode())


def _receive(connection: socket.socket) -> tuple[dict, list[int]]:
    first, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 253)
    length, request = int.from_bytes(first, "big"), b""
    while len(request) < length:
        part = connection.recv(length - len(request))
        if not part:
            raise ValueError("half a request")
        request += part
    return json.loads(request), files


# ---------------------------------------------------------------------------------------------------------------------
# its children


def _become(words: list[str], environment: dict[str, str], folder: str, numbers: list[int], files: list[int]) -> None:
    """What `python WORDS` does, from where all is imported."""
    import ctypes
    import warnings
    from multiprocessing import spawn

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # without the server nobody would hear how it ends
    _take(numbers, files)
    for number in FORWARDED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.setsid()
    ours, theirs = (_search_path(one) for one in (os.environ, environment))
    sys.path[1 : 1 + len(ours)] = theirs
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:  # Ray looks for the place of a process's title before the first variable
            os.environ[name] = value
    if wanted := environment.get("PYTHONWARNINGS"):
        warnings._processoptions(wanted.split(","))  # type: ignore[attr-defined]
    os.chdir(folder)
    spawn.set_executable(environment.get(PYTHON, sys.executable))
    _run(words)


def _search_path(environment: Mapping[str, str]) -> list[str]:
    return list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))


def _take(numbers: list[int], files: list[int]) -> None:
    """Have the command's open files under its numbers for them, and no others."""
    import fcntl

    above = max([*numbers, *files]) + 1
    files = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files]
    below = -1
    for number, file in sorted(zip(numbers, files, strict=True)):
        if number > below + 1:  # os.closerange(0, 0) closes all there are
            os.closerange(below + 1, number)
        os.dup2(file, number)
        below = number
    os.closerange(below + 1, os.sysconf("SC_OPEN_MAX"))


def _run(words: list[str]) -> None:
    import runpy
    import types

    while words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[1:]  # for an interpreter that starts
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        _retitle([sys.executable, *words])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def _retitle(words: list[str]) -> None:
    """For `ps`. Ray's workers have titles of their own."""
    import ctypes

    with open("/proc/self/stat") as stat:
        start, end = map(int, stat.read().rpartition(")")[2].split()[45:47])
    title = b"\0".join(map(os.fsencode, words))[: end - start - 1]
    ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)


def _leave_after(do: Callable[[], object]) -> NoReturn:
    """A child ends here, not in the server's loop."""
    import atexit
    import threading
    import traceback

    code: object = 0
    try:
        do()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


# ---------------------------------------------------------------------------------------------------------------------
# what is used like Python


def ask(path: str, words: list[str]) -> int:
    """Have a child in our place, and end as it does."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    numbers = [number for number in numbers if os.path.exists(f"/proc/self/fd/{number}")]  # not that of the folder
    about = {"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "numbers": numbers}
    request = json.dumps(about).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:  # the server has died
            os.execv(sys.executable, [sys.executable, *words])
        socket.send_fds(connection, [len(request).to_bytes(LENGTH_BYTES, "big")], numbers)
        connection.sendall(request)
        with connection.makefile("r") as answers:
            pid = int(answers.readline() or 0)
            for number in FORWARDED if pid else ():
                signal.signal(number, lambda number, _: os.kill(pid, number))
            answer = answers.readline()
    if not answer:
        print("ChildProcessError: what this process was forked from was killed, and it with that", file=sys.stderr)
    code = int(answer or 1)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    if sys.flags.isolated:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    sys.modules[__spec__.name] = sys.modules["__main__"]  # a child has another one for its main module
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
