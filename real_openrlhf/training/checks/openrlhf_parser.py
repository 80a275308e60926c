"""OpenRLHF's own parser and checks of flags, without Ray, vLLM and DeepSpeed, which its script imports first."""

import ast
import builtins
import functools
import importlib.util
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_openrlhf.base.errors import UserError

SCRIPT = Path("cli", "train_ppo_ray.py")
NEEDED = (
    "argparse",
    "os",
    "datetime",
    "real_openrlhf.hooks.flags",
)  # of all that the script imports, what its two functions use
FUNCTIONS = ("build_parser", "parse_args")


@functools.cache
def load() -> SimpleNamespace:
    """`build_parser()` and `parse_args(words)` from the script's own text: they are those of a run."""
    found = importlib.util.find_spec("openrlhf")
    if found is None or not found.submodule_search_locations:
        raise UserError("OpenRLHF is not installed here. Run examples/scripts/setup_env.sh.")
    package = Path(found.submodule_search_locations[0])

    def import_alone(name: str, *context: Any) -> Any:
        """Run a module of OpenRLHF by its file. Importing it would import its package, and that the stack."""
        if not name.startswith("openrlhf."):
            return builtins.__import__(name, *context)
        return SimpleNamespace(**runpy.run_path(str(package.parent / f"{name.replace('.', '/')}.py")))

    tree = ast.parse((package / SCRIPT).read_bytes())
    body = [node for node in tree.body if _is_needed(node)]
    names = {"__builtins__": vars(builtins) | {"__import__": import_alone}}
    exec(compile(ast.Module(body, []), str(package / SCRIPT), "exec"), names)
    if not set(FUNCTIONS) <= names.keys():
        raise UserError("this OpenRLHF is not patched. Run `real-openrlhf patch apply`.")
    return SimpleNamespace(**{name: names[name] for name in FUNCTIONS})


def _is_needed(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(name=name):
            return name in FUNCTIONS
        case ast.Import(names=[ast.alias(name=name)]) | ast.ImportFrom(module=str(name)):
            return name in NEEDED
        case ast.Try(body=[ast.ImportFrom(module=str(name))]):
            return name in NEEDED
    return False
