"""Gloo ranks that stay up and run a module's functions by name.

They are forks of a process that has imported what they need: importing DeepSpeed takes seconds.
"""

import gc
import importlib
import multiprocessing as mp
import os
import tempfile
import traceback
from multiprocessing import connection
from pathlib import Path

REPLY_SECONDS = 1200  # the first may compile DeepSpeed's Adam: 180 s of a free core
# What ranks of these modules import, before they are forked. The first module that is asked for decides for all.
IMPORTS = {"zero_jobs": ["openrlhf.cli.train_ppo_ray"], "loss_jobs": ["torch"]}
# Then new ranks: each of DeepSpeed's engines leaves process groups with six threads, that wake 100 times a second.
JOBS = 8
GRACE_SECONDS = 5  # for what the other ranks have to say when one has failed


class Ranks:
    def __init__(self, count: int, module: str) -> None:
        self.count, self.module = count, module
        self.processes: dict = {}  # by the pipe to it
        self.jobs = 0  # that these processes have run

    def start(self) -> None:
        self.jobs = 0
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(IMPORTS[self.module])
        self.folder = tempfile.TemporaryDirectory()
        for rank in range(self.count):
            here, there = context.Pipe()
            arguments = (there, self.module, rank, self.count, self.folder.name)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self.processes[here] = process

    def __call__(self, function: str, *args, **kwargs) -> list:
        """The replies of all ranks to `module.function(*args, **kwargs)`, or to another module's "module.function".

        When one fails the others may wait for it in a collective for ever: all end, and the next call starts new ones.
        """
        if self.jobs >= JOBS:
            self.close()
        if not self.processes:
            self.start()
        self.jobs += 1
        for pipe in self.processes:
            pipe.send((function, args, kwargs))
        waiting, replies, failures = list(self.processes), {}, []
        while waiting:
            ready = connection.wait(waiting, GRACE_SECONDS if failures else REPLY_SECONDS)
            if not ready:
                failures.append(f"{len(waiting)} of {self.count} ranks did not reply to {function}")
                break
            for pipe in ready:
                waiting.remove(pipe)
                try:
                    replies[pipe], error = pipe.recv()
                except EOFError:
                    error = "the process has died"
                failures += [error] if error else []
        if failures:
            self.close()
            raise RuntimeError("\n".join(failures))
        return [replies[pipe] for pipe in self.processes]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()
        if self.processes:
            self.folder.cleanup()
        self.processes.clear()


def _serve(pipe, module: str, rank: int, count: int, folder: str) -> None:
    # DeepSpeed wants to see a launcher's variables, though the process group is there already
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=count)
    importlib.import_module(module)
    gc.freeze()  # each of DeepSpeed's engines collects garbage: not among all that was imported
    while True:
        function, args, kwargs = pipe.recv()
        try:
            named, _, name = function.rpartition(".")
            pipe.send((getattr(importlib.import_module(named or module), name)(*args, **kwargs), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
