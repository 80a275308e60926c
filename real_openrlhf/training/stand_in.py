"""The tests' stand-in for flash-attn, with which one recipe tries the paths of a GPU run on a machine without one.

Standard library only.
"""

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from real_openrlhf.recipes.setting import Recipe

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "flash_attn_in_torch"
MARK = "+torch"  # ends its version


def environment(recipe: Recipe, given: Mapping[str, str]) -> dict[str, str]:
    """What lets every process of the run find it, Ray's workers too."""
    if not recipe.flash_attn_in_torch:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(FOLDER), given.get("PYTHONPATH", "")]))}


def problems(recipe: Recipe, gpus: int) -> list[str]:
    """It belongs to a checkout, to a machine without GPUs, and to no other recipe."""
    if not recipe.flash_attn_in_torch:
        return [_misplaced()] if _version().endswith(MARK) else []
    if not FOLDER.is_dir():
        return [
            f"recipe {recipe.name} needs a checkout: the stand-in for flash-attn is in tests/. Take another recipe."
        ]
    if gpus:
        return [f"recipe {recipe.name} is for machines without a GPU. Take the one that it is made after, qwen7b."]
    return []


def _version() -> str:
    try:
        return metadata.version("flash-attn")
    except metadata.PackageNotFoundError:
        return ""


def _misplaced() -> str:
    return "flash-attn is the tests' stand-in here, which only cpu-like-gpu may take. Take its folder off PYTHONPATH."
