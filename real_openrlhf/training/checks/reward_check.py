"""Checks of the reward function that a run names: a Python file, or a server."""

import ast
import socket
import symtable
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from real_openrlhf.recipes.plan import Plan

FUNCTION, ARGUMENTS = "reward_func", ("queries", "prompts", "labels")  # of a reward file


def reward_problems(plan: Plan) -> Iterator[str]:
    for url in (plan.args.reward.remote_url or "").split(","):
        if url.endswith(".py") and (wrong := reward_file_problem(Path(url))):
            yield f"--reward.remote_url {url} {wrong}"


def server_problems(plan: Plan) -> Iterator[str]:
    """Reward servers that take no connection: each answer would have no verdict, and the run would go on."""
    for url in (plan.args.reward.remote_url or "").split(","):
        parts = urlsplit(url)
        if not url or url.endswith(".py") or plan.args.train.agent_func_path:
            continue
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield "--reward.remote_url: one is neither a Python file (.py) nor an address with http://. Give one."
        elif parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
            continue  # only the proxy can tell
        else:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            try:
                socket.create_connection((parts.hostname, port), timeout=5).close()
            except OSError as error:
                server = f"{parts.hostname}:{port}"
                yield f"--reward.remote_url: nothing answers at {server} ({error}). Start the server first."


def reward_file_problem(path: Path) -> str | None:
    """The defect of a reward file, found by parsing it. Only rollout actors run the file."""
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
        return (
            f"has no {FUNCTION}. {_wrapping(tree)}Define `def {FUNCTION}({', '.join(ARGUMENTS)})` in it, at its top."
        )
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and node.name == FUNCTION:
            return f"has an async {FUNCTION}, which is called in a thread. Write `def` without `async`."
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION and not _takes_three(node.args):
            takes = f"cannot be called with three arguments: {', '.join(ARGUMENTS)}"
            return f"has a {FUNCTION} that {takes}. {_wrapping(tree)}Take these."
    return None


# Calls of reward functions that were written for other trainers; `queries` are prompts with their responses.
WRAPPED = {
    "verl": "[{name}('mine', query[len(prompt):], label) for query, prompt, label in zip(queries, prompts, labels)]",
    "TRL": "{name}(completions=[query[len(prompt):] for query, prompt in zip(queries, prompts)], answer=labels)",
}


def _wrapping(tree: ast.Module) -> str:
    """How to wrap a reward function of verl or TRL that is in the file; else an empty text."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            whose = "TRL" if "completions" in names else "verl" if "solution_str" in names else None
            if whose:
                call = WRAPPED[whose].format(name=node.name if node.name != FUNCTION else "their_function")
                rename = "rename it to their_function, and " if node.name == FUNCTION else ""
                return (
                    f"{node.name} is a function for {whose}: {rename}wrap it as `def {FUNCTION}(queries, prompts, "
                    f"labels): scores = {call}; return dict(rewards=scores, scores=scores, extra_logs=dict())`. "
                )
    return ""


def _takes_three(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    alone = sum(default is None for default in arguments.kw_defaults)
    return required <= 3 <= (positional if not arguments.vararg else 3) and not alone
