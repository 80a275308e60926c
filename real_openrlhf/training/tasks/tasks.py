"""The tasks for machines without a GPU by name, and the recipe, files and reward of each."""

from real_openrlhf.errors import UserError
from real_openrlhf.training.tasks.reverse_task import ReverseTask
from real_openrlhf.training.tasks.sums_task import SumsTask
from real_openrlhf.training.tasks.tiny_model import TinyTask

TASKS: dict[str, type[TinyTask]] = {"reverse": ReverseTask, "sums": SumsTask}
RECIPES_OF = {"reverse": "cpu", "sums": "cpu-sums"}


def default(name: str) -> TinyTask:
    """A task as its kind has it."""
    return TASKS[name]()  # type: ignore[call-arg]  # every kind has its own defaults


def recipe_of(name: str, task: str | None) -> str:
    """A task is a recipe for machines without a GPU; its name says it shorter."""
    if task is None or name == RECIPES_OF[task]:
        return name
    if name != "cpu":
        raise UserError(f"--recipe {name} has its own task. Leave --task {task} out, or --recipe.")
    return RECIPES_OF[task]
