"""Fork a command's processes, Ray's workers too, from one that has imported torch, vLLM and more: for faster tests.

Each saves 10 s of a core. A run of three steps on the tiny task takes 35 s of a core, and 71 s without forks.

    with started(environment) as (python, environment):
        subprocess.Popen([python, "-m", "some.ray.driver"], env=environment)

`python` is a program that is used like Python. It sends its arguments, environment, folder and open files to a server,
and the server forks. The child runs as Python would, and `python` ends with the child. Ray starts its workers with
`python`, and workers start their processes with it. CUDA does not survive a fork: this is for machines without a GPU.
"""

import argparse
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection, spawn
from typing import Any, NoReturn

# Modules that drivers and workers import. Not Ray: its C++ part reads a worker's environment when it is imported.
MODULES = "torch transformers deepspeed datasets peft torch.utils.tensorboard vllm.engine.arg_utils"
MODULES = f"{MODULES} vllm.v1.worker.cpu_worker vllm.entrypoints.launchers.cli_args".split()
PYTHON = "REAL_WORKER_PYTHON"
APART = "REAL_FORKS_APART"  # a program that is none
ALL = "REAL_FORKS_START_FORKS"  # what a fork starts with sys.executable is one too
SOCKET_BYTES = 107  # of a socket's path, at most
MOST_FILES = 253  # open files that one message can pass
PR_SET_PDEATHSIG = 1
FORKED = b"!"  # the server's first answer, that it forks; its second is the exit code
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def started(environment: Mapping[str, str], modules: Sequence[str] = MODULES) -> Iterator[tuple[str, dict[str, str]]]:
    """(program to use as Python, its environment). Running children outlive the block, and so does the server.

    Where such a program is in the environment, the server is its fork: nothing is imported again.
    """
    environment = hooked(environment)
    folder = tempfile.mkdtemp(prefix="forked_workers_")
    python, place = f"{folder}/python", f"{folder}/socket"
    asks = shlex.join([sys.executable, "-I", "-S", os.path.abspath(__file__), place])
    with open(python, "w", opener=lambda name, flags: os.open(name, flags, 0o700)) as script:
        script.write(f'#!/bin/sh\nexec {asks} "$@"\n')
    if len(os.fsencode(place)) > SOCKET_BYTES or not os.access(python, os.X_OK):
        shutil.rmtree(folder)
        yield sys.executable, environment  # a TMPDIR with a long name, or one where nothing may be executed
        return
    begun = environment.get(PYTHON, sys.executable)
    environment |= {PYTHON: python}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)
        server = subprocess.Popen(
            [begun, os.path.abspath(__file__), str(listener.fileno()), *modules],
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
        server.terminate()  # ends it if it still imports; later it waits for its last child
        shutil.rmtree(folder, ignore_errors=True)  # nobody starts a process any more


def hooked(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with Ray's hook, the place where it is, and no worker before one is asked for."""
    paths = [os.path.dirname(os.path.abspath(__file__)), *filter(None, [environment.get("PYTHONPATH")])]
    hook = {"RAY_RUNTIME_ENV_HOOK": "forked_workers.runtime_env", "PYTHONPATH": os.pathsep.join(paths)}
    return {**environment, **hook, "RAY_prestart_worker_first_driver": "0"}


def runtime_env(given: dict | None) -> dict:
    """`ray.init` calls this for its workers' environment, before it starts a node."""
    if PYTHON in os.environ:
        constants = importlib.import_module("ray._private.ray_constants")
        constants.SETUP_WORKER_FILENAME = os.path.abspath(__file__)  # joined to a folder, so an absolute path stays
        node = importlib.import_module("ray._private.node").Node
        node.start_monitor = node.start_api_server = lambda *_, **__: None  # an autoscaler, and a dashboard's head
    return {**(given or {}), "py_executable": shlex.quote(os.environ.get(PYTHON, sys.executable))}


def is_worker(words: list[str]) -> bool:
    """Does Ray start this file as its setup_worker.py?"""
    return os.path.abspath(words[0]) == os.path.abspath(__file__) and any("--language=" in word for word in words)


def ask_for_worker(words: list[str]) -> int:
    """What Ray's setup_worker.py does for a worker that is a fork, without importing Ray for it (0.5 s of a core)."""
    fork = os.environ[PYTHON]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language")
    given, worker = parser.parse_known_args(words)
    context = json.loads(given.serialized_runtime_env_context)
    variables = context.pop("env_vars", {})
    plain = given.language == "PYTHON" and not any("$" in value for value in variables.values())
    if not plain or {key: value for key, value in context.items() if value} != {"py_executable": shlex.quote(fork)}:
        os.execv(sys.executable, [sys.executable, os.path.join(os.path.dirname(worker[0]), "setup_worker.py"), *words])
    os.environ.update(variables)
    return ask(os.path.join(os.path.dirname(fork), "socket"), worker)


def serve(listener: socket.socket) -> None:
    """Fork for each request, until the starter is gone and the last child has ended."""
    wanted: list[Any] = [sys.stdin.fileno()]
    children: dict[Any, tuple[int, socket.socket]] = {}  # by pidfd, and by their command's socket
    server = os.getpid()
    while wanted or children:
        for ready in connection.wait([listener, *wanted, *children]):
            if ready is listener:
                command, _ = listener.accept()
                files: list[int] = []
                with contextlib.suppress(OSError):  # the command has ended
                    _, files, _, _ = socket.recv_fds(command, 1, MOST_FILES)
                if not files:
                    continue
                with contextlib.suppress(OSError):
                    command.sendall(FORKED)  # before the fork: without this answer the command runs its words itself
                if not (pid := os.fork()):
                    for one in (listener, command, *(held for _, held in children.values())):
                        one.close()  # before `become` gives other files these numbers
                    run_to_the_end(files, server)
                for file in files:
                    os.close(file)
                children[os.pidfd_open(pid)] = children[command] = pid, command
            elif ready in wanted:
                wanted = []
            elif isinstance(ready, int):
                pid, command = children.pop(ready)
                children.pop(command, None)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):
                    command.sendall(str(code).encode())
                command.close()
                os.close(ready)
            elif ready in children:
                pid, command = children[ready]
                number = b""  # of a signal to pass on; empty if the command was killed
                with contextlib.suppress(OSError):
                    number = command.recv(1)
                if not number:
                    del children[command]
                os.kill(pid, number[0] if number else signal.SIGKILL)


def become(files: list[int], server: int) -> list[str]:
    """Take over the command's files (with its numbers, no others), environment and folder; return its arguments."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the server, which reports exit codes
    if os.getppid() != server:
        os._exit(1)  # it ended before that
    words, environment, folder, numbers = json.loads(os.pread(files[0], os.fstat(files[0]).st_size, 0))
    above = max(numbers) + 1
    held = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files[1:]]
    os.closerange(0, above)
    for file, number in zip(held, numbers, strict=True):
        os.dup2(file, number)
    os.closerange(above, os.sysconf("SC_OPEN_MAX"))
    for signum in FORWARDED:
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)  # the server blocks them, so none that came is lost
    os.setsid()
    ours, theirs = (filter(None, one.get("PYTHONPATH", "").split(os.pathsep)) for one in (os.environ, environment))
    sys.path[1 : 1 + len(list(ours))] = theirs
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:  # the first one must not move: Ray seeks the title's memory before it
            os.environ[name] = value
    if wanted := environment.get("PYTHONWARNINGS"):
        warnings._processoptions(wanted.split(","))  # type: ignore[attr-defined]
    os.chdir(folder)
    spawn.set_executable(environment.get(PYTHON, sys.executable))
    if ALL in environment:
        sys.executable = environment[PYTHON]
    return words


def run(words: list[str]) -> None:
    """Run `python WORDS` in this process, which has imported the stack."""
    while words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[1:]  # options for an interpreter that starts; this one runs already
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def run_to_the_end(files: list[int], server: int) -> NoReturn:
    """Run and end as Python does, but do not destroy modules: in a fork vLLM's libraries would then report leaks."""
    code: Any = 1
    try:
        run(become(files, server))
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def ask(path: str, words: list[str]) -> int:
    """Let a child of the server run in place of this process, and end as the child does."""
    if is_worker(words):
        return ask_for_worker(words[1:])
    if {"same_answer.worker", "failing_worker", os.environ.get(APART)} & {*words}:  # the first two have little memory
        os.execv(sys.executable, [sys.executable, *words])
    numbers = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
    about = os.memfd_create("about")
    os.write(about, json.dumps([words, dict(os.environ), os.getcwd(), numbers]).encode())
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            socket.send_fds(server, [b"?"], [about, *numbers])
            forked = server.recv(1)  # until the server has its modules a signal ends this process as any other
        except OSError:
            forked = b""
        if not forked:  # the server has died, perhaps by an error of an import, which then shows here
            os.execv(sys.executable, [sys.executable, *words])
        for number in FORWARDED:
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        answer = server.recv(16)
    if not answer:
        print(
            "ChildProcessError: the server that forked this process was killed, so this process ends too",
            file=sys.stderr,
        )
    code = int(answer or 1)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def main(number: int, modules: Sequence[str]) -> None:
    with socket.socket(fileno=number) as listener:
        listener.set_inheritable(False)
        try:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # for as long as it imports
            for module in modules:
                importlib.import_module(module)
            assert "ray" not in sys.modules
            gc.collect()
            gc.freeze()  # a collection would write to shared memory, and so copy it
            for signum in FORWARDED:
                signal.signal(signum, lambda *_: None)  # in a thread of a library
            signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
            serve(listener)
        finally:
            shutil.rmtree(os.path.dirname(listener.getsockname()), ignore_errors=True)


if __name__ == "__main__":
    if sys.flags.isolated:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    if is_worker(sys.argv):
        sys.exit(ask_for_worker(sys.argv[1:]))
    if not sys.argv[1].isdecimal():  # a command, in which PYTHON forks
        with started({**os.environ, ALL: "1"}) as (python, environment):
            sys.exit(subprocess.call(sys.argv[1:], env={**environment, "PYTHON": python}))
    main(int(sys.argv[1]), sys.argv[2:])
