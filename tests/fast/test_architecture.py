"""What each folder may import, and what has one home: read from the text, with nothing installed."""

import ast
import functools
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "real_openrlhf"
OURS = PACKAGE.name
BESIDE = "same_answer"  # the verifier, a package of its own: it imports the standard library alone, as its tests hold
TOP = ""  # the folder of the modules that lie in no folder

# room -> (packages that its modules may import at their top, rooms of ours that they may use anywhere)
RULES = {
    TOP: ("", "base top"),
    "base": ("", ""),
    "machine": ("", "base top"),
    "algorithm": ("torch", "base"),
    "flags": ("", "algorithm base"),
    "forecast": ("", "algorithm base flags"),
    "hooks": ("deepspeed openrlhf packaging peft psutil ray torch transformers",
        "algorithm base flags forecast machine rewards top"),
    "runs": ("", "base machine recipes rewards top"),
    "recipes": ("", "algorithm base flags"),
    "report": ("jinja2 matplotlib numpy pandas", "base data recipes runs top"),
    "training": ("", "base data flags forecast hooks machine recipes report rewards runs top"),
    "comparison": ("", "base evaluation forecast recipes report runs training"),
    "rehearsal": ("", "base comparison data flags forecast hooks recipes rewards runs training"),
    "rewards": ("", "base"),
    "data": ("tqdm", "base top"),
    "evaluation": ("numpy tqdm", "base data hooks machine report rewards runs training"),
}  # fmt: skip
ROOMS = {name: tuple({TOP if word == "top" else word for word in words.split()} for words in rule)
         for name, rule in RULES.items()}  # fmt: skip
# Run where nothing is installed yet, before a process has chosen its device, or in thousands of processes.
STANDARD_LIBRARY_ONLY = """
    cli patching base.environment base.errors base.files base.ownership base.parsing machine.doctor recipes.recipes
    runs.provenance runs.run_folder training.tiny_task hooks.arguments forecast.duration forecast.memory
    algorithm.schedule algorithm.settings evaluation.engines rewards.math_reward
""".split()


def module_name(path: Path) -> str:
    """Dotted, without the package's own name; a folder's `__init__` has the folder's name."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


TEXTS = {module_name(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(text, name) for name, text in TEXTS.items()}


def room(name: str) -> str:
    first = name.partition(".")[0]
    return first if (PACKAGE / first).is_dir() else TOP


def imported(name: str, anywhere: bool) -> Iterator[str]:
    """Dotted names that importing the module imports; `anywhere`: those inside functions too."""
    nodes: list[ast.AST] = [trees()[name]]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are written out in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif anywhere or not _runs_later(node):
            nodes += ast.iter_child_nodes(node)


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def packages(name: str, anywhere: bool = False) -> set[str]:
    """What a module imports of others' packages."""
    return {target.partition(".")[0] for target in imported(name, anywhere)} - sys.stdlib_module_names - {OURS, BESIDE}


def modules(name: str, anywhere: bool = False) -> set[str]:
    """What a module imports of ours."""
    targets = [target.removeprefix(OURS).lstrip(".") for target in imported(name, anywhere) if is_ours(target)]
    return {target if target in trees() else target.rpartition(".")[0] for target in targets}


def is_ours(target: str) -> bool:
    return target.partition(".")[0] == OURS


@pytest.mark.parametrize("name", TEXTS)
def test_a_module_keeps_the_rule_of_its_room(name):
    allowed_packages, allowed_rooms = ROOMS[room(name)]
    assert packages(name) <= allowed_packages
    assert {room(other) for other in modules(name, anywhere=True)} <= allowed_rooms | {room(name)}
    if room(name) != "hooks":
        assert "openrlhf" not in packages(name, anywhere=True)


@pytest.mark.parametrize("name", ROOMS)
def test_a_rule_allows_what_a_module_of_its_room_does_and_no_more(name):
    """Else the next arrow of that kind is drawn without a thought."""
    allowed_packages, allowed_rooms = ROOMS[name]
    inside = [module for module in trees() if room(module) == name]
    used = {room(other) for module in inside for other in modules(module, anywhere=True)}
    assert allowed_packages == {package for module in inside for package in packages(module)}
    assert allowed_rooms - {TOP} == used - {TOP, name}


def test_the_page_has_these_rules():
    page = (PACKAGE.parent / "docs/change/architecture.md").read_text()
    rows = re.findall(r"^\|`(\w+)/`\|[^|]+\|([^|]+)\|$", page, re.MULTILINE)
    written = {name: {*re.findall(r"`(\w+)/`", allowed)} for name, allowed in rows}
    assert written == {name: allowed - {TOP} for name, (_, allowed) in ROOMS.items() if name != TOP}


