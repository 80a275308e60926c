"""The reward that a run names: a fault of its file would show after the model is loaded."""

import ast
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base.secrets import LOGIN
from real_openrlhf.recipes.plan import RunFlags


def reward_problems(flags: RunFlags) -> Iterator[str]:
    for url in (flags.args.reward.remote_url or "").split(","):
        if url.endswith(".py") and (wrong := reward_file_problem(Path(url))):
            yield f"--reward.remote_url {url} {wrong}"
        elif LOGIN.search(url):
            yield "--reward.remote_url: OpenRLHF would print the password in it. Call that server from a file.py."


def reward_file_problem(path: Path) -> str | None:
    """The defect of a reward file, found by parsing it. Only rollout actors run the file."""
    try:
        tree = ast.parse(path.read_bytes())
    except OSError:
        return "does not exist. Give a Python file with reward_func, or a URL."
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is not Python ({error}). Mend it."
    names = {getattr(node, "name", None) or getattr(node, "id", None) for node in ast.walk(tree)}
    if not names & {"reward_func", "*"}:
        return "has no reward_func. Define `def reward_func(queries, prompts, labels)` in it, at its top."
    return None
