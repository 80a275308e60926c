"""Bind torch's TCPStore, by which ranks find each other, to the loopback if its host name is the loopback. By default
torch listens on all addresses of the machine."""

import importlib
import socket
from typing import Any

from torch.distributed import TCPStore

LOOPBACK = ("127.0.0.1", "localhost")


def _bound_store(
    host_name: str, port: int, world_size: int | None = None, is_master: bool = False, **named: Any
) -> Any:
    if not is_master or host_name not in LOOPBACK:
        return TCPStore(host_name, port, world_size, is_master, **named)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:  # OpenRLHF found it free seconds ago; since then it may be some connection's
        if world_size != 1:
            raise  # the other ranks know this port
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    # the store owns the listener's descriptor from here on
    return TCPStore(host_name, port, world_size, True, master_listen_fd=listener.detach(), **named)


def keep_stores_here() -> None:
    """Use `_bound_store` for the process groups that this process makes from now on."""
    # `torch.distributed.rendezvous` is a function; import_module returns the module of the same name
    vars(importlib.import_module("torch.distributed.rendezvous"))["TCPStore"] = _bound_store
