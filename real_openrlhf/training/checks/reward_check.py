"""Whether a reward file is one, by its text: it is not run before the rollout actors run it."""

import ast
import symtable
from pathlib import Path

from real_openrlhf.recipes.plan import Plan

FUNCTION, ARGUMENTS = "reward_func", ("queries", "prompts", "labels")


def reward_problems(plan: Plan) -> list[str]:
    urls = [url for url in plan.text("--reward.remote_url").split(",") if url.endswith(".py")]
    return [f"--reward.remote_url {url} {wrong}" for url in urls if (wrong := _problem(Path(url)))]


def _problem(path: Path) -> str | None:
    if not path.is_file():
        return "does not exist. Give a Python file with reward_func, or a URL."
    try:
        text = path.read_bytes()
        tree = ast.parse(text)
        names = symtable.symtable(text, str(path), "exec").get_symbols()  # type: ignore[arg-type]  # as compile()
    except SyntaxError as error:
        return f"is not Python (line {error.lineno or 1}: {error.msg}). Mend that line."
    except (ValueError, RecursionError, MemoryError, OSError) as error:
        return f"cannot be read as Python ({error}). Give a text file."
    stars = any(isinstance(node, ast.alias) and node.name == "*" for node in ast.walk(tree))
    bound = {name.get_name() for name in names if name.is_assigned() or name.is_imported()}
    if FUNCTION not in bound and not stars:
        return f"has no {FUNCTION}. Define `def {FUNCTION}({', '.join(ARGUMENTS)})` in it, at its top."
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and node.name == FUNCTION:
            return f"has an async {FUNCTION}, which is called in a thread. Write `def` without `async`."
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION and not _takes_three(node.args):
            return f"has a {FUNCTION} that cannot be called with three arguments: {', '.join(ARGUMENTS)}. Take these."
    return None


def _takes_three(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    alone = sum(default is None for default in arguments.kw_defaults)
    return required <= 3 <= (positional if not arguments.vararg else 3) and not alone
