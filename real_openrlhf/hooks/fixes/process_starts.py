"""Replaced at the start of a process: Ray's patience, torch's stores, the path of Python.

No library at the top: a run loads this before it starts Ray.
"""

import contextlib
import importlib
import inspect
import os
import random
import shlex
import socket
import sys
import threading
import time
from typing import Any, cast

SECONDS = 120.0
# of a raylet's agents; below 32768, so that no outgoing connection has one before its agent listens
AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
LOOPBACK = ("127.0.0.1", "localhost")


def wait_longer() -> None:
    """Give a Ray that `ray.init` starts on a busy machine two minutes, as long as its raylet lives.

    Its agents are Python processes that import for 5 s on a free core. A raylet waits 15 s for the files in which they
    write their ports, then it aborts: so the ports are chosen and written here. It waits 30 s for an answer by these
    ports: a variable of Ray's. And Ray asks its GCS for the new node for 30 s, by `get_node`.
    """
    import ray
    from ray import _raylet
    from ray._private import services

    os.environ.setdefault("RAY_agent_register_timeout_ms", str(round(1000 * SECONDS)))
    once, start, signature = services.get_node, services.start_raylet, inspect.signature(services.start_raylet)
    raylet: list[Any] = []

    def start_raylet(*args: Any, **named: Any) -> Any:
        call = signature.bind(*args, **named)
        for name, port in zip(AGENT_PORTS, _free_ports(len(AGENT_PORTS)), strict=True):
            call.arguments[name] = port
            cast(Any, _raylet).persist_port(call.arguments["session_dir"], call.arguments["node_id"], name, port)
        started = start(*call.args, **call.kwargs)
        raylet[:] = [started.process]
        threading.Thread(target=end_with, args=(started.process,), daemon=True).start()
        return started

    def end_with(process: Any) -> None:
        """A driver whose first request waits in the GCS would wait for ever; Ray itself ends one that trains."""
        process.wait()
        while not ray.is_initialized():  # it starts, or it shuts down
            time.sleep(1)
        time.sleep(5)  # for what Ray says
        if ray.is_initialized() and raylet == [process]:
            print("RayError: Ray's raylet ended. Its raylet.err says why; then --resume", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(1)

    def get_node(*args: Any) -> Any:
        began = time.monotonic()
        while True:
            try:
                return once(*args)
            except RuntimeError:  # the node is not known yet
                if raylet and raylet[0].poll() is not None:
                    sys.exit("RayError: Ray's raylet ended while it started. Its raylet.err says why; then --resume")
                if time.monotonic() - began > SECONDS:
                    raise
                time.sleep(0.2)

    services.start_raylet, services.get_node = start_raylet, get_node


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        for port in random.SystemRandom().sample(range(20_000, 32_768), 12_768):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("", port))
                ports.append(port)
            if len(ports) == count:
                break
        return ports


def keep_stores_here() -> None:
    """Bind torch's TCPStore, by which ranks find each other, to the loopback if its host name is the loopback: by
    default it listens on all addresses of the machine."""
    from torch.distributed import TCPStore

    def bound(host_name: str, port: int, world_size: int | None = None, is_master: bool = False, **named: Any) -> Any:
        if not is_master or host_name not in LOOPBACK:
            return TCPStore(host_name, port, world_size, is_master, **named)
        listener = socket.create_server(("127.0.0.1", port))  # the store owns its descriptor from here on
        return TCPStore(host_name, port, world_size, True, master_listen_fd=listener.detach(), **named)

    # `torch.distributed.rendezvous` is a function; import_module returns the module of the same name
    vars(importlib.import_module("torch.distributed.rendezvous"))["TCPStore"] = bound


def quoted_python(given: dict | None) -> dict:
    """`ray.init` calls this for its workers' environment (RAY_RUNTIME_ENV_HOOK) if Python's path has a space."""
    return {**(given or {}), "py_executable": shlex.quote(sys.executable)}
