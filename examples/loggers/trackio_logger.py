"""Each run in trackio: `--logger.file examples/loggers/trackio_logger.py`. Your own tracker has the same functions.

Install trackio into the environment first. It draws the numbers with `trackio show`.
"""

import json
from pathlib import Path

import trackio


def start(folder: str) -> None:
    """Called once in a run's process, also in a resumed run: before the first numbers."""
    run = json.loads((Path(folder) / "run.json").read_text())
    trackio.init(project="real-openrlhf", name=run["name"], config=run["flags"], resume="allow")


def log(step: int, numbers: dict[str, float]) -> None:
    """`numbers` are those of metrics.jsonl, named train/... or eval/..."""
    trackio.log(numbers, step=step)


def close() -> None:
    trackio.finish()
