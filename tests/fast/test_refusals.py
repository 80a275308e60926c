"""A dry run is a promise: each refusal of a run, an evaluation or a report is in it, or below with the reason why not.

The dry run's refusals are found in the code: those of every function that its checks can call.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "real_openrlhf"
LATE = Path(__file__).resolve().parents[1] / "data" / "late_refusals.txt"
# What a run, an evaluation and a report execute; `algorithm` raises for callers of its functions.
ROOMS = ("comparison", "data", "evaluation", "hooks", "report", "runs", "training")
# Where a dry run of `train` and of `compare` begins. OpenRLHF's parser, which it runs, calls the hooks.
ROOTS = (
    "training.command.parse",
    "training.config_file.WithConfig.parse_known_args",
    "comparison.command.WithCampaign.parse_known_args",
    "training.run_inputs.Request.of",
    "training.launch.place.Place.of",
    "training.checks.run_checks.found",
    "comparison.command.run_list",
    "comparison.dry_run.show",
    "comparison.command.refuse_other_flags",
    "comparison.command.refuse_foreign_results",
    "hooks.flags.arguments.resolve",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Code:
    """The package's functions by dotted name, and for each the functions that it may call."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[str, Function]] = {}  # name -> (module, node)
        self.imports: dict[str, dict[str, str]] = {}  # module -> {local name: dotted name}
        for path in PACKAGE.rglob("*.py"):
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
            tree = ast.parse(path.read_bytes())
            self.imports[module] = dict(_imported(tree))
            self._define(module, module, tree)
        self.methods: dict[str, list[str]] = {}
        for name in self.functions:
            self.methods.setdefault(name.rpartition(".")[2], []).append(name)

    def _define(self, module: str, prefix: str, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                self.functions[f"{prefix}.{child.name}"] = (module, child)
            elif isinstance(child, ast.ClassDef):
                self._define(module, f"{prefix}.{child.name}", child)

    def called(self, name: str) -> Iterator[str]:
        """Functions whose names stand in this one: of its module, of an import, or a method of a class it can see."""
        module, node = self.functions[name]
        known = self.imports[module]
        own = name.removeprefix(f"{module}.").rpartition(".")[0]
        for one in ast.walk(node):
            if isinstance(one, ast.Name):
                yield from self._named(known.get(one.id, f"{module}.{one.id}"))
            elif isinstance(one, ast.Attribute):
                if isinstance(one.value, ast.Name) and one.value.id in known:
                    yield from self._named(f"{known[one.value.id]}.{one.attr}")
                if isinstance(one.value, ast.Name) and one.value.id in ("self", "cls") and own:
                    yield from self._named(f"{module}.{own}.{one.attr}")

    def _named(self, name: str) -> Iterator[str]:
        if name in self.functions:
            yield name
        for part in ("__init__", "__post_init__"):  # a class is called
            if f"{name}.{part}" in self.functions:
                yield f"{name}.{part}"

    def reached(self, roots: tuple[str, ...]) -> set[str]:
        found, waiting = set[str](), [*roots]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.called(name)
        return found

    def refuses(self, name: str) -> bool:
        """Whether it raises an error with a message of ours."""
        return any(
            isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call) and one.exc.args
            for one in ast.walk(self.functions[name][1])
        )


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
            base = node.module.removeprefix(PACKAGE.name).lstrip(".")
            for alias in node.names:
                yield alias.asname or alias.name, f"{base}.{alias.name}".lstrip(".")


def late() -> dict[str, str]:
    """{function: why no dry run refuses what it refuses}, from the list."""
    found: dict[str, str] = {}
    reason = ""
    for line in LATE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            assert line.strip() not in found, f"{line.strip()} stands twice"
            found[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return found


def test_each_refusal_is_in_the_dry_run_or_has_a_reason():
    code = Code()
    missing = [root for root in ROOTS if root not in code.functions]
    assert missing == [], "a dry run begins elsewhere: change ROOTS"
    reached = code.reached(ROOTS)
    refusing = {name for name in code.functions if name.startswith(tuple(f"{room}." for room in ROOMS))}
    refusing = {name for name in refusing if code.refuses(name)}
    named = late()
    assert all(named.values()), "a function stands without a reason"
    assert sorted(refusing - reached - named.keys()) == [], "check it in the dry run, or add it with its reason"
    assert sorted(named.keys() - (refusing - reached)) == [], "these refuse nothing any more, or the dry run does"
    assert len(refusing & reached) > 30  # the walk over the calls works


def test_the_walk_sees_a_check_that_is_taken_out():
    """The list would grow by it."""
    code = Code()
    _, node = code.functions["training.checks.run_checks._size"]
    kept = [one for one in node.body if "read_config" not in ast.unparse(one)]
    node.body = kept
    assert "training.checks.model_check.read_config" not in code.reached(ROOTS)