def test_the_ten_nouns_are_the_codes():
    page = (PACKAGE.parent / "docs/change/architecture.md").read_text()
    rows = re.findall(r"^\|\*(\w+)\*\|[^|]+\|([^|]+)\|$", page, re.MULTILINE)
    assert len(rows) == 10
    inside = {name: tree for name, tree in trees().items() if room(name) in ("algorithm", "hooks")}
    defined = {
        node.name for tree in inside.values() for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert {name for _, names in rows for name in re.findall(r"`(\w+)`", names)} <= defined
    # the words that they replaced
    arguments = {arg.arg for tree in inside.values() for arg in ast.walk(tree) if isinstance(arg, ast.arg)}
    assert not arguments & {"whole", "number_of_step", "steps_of_groups", "groups_per_step", "limit"}


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_a_module_and_all_that_it_imports_need_the_standard_library_only(name):
    seen: set[str] = set()
    waiting = {name}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        assert not packages(module), f"by way of {module}"
        waiting |= (modules(module) | {module.rpartition(".")[0]}) - seen


def test_the_verifier_and_its_benchmarks_import_nothing_of_the_package():
    files = (PACKAGE.parent / BESIDE).rglob("*.py")
    assert not [file for file in files if re.search(rf"^\s*(from|import) {OURS}", file.read_text(), re.MULTILINE)]


def test_no_import_cycle():
    """Of modules, and of rooms, where an import inside a function counts too; the top is every room's."""
    graphlib.TopologicalSorter({name: modules(name, anywhere=True) for name in trees()}).prepare()
    rooms: dict[str, set[str]] = {}
    for name in trees():
        rooms.setdefault(room(name), set()).update(room(other) for other in modules(name, anywhere=True))
    graphlib.TopologicalSorter({one: others - {one, TOP} for one, others in rooms.items() if one != TOP}).prepare()


def test_hooks_have_an_order():
    """No two of its folders ask each other; what trainer and controller share lies beside them."""
    folders: dict[str, set[str]] = {}
    for name in (name for name in trees() if name.count(".") == 2 and room(name) == "hooks"):
        asked = {other.split(".")[1] for other in modules(name, anywhere=True) if other.count(".") == 2}
        folders.setdefault(name.split(".")[1], set()).update(asked - {name.split(".")[1]})
    assert not [name for name in modules("hooks.policy_trainer", anywhere=True) if "controller" in name]
    graphlib.TopologicalSorter(folders).prepare()


PORTABLE = ("hooks.cpu", "hooks.engine", "hooks.fixes", "hooks.model", "hooks.prompt_stream", "hooks.run_strategy")
OF_EITHER = {"hooks", "hooks.trainer_classes", "algorithm", "algorithm.token_log_probs"}


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith(PORTABLE)])
def test_what_makes_openrlhf_portable_knows_real_by_one_module(name):
    """Devices, starts, weights and strategy could go to OpenRLHF as they are."""
    asked = {other for other in modules(name, anywhere=True) if room(other) in ("algorithm", "hooks")}
    assert not [other for other in asked - OF_EITHER if not other.startswith(PORTABLE)]


@pytest.mark.parametrize("name", ["algorithm", "base", "flags", "hooks", "training"])
def test_a_module_can_be_read_at_once(name):
    long = {module: len(text.splitlines()) for module, text in TEXTS.items() if room(module) == name}
    assert not [module for module, lines in long.items() if lines > 270]


def test_the_root_has_the_package_the_commands_and_the_patches_alone():
    assert {name for name in trees() if room(name) == TOP} == {"", "cli", "patching"}


def test_what_other_trainers_import_is_written_for_python_3_10():
    """The package asks for 3.11 where it trains; elsewhere its losses find another one."""
    for name in (name for name in trees() if name == TOP or room(name) == "algorithm"):
        ast.parse(TEXTS[name], name, feature_version=(3, 10))
    assert 'python_requires=">=3.10"' in (PACKAGE.parent / "setup.py").read_text()


# what is done in one place -> (how it looks in code, its home; the other two run OpenRLHF's script and workers)
HOMES = {
    "a lock between processes": (r"\bfcntl\.flock\(", {"base.files"}),
    "a check of OpenRLHF's flags": (
        r"def \w+\(args: SimpleNamespace\) -> Iterator\[str\]",
        {"flags.loss_refusals", "flags.refusals"},
    ),
    "which loss trains, but for OpenRLHF's own two": (
        r"(?<!-)\bactor\.policy_loss_type\b(?! [!=]= \"(?:ppo|gspo)\")",
        {"flags.arguments", "flags.derived", "hooks.policy_trainer"},  # the last: of Table 1
    ),
    "whole groups": (r"\bargs\.train\.batching\b", {"flags.arguments", "flags.derived"}),
    "the name of a run's file": (
        r"[\"/](?:run\.json|(?:metrics|rollouts|notes)\.jsonl|train\.log|\.lock|\.finished|\.phase)\"",
        {"base.run_files"},
    ),
    "the bounds of a flag's number": (r"\bBOUNDS = ", {"flags.rules"}),
    "a user's file is run": (
        r"(?<![\w.])exec\(|runpy\.run_path\(",
        {"base.user_files", "flags.parser"},
    ),
}


@pytest.mark.parametrize("what", HOMES)
def test_what_has_one_home(what):
    pattern, homes = HOMES[what]
    assert {name for name, text in TEXTS.items() if re.search(pattern, text)} == homes
