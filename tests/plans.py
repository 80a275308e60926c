"""Plans of a run, as `train` composes them."""

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES

ON_GPUS = [name for name in RECIPES if name.startswith("qwen")]


def plan(recipe: str = "qwen7b", algo: str = "real", user=None, removed=(), rows=None):
    return compose(RECIPES[recipe], ALGORITHMS[algo], user or {}, removed, rows=rows)
