"""The tasks of reasoning-gym, an optional package, and their scorers. Nothing here imports it before it is asked for.

A scorer is used as it is if all that it does with a model's text is to read it. They were read in one release, and
another one is refused.
"""

import difflib
import importlib.util
import json
import sys
from enum import Enum
from functools import lru_cache
from importlib.metadata import version
from types import ModuleType
from typing import Any

from real_openrlhf.errors import UserError, first_line
from real_openrlhf.files import parsed
from real_openrlhf.rewards.gym.rules import RULES
from real_openrlhf.rewards.verifier.process import Undecided

RELEASE = "0.1.25"
# Packages that reasoning_gym imports at its top, and the tasks that use them. Only sources of these are published.
ABSENT = {
    "cellpylib": ("game_of_life", "game_of_life_halting"),
    "pycosat": ("zebra_puzzles",),
    "zss": ("codeio",),
}
# Their scorers hand the model's text to sympy's parser, which evaluates it: the verifier for maths compares instead.
BY_ALGEBRA = ("intermediate_integration", "polynomial_multiplication", "simple_integration")
INSTALL = (
    "In a checkout `bash examples/scripts/setup_env.sh cpu` brings it; elsewhere `pip install 'real-openrlhf[gym]'`, "
    "which compiles pycosat with gcc."
)


class ScorerRaised(Undecided):
    """reasoning-gym's scorer failed on the answer: some do on any prose."""

    reason = "scorer_raised"


def require() -> None:
    """Without importing it, which takes seconds."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise UserError(f"reasoning_gym is not installed. {INSTALL}")
    if (found := version("reasoning-gym")) != RELEASE:
        raise UserError(f"reasoning_gym is {found}, and its scorers were checked for {RELEASE}. Install that release.")


@lru_cache(maxsize=1)
def library() -> ModuleType:
    """What set-up leaves out is an empty module while reasoning_gym is imported."""
    require()
    absent = _absent()
    sys.modules.update({name: ModuleType(name) for name in absent})
    try:
        import reasoning_gym

        return reasoning_gym
    finally:
        for name in absent:
            del sys.modules[name]


def _absent() -> list[str]:
    return [name for name in ABSENT if importlib.util.find_spec(name) is None]


def offered() -> list[str]:
    left_out = {task for name in _absent() for task in ABSENT[name]} | {"composite"}  # a mixture; here a JSON file
    return sorted(set(library().factory.DATASETS) - left_out)


def check(name: str) -> None:
    for package in _absent():
        if name in ABSENT[package]:
            raise UserError(f"{name} needs {package}. `pip install {package}` builds it from source.")
    if name not in offered():
        raise UserError(f"reasoning-gym has no task {name}. {_near(name, offered())}")


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=4)
    return f"Do you mean {' or '.join(near)}?" if near else f"There are: {', '.join(names)}"


def dataset(name: str, settings: dict[str, Any], seed: int = 0, size: int = 1) -> Any:
    """reasoning-gym's own, with settings as JSON has them."""
    config = library().factory.DATASETS[name][1]
    defaults = vars(config())
    known = [setting for setting in defaults if setting not in ("seed", "size")]
    if unknown := [setting for setting in settings if setting not in known]:
        raise UserError(f"{name} has no setting {unknown[0]}. {_near(unknown[0], known)}")
    values = {setting: _as_type_of(defaults[setting], setting, value) for setting, value in settings.items()}
    try:
        return library().create_dataset(name, seed=seed, size=size, **values)
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"{name} cannot have these settings ({first_line(error)}). Give others with --set") from error


def _as_type_of(default: Any, setting: str, value: Any) -> Any:
    """JSON has no tuples and no enumerations, and writes 1.0 as 1."""
    if default is None or type(value) is type(default):
        return value
    try:
        if isinstance(default, tuple | list) and isinstance(value, list) or isinstance(default, Enum):
            return type(default)(value)
        if isinstance(default, float) and type(value) is int:
            return float(value)
    except ValueError:
        pass
    raise UserError(f"{setting}={json.dumps(value)}: a {type(default).__name__} is expected, as {default!r}")


def level_settings(name: str, level: int) -> dict[str, Any]:
    """What the task's curriculum sets at a level, from 0."""
    if name not in library().factory.CURRICULA:
        raise UserError(f"{name} has no curriculum, so no level. Give settings instead")
    curriculum = library().factory.create_curriculum(name)
    highest = max(len(attribute.levels) for attribute in curriculum.attributes.values()) - 1
    if not 0 <= level <= highest:
        raise UserError(f"{name} has the levels 0 to {highest}, and {level} was asked for")
    curriculum.set_global_level(level)
    chosen, default = vars(curriculum.generate_configuration()), vars(library().factory.DATASETS[name][1]())
    return {setting: value for setting, value in chosen.items() if value != default[setting] and setting != "seed"}


def entry(label: Any) -> dict[str, Any]:
    """Of a label: what its scorer reads. An answer of None says that the scorer alone knows what is right."""
    content = parsed(label) if isinstance(label, str) else label
    return {key: content[key] for key in ("task", "settings", "answer", "metadata")}


def right(label: str, answer: str) -> bool:
    """Whether the answer is exactly right. reasoning-gym's 0.99 may be a near miss: 1.0 alone counts."""
    content = json.loads(label)
    task = content["task"]
    if rule := RULES.get(task):
        try:
            return rule(content, answer)
        except (ValueError, TypeError, LookupError, SyntaxError, ArithmeticError, RecursionError):
            return False  # not in the form of an answer
    assert task not in BY_ALGEBRA, f"{task}: its scorer would evaluate the answer"
    try:
        return bool(_scorer(task, json.dumps(content["settings"]))(answer, content) >= 1.0)
    except MemoryError:
        raise
    except Exception as error:
        raise ScorerRaised(f"{task}: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)
def _scorer(name: str, settings: str) -> Any:
    check(name)
    return dataset(name, json.loads(settings)).score_answer
