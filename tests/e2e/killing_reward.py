"""A reward that differs among responses, without reading them; for the label `kill` it kills the vLLM engine first."""

import multiprocessing
import os
import signal
import zlib


def reward_func(queries, prompts, labels):
    if labels[0] == "kill":
        (engine,) = (child for child in multiprocessing.active_children() if child.name == "EngineCore")
        os.kill(engine.pid, signal.SIGKILL)
    return {"rewards": float(zlib.crc32(queries[0].encode()) % 2)}
