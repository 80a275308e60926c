"""The documents' tables of algorithms, objectives, metrics and memory come from the code, by this command:

python docs/refresh.py            # fills the tables between the markers
python docs/refresh.py --check    # changes nothing; exit 1 if a page says something else
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from textwrap import fill

import real_openrlhf
from real_openrlhf import PUBLIC
from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.algorithm.metrics import (
    GROUP_METRICS,
    MISMATCH_METRICS,
    PLAN_METRICS,
    TIS_METRICS,
    UPDATE_METRICS,
    Metric,
)
from real_openrlhf.flags import arguments
from real_openrlhf.forecast.duration import card_of, spans, text
from real_openrlhf.forecast.memory import GB, KNOWN_CONFIGS, disk, peak, pinned, shape_of
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import compose

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(<!-- code: (?P<name>\w+) -->\n)(?P<rows>.*?)(<!-- end -->)", re.DOTALL)
ADVICE = re.compile(r"^- `(?P<name>[^`]+)`: .* → (?P<advice>.*)$", re.MULTILINE)


def algorithms(_: str) -> str:
    rows = ((f"`{name}`", one.label, one.about, one.source) for name, one in ALGORITHMS.items())
    return table(("`--algo`", "in figures", "what it is", "from"), rows)


def objectives(_: str) -> str:
    rows = ((f"`{name}`", one.loss.__doc__, f"`{one.score}`", reads(name)) for name, one in OBJECTIVES.items())
    return table(("`--algo.real.objective`", "loss of a group", "score", "reads"), rows)


def reads(name: str) -> str:
    """The settings that an objective reads, with its own values."""
    values = {setting: one.default for setting, one in OBJECTIVES[name].settings.items() if setting != "score"}
    return ", ".join(f"`{key}` {value if isinstance(value, str) else f'{value:g}'}" for key, value in values.items())


def metrics(logged: dict[str, Metric], rows: str) -> str:
    """A line a number. Names and meanings are the code's; what stands behind an arrow is the page's and stays."""
    advice = {line["name"]: f" → {line['advice']}" for line in ADVICE.finditer(rows)}
    return "".join(f"- `{name}`: {one.meaning}{advice.get(name, '')}\n" for name, one in logged.items())


ON_GPUS = [recipe for recipe in RECIPES.values() if recipe.model in KNOWN_CONFIGS]


def memory(_: str) -> str:
    """What a dry run estimates, of every recipe for GPUs whose model is not a small one."""
    rows = []
    for recipe in ON_GPUS:
        shape = shape_of(KNOWN_CONFIGS[recipe.model])
        run = compose(recipe, ALGORITHMS["real"], {}, launcher={})
        most, host = peak(shape, run.args, recipe.gpu_gb * GB)[1], pinned(shape, run.args)[1]
        sizes = (f"{size / GB:.0f} GB" for size in (most, host, disk(shape, run.args)))
        rows.append((f"`{recipe.name}`", f"{recipe.gpus} x {recipe.gpu_gb:.0f} GB", *sizes))
    return table(("recipe, `--algo real`", "GPUs", "training, per GPU", "host memory", "disk"), rows)


DAY = {"--rollout.batch_size": ("32",), "--train.batch_size": ("64",), "--train.max_steps": ("300",)}


def time(_: str) -> str:
    """What a dry run says of time and money; the first day's three methods as if all were GRPO, the longest."""
    rows = []
    for recipe, algo, user in [*((one, "real", {}) for one in ON_GPUS), (RECIPES["qwen1.5b-1gpu"], "grpo", DAY)]:
        card, run = card_of((), recipe.gpu_gb), compose(recipe, ALGORITHMS[algo], user, launcher={})
        a_step, hours, dollars = map(text, spans(shape_of(KNOWN_CONFIGS[recipe.model]), run.args, card))
        name, steps = "the first day" if user else f"`{recipe.name}`", f"{run.args.train.max_steps:,}"
        prompts = run.text("--rollout.batch_size")
        rows.append((name, f"{recipe.gpus} x {card.name}", prompts, a_step, steps, hours, dollars))
    columns = "recipe, `--algo real`", "GPUs", "prompts per step", "seconds per step", "steps", "hours", "$"
    return table(columns, rows)


def flags(_: str) -> str:
    """Every flag that this project adds to OpenRLHF's parser, by what a run needs to read it."""
    parser = argparse.ArgumentParser(add_help=False)
    arguments.add(parser)
    groups: dict[str, str] = {}
    for action in parser._actions:
        choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.metavar
        value = f" {choices}" if action.nargs != 0 else ""
        text, _, what = str(action.help).partition(". Needs ")
        title = f"With {what}" if what else "Always"
        groups[title] = groups.get(title, "") + f"- `{action.option_strings[0]}{value}`: {text}.\n"
    return "".join(f"\n{title}:\n\n{lines}" for title, lines in groups.items()) + "\n"


def functions(_: str) -> str:
    """The public functions with every argument, from their docstrings."""
    texts = []
    for name in PUBLIC:
        function = getattr(real_openrlhf, name)
        signature = inspect.signature(function)
        plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
        signature = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
        call = fill(f"{name}{signature}", 96, subsequent_indent="    ")
        texts.append(f"### `{name}`\n\n```python\n{call}\n```\n\n{inspect.getdoc(function)}\n")
    return "\n" + "\n".join(texts) + "\n"


MADE: dict[str, Callable[[str], str]] = {
    "algorithms": algorithms,
    "objectives": objectives,
    "group_metrics": partial(metrics, GROUP_METRICS),
    "plan_metrics": partial(metrics, PLAN_METRICS),
    "update_metrics": partial(metrics, UPDATE_METRICS),
    "mismatch_metrics": partial(metrics, MISMATCH_METRICS | TIS_METRICS),
    "flags": flags,
    "functions": functions,
    "memory": memory,
    "time": time,
}


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [columns, ["---"] * len(tuple(columns)), *rows]
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def filled(page: Path) -> str:
    """The page with the tables as they are now."""
    return BLOCK.sub(lambda block: block[1] + MADE[block["name"]](block["rows"]) + block[4], page.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stale = [page for page in PAGES if page.read_text() != filled(page)]
    for page in stale:
        if args.check:
            print(f"{page} is not what the code says: run docs/{Path(__file__).name}", file=sys.stderr)
        else:
            page.write_text(filled(page))
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
