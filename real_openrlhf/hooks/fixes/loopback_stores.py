"""torch's stores, by which ranks find each other, listen on all addresses of a machine; on the loopback if that is all
that they are asked for."""

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
    listener.bind(("127.0.0.1", port))
    # the store owns what it is given
    return TCPStore(host_name, port, world_size, True, master_listen_fd=listener.detach(), **named)


def keep_stores_here() -> None:
    """For the process groups that this process makes from now on."""
    # the package has a function of the module's name
    vars(importlib.import_module("torch.distributed.rendezvous"))["TCPStore"] = _bound_store
