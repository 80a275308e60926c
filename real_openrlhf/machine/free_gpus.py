"""Which GPUs of this machine a command takes: free ones, each by a lock that dies with the processes that hold it."""

import os
import random
import time
from pathlib import Path
from typing import IO

from real_openrlhf.base import files
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import number_of
from real_openrlhf.machine import nvidia

LOCKS = Path(f"/tmp/real_openrlhf-gpus-{os.getuid()}")  # not in TMPDIR, which each job of a cluster has for itself
PATIENCE = 20  # tries of about a second: so long the processes of a killed run may take to leave their GPUs
_held: dict[str, IO] = {}  # {GPU as CUDA_VISIBLE_DEVICES names it: its lock} of this process, to its end


def locks() -> list[int]:
    """For a child, which may outlive this process."""
    return [lock.fileno() for lock in _held.values()]


def take(count: int) -> dict[str, str]:
    """Take so many free GPUs, until this process and its children end; return the variables that name them.

    Other processes may compute on GPUs where CUDA_VISIBLE_DEVICES names no more than are needed: that is how a user
    shares one. A lock of ours keeps a second run away there too.
    """
    usable, named = nvidia.usable_gpus(), "CUDA_VISIBLE_DEVICES" in os.environ
    every = nvidia.uuids()
    identity = {gpu: next((uuid for n, uuid in every if gpu == n or uuid.startswith(gpu)), gpu) for gpu in usable}
    for left in range(PATIENCE, -1, -1):
        computing = {} if named and len(usable) == count else nvidia.computing()
        busy: dict[str, str] = {}
        taken: dict[str, IO] = {}
        for gpu in usable:
            if gpu not in _held and len(_held) + len(taken) < count:
                holder, lock = computing.get(identity[gpu]), None
                if not holder:
                    holder, lock = _locked(identity[gpu])
                if lock:
                    taken[gpu] = lock
                else:
                    busy[gpu] = holder
        if len(_held) + len(taken) >= count:
            break
        for lock in taken.values():
            lock.close()
        if not left:
            where = ", ".join(f"{gpu} (process {holder})" for gpu, holder in busy.items())
            raise UserError(
                f"this run needs {number_of(count, 'free GPU')} of {len(usable)}; in use: {where}. Wait for it or end "
                "it, or name a GPU in CUDA_VISIBLE_DEVICES to share it with other programs."
            )
        time.sleep(random.uniform(0.5, 1.5))  # two shells that took half each do not meet again
    _held.update(taken)
    if len(usable) <= count:
        return {}
    chosen = [gpu for gpu in usable if gpu in _held][:count]
    if taken:
        others = "".join(f"; {gpu} is in use by process {holder}" for gpu, holder in busy.items())
        print(f"takes GPU {', '.join(chosen)} of {len(usable)}{others}", flush=True)
    order = {} if named else {"CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}  # nvidia-smi's
    return order | {"CUDA_VISIBLE_DEVICES": ",".join(chosen)}


def _locked(identity: str) -> tuple[str, IO | None]:
    """(the process that holds the GPU's lock, None), or ("", the lock, which is ours)."""
    LOCKS.mkdir(exist_ok=True)
    lock = open(LOCKS / identity.replace("/", "_"), "a+")
    if files.lock_taken(lock):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return "", lock
    with lock:
        lock.seek(0)
        return lock.read(), None
