"""OpenRLHF's own parser and checks of flags, without Ray, vLLM and DeepSpeed, which its script imports first."""

import argparse
import ast
import builtins
import contextlib
import importlib.util
import io
import os
import runpy
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.flags import arguments

PARSER_FUNCTIONS = ("build_parser", "parse_args")


@cache
def functions() -> SimpleNamespace:
    """`build_parser()` and `parse_args(words)` from the text of OpenRLHF's script, so they are those of a run."""
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("OpenRLHF is not installed here. Run examples/scripts/setup_env.sh.")
    package = Path(spec.submodule_search_locations[0])
    script = package / "cli" / "train_ppo_ray.py"

    def import_alone(name: str, *context: Any) -> Any:
        """Run a module of OpenRLHF from its file. A normal import would load its package, and with it torch."""
        if not name.startswith("openrlhf."):
            return builtins.__import__(name, *context)
        return SimpleNamespace(**runpy.run_path(str(package.parent / f"{name.replace('.', '/')}.py")))

    tree = ast.parse(script.read_bytes())
    body: list[ast.stmt] = [it for it in tree.body if getattr(it, "name", None) in PARSER_FUNCTIONS]
    names = {"__builtins__": vars(builtins) | {"__import__": import_alone}, "argparse": argparse, "os": os}
    names |= {"datetime": datetime, "real_arguments": arguments}
    exec(compile(ast.Module(body, []), str(script), "exec"), names)
    if not set(PARSER_FUNCTIONS) <= names.keys():
        raise UserError("this OpenRLHF is not patched. Run `real-openrlhf patch apply`.")
    return SimpleNamespace(**{name: names[name] for name in PARSER_FUNCTIONS})


def parsed(parse: Callable[[list[str]], Any], words: list[str]) -> tuple[Any, str]:
    """(arguments, "") or, where argparse would print an error and exit, (None, that error)."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(io.StringIO()):
            return parse(words), ""
    except SystemExit:
        *_, last = ["", *output.getvalue().strip().splitlines()]
        if "error: " not in last:  # not argparse's
            raise
        return None, last.partition("error: ")[2]


@cache
def _parser() -> argparse.ArgumentParser:
    return functions().build_parser()


def options() -> dict[str, argparse.Action]:
    return _parser()._option_string_actions


def wrong_value(words: list[str]) -> str:
    """argparse's objection to a flag with its words; else an empty text."""
    return parsed(_parser().parse_args, words)[1]


def raw(words: Iterable[str]) -> SimpleNamespace:
    """`args.train.batch_size` and all others as they were typed, without any check."""
    args, wrong = parsed(_parser().parse_args, [*words])
    if wrong:
        raise UserError(wrong)
    nested = SimpleNamespace()
    for name, value in vars(args).items():
        *groups, last = name.split(".")
        parent = nested
        for group in groups:
            parent = vars(parent).setdefault(group, SimpleNamespace())
        setattr(parent, last, value)
    return nested


def resolved(words: list[str]) -> tuple[SimpleNamespace, list[str]]:
    """The arguments that a run's processes get from these words, and the objections to them.

    With objections they lack what OpenRLHF's checks fill in, so that other checks can go on. Ours are told all at
    once, of OpenRLHF's the first one.
    """
    try:
        args, refusal = parsed(functions().parse_args, words)
        if args:
            return args, []
        problems = [refusal]
    except UserError as error:
        problems = error.problems
    except AssertionError as error:
        problems = [f"OpenRLHF refuses this combination: {error}"]
    except Exception as error:  # OpenRLHF's checks crash where a flag is missing
        failed = f"OpenRLHF's own checks fail on this combination ({type(error).__name__}: {error})"
        problems = [f"{failed}. Look at the flags under `changed by you`."]
    return arguments.complete(raw(words)), problems


@cache
def defaults() -> dict[str, str]:
    """{flag: its default as typed, of a switch an empty text}; {} if there is no parser, which a check reports."""
    with contextlib.suppress(UserError):
        actions = options().items()
        valued = {flag: "" if action.nargs == 0 else action.default for flag, action in actions}
        lists = {flag: value if isinstance(value, list | tuple) else [value] for flag, value in valued.items()}
        return {flag: " ".join(map(str, words)) for flag, words in lists.items() if words != [None]}
    return {}
