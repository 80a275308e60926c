"""The report on disk: tables, figures, and one HTML file with everything, without network and script."""

import base64
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from real_openrlhf import __version__
from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_text
from real_openrlhf.base.terminal import plain
from real_openrlhf.report import benchmarks, figures, tables
from real_openrlhf.report.read_runs import Run, word
from real_openrlhf.report.table_forms import WARNING, Cell, Table, shown, to_csv, to_markdown
from real_openrlhf.report.task_runs import MOST, TaskRuns, tasks

PAGE, TITLE, HEAD = "index.html", "<title>REAL report", 2000  # a page of ours has the title in its first characters
FEW = 4  # methods that the heading names
FIGURES = {
    "dynamics": ("Training dynamics", figures.dynamics),
    "weights": ("Scores and weights over training", figures.weights),
}
CURVES = (
    "Curves: mean over the finished runs, at the steps that all of them logged; bands are ±1 standard error. Blue: "
    "the reference, or the first setting; orange: the best of the others. A thin line that ends in a cross failed or "
    "still runs, and is in no mean. A panel in which nothing varies is left out."
)


def write(runs: Sequence[Run], skipped: Sequence[tuple[Path, str]], out: Path) -> Path:
    """Write the report under `out`; returns the page."""
    refuse_foreign(out)
    every, sections = tasks(runs), []
    try:
        write_text(out / PAGE, [f"<!doctype html>{TITLE}</title>"])  # an interrupted report is known as ours
        for number, task in enumerate(every, 1):
            name = re.sub(r"[^a-z0-9.]+", "-", task.name.lower()).strip("-.")[:60]
            prefix = f"{number}-{name}-" if len(every) > 1 else ""
            parts = [*filter(None, (tables.summary(task), tables.results(task), tables.ratios(task)))]
            for table in parts:
                _save(table, out, prefix)
            pictures = []
            for figure, (title, draw) in FIGURES.items():
                path = out / "figures" / f"{prefix}{figure}.png"
                if (points := draw(task, path)) is not None:
                    write_text(path.with_suffix(".csv"), [points.to_csv(index=False, lineterminator="\n")])
                    pictures.append((title, base64.b64encode(path.read_bytes()).decode()))
            sections.append({"task": task, "tables": parts, "figures": pictures})
        if scores := benchmarks.benchmarks(every):
            _save(scores, out, "")
    except OSError as problem:
        raise UserError(f"cannot write to {out}: {problem.strerror}. Choose another --out.") from problem
    write_text(out / PAGE, [render(sections, scores, skipped)])
    return out / PAGE


def render(sections: Sequence[dict[str, Any]], scores: Table | None, skipped: Sequence[tuple[Path, str]]) -> str:
    """The whole page as text. The template escapes every text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    pages.filters |= {"shown": shown, "pieces": pieces}
    every = [section["task"] for section in sections]
    last = [*filter(None, [scores]), tables.runs(every)]
    every_table = [table for section in sections for table in section["tables"]] + last
    text = pages.get_template("page.html.j2").render(
        sections=sections,
        last=last,
        heading=heading(every),
        version=__version__,
        skipped=[(word(str(path)), word(reason, 400)) for path, reason in skipped],
        most=MOST,
        warning=WARNING,
        notes=dict.fromkeys([CURVES, *(note for table in every_table for note in table.notes)]),
    )
    return plain(text.lstrip())


def pieces(cell: Cell) -> list[str]:
    """A line breaks between these first: not in `lr 1e-4`, and not between a flag and its value."""
    return re.split(r"(?<=[,;]) | (?=--)", shown(cell))


def heading(every: Sequence[TaskRuns]) -> str:
    """Methods and task, like `REAL vs GRPO on reverse (cpu)`."""
    settings = [setting for task in every for setting in task.methods]
    first, *others = dict.fromkeys(setting.method for setting in settings)
    names = ", ".join(others) if len(others) < FEW else f"{len(others)} other methods"
    versus = f"{first} vs {names}" if others else f"{len(settings)} settings of {first}"
    where = every[0].name if len(every) == 1 else f"{len(every)} tasks"
    return f"{first if len(settings) == 1 else versus} on {where}"


def refuse_foreign(out: Path) -> None:
    """Raise if something of a report's names is there without our page."""
    with contextlib.suppress(OSError):
        if TITLE in (out / PAGE).read_text(encoding="utf-8", errors="replace")[:HEAD]:
            return
    ownership.refuse_foreign("--out", (out / name for name in (PAGE, "figures", "tables")), ours=False)


def _save(table: Table, out: Path, prefix: str) -> None:
    for suffix, form in (("md", to_markdown), ("csv", to_csv)):
        write_text(out / "tables" / f"{prefix}{table.name}.{suffix}", [form(table)])
