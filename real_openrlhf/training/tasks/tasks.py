"""The tasks for machines without a GPU by name, and the files and model of each."""

from pathlib import Path

from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.gym_task import GymTask
from real_openrlhf.training.tasks.reverse_task import ReverseTask
from real_openrlhf.training.tasks.sums_task import SumsTask
from real_openrlhf.training.tasks.tiny_model import TinyTask
from real_openrlhf.training.tasks.warm_up import WarmUp

TINY: dict[str, type[TinyTask]] = {"reverse": ReverseTask, "sums": SumsTask}
PRETRAINED = {
    "needle_haystack": GymTask(
        "needle_haystack", ("min_num_statements=3", "max_num_statements=5"), WarmUp(6, 16, 1e-4)
    )
}
TASKS = (*TINY, *PRETRAINED)


def default(name: str) -> TinyTask | GymTask:
    """The task of this name with its default settings."""
    return PRETRAINED[name] if name in PRETRAINED else TINY[name]()  # type: ignore[call-arg]  # every kind has defaults


def prepare(task: TinyTask | GymTask) -> Path:
    """The folder with `model/`, `train.jsonl` and `eval.jsonl`."""
    return task.prepare() if isinstance(task, GymTask) else tiny_model.prepare(task)
