"""vLLM engines in processes of their own: problems go in, every finished sample comes out at once.

Nothing heavy is imported at the top: a process must choose its devices before it imports torch or vLLM.
"""

import multiprocessing
import os
import queue
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import number_of
from real_openrlhf.base.signals import signals_held
from real_openrlhf.evaluation.engine_process import Engine, Pair, run_engine
from real_openrlhf.evaluation.store import Sample
from real_openrlhf.machine import nvidia

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess
    from multiprocessing.queues import Queue


END_SECONDS = 5.0


def engine_count(asked: int | None, gpus: int, width: int) -> int:
    """The number of engines: as asked for, else as many as fit on the visible GPUs; one without a GPU."""
    engines = asked or max(gpus // width, 1)
    if 0 < gpus < engines * width:
        need = f"{number_of(engines, 'engine')} of {number_of(width, 'GPU')} need {engines * width}"
        raise UserError(f"{need}, this process sees {gpus}. Lower --data-parallel or --tensor-parallel")
    return engines


def generate(pairs: list[Pair], engine: Engine, engines: int | None) -> Iterator[Sample]:
    """Samples in the order in which they finish."""
    devices, width = nvidia.usable_gpus(), engine.tensor_parallel
    if not devices and not nvidia.environment_for_cpu():
        raise UserError(
            "PyTorch sees no GPU, and this environment has vLLM's build for GPUs. `real-openrlhf doctor` finds the "
            "cause; `bash examples/scripts/setup_env.sh cpu` makes an environment for CPU."
        )
    if not devices and (unused := nvidia.gpu_count()):
        for_gpus = "`bash examples/scripts/setup_env.sh gpu` makes one for GPUs"
        print(f"{number_of(unused, 'GPU')} not used: this environment is for CPU. {for_gpus}", file=sys.stderr)
    engines = engine_count(engines, len(devices), width)
    # Python's semaphore tracker would warn of stopped engines behind the command's last line
    quiet = "ignore::UserWarning:multiprocessing.resource_tracker"
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), quiet)))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    dealt = [pairs[rank::engines] for rank in range(engines)]
    gpus = [devices[width * rank : width * (rank + 1)] for rank in range(engines)]
    parts = [(results, part, engine, own, engines) for part, own in zip(dealt, gpus, strict=True) if part]
    workers = [context.Process(target=run_engine, args=part) for part in parts]
    try:
        for worker in workers:
            with signals_held():  # in the engine until it minds them: Ctrl-C reaches it while it imports
                worker.start()
        for _ in pairs:
            yield _next(results, workers)
    except BaseException:  # a failure, Ctrl-C, or the caller closed the generator
        started = [worker for worker in workers if worker.pid]
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.join(END_SECONDS)  # one that loads its libraries may have lost the signal
            worker.kill()
        raise
    for worker in workers:
        worker.join()


def _next(results: "Queue", workers: list["SpawnProcess"]) -> Sample:
    while True:
        try:
            item = results.get(timeout=1)
        except queue.Empty:
            if any(worker.exitcode for worker in workers) or not any(worker.is_alive() for worker in workers):
                codes = [worker.exitcode for worker in workers]
                raise UserError(f"a vLLM engine ended with exit codes {codes}. {_CONTINUE}") from None
            continue
        if isinstance(item, str):  # the reason of an engine that failed
            raise UserError(f"vLLM failed: {item}. {_CONTINUE}")
        return item


_CONTINUE = "Finished samples are kept: the same command continues"
