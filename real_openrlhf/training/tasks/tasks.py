"""The tasks for machines without a GPU by name, and the recipe, files and reward of each."""

from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.tasks.reverse_task import ReverseTask
from real_openrlhf.training.tasks.sums_task import SumsTask
from real_openrlhf.training.tasks.tiny_model import TinyTask

TASKS: dict[str, type[TinyTask]] = {"reverse": ReverseTask, "sums": SumsTask}


def default(name: str) -> TinyTask:
    """A task as its kind has it."""
    return TASKS[name]()  # type: ignore[call-arg]  # every kind has its own defaults


def recipe_of(task: str) -> str:
    """The recipe that is this task; its name says it shorter."""
    return next(recipe.name for recipe in RECIPES.values() if recipe.model == task)
