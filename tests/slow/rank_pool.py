"""Gloo ranks that stay up and run functions of `zero_worker` by name: importing DeepSpeed costs seconds, once a rank."""

import importlib
import multiprocessing as mp
import os
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

REPLY_SECONDS = 300
COLLECTIVE_SECONDS = 60  # one rank that waits for another that has gone wrong is an error, not a hang

ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",
}


class Ranks:
    def __init__(self, count: int) -> None:
        context = mp.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.pipes, self.processes = [], []
        for rank in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, rank, count, self.folder.name), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def __call__(self, function: str, *args, **kwargs) -> list:
        """The replies of all ranks to `zero_worker.function(*args, **kwargs)`."""
        for pipe in self.pipes:
            pipe.send((function, args, kwargs))
        replies = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(REPLY_SECONDS):
                raise TimeoutError(f"rank {rank} did not answer {function} in {REPLY_SECONDS} s")
            replies.append(pipe.recv())
        failures = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(replies) if error]
        if failures:
            raise RuntimeError("\n".join(failures))
        return [value for value, _ in replies]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(20)
            if process.is_alive():
                process.kill()
        self.folder.cleanup()


def _serve(pipe, rank: int, count: int, folder: str) -> None:
    # DeepSpeed wants to see a launcher's variables, though the process group is there already
    os.environ.update(ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{Path(folder) / 'store'}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    sys.path.insert(0, str(Path(__file__).parent))
    worker = importlib.import_module("zero_worker")
    while (job := pipe.recv()) is not None:
        function, args, kwargs = job
        try:
            pipe.send((getattr(worker, function)(*args, **kwargs), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
    dist.destroy_process_group()
