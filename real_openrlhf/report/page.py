"""The report on disk: figures, tables, and one HTML file with everything.

The page needs no network and no script. It is light and dark, and fits a phone's width.
"""

import base64
import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from real_openrlhf import __version__
from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError, plain
from real_openrlhf.base.files import write_text
from real_openrlhf.base.parsing import flag_name
from real_openrlhf.report import answers, benchmarks, drawing, figures, maps, tables
from real_openrlhf.report.differences import differences, sentence
from real_openrlhf.report.drawing import Picture
from real_openrlhf.report.read_runs import Run, word
from real_openrlhf.report.settings import Comparison, compare
from real_openrlhf.report.table_forms import Table, is_bold, shown, to_csv, to_markdown

PAGE, TITLE, HEAD = "index.html", "<title>REAL report", 2000  # a page of ours has the title in its first characters
OF_A_MAP = (
    "Each cell is a setting of its own. Cells with three runs a method are compared in the table of differences."
)


def write(
    runs: Sequence[Run], skipped: Sequence[tuple[Path, str]], out: Path, across: Sequence[str] | None = None
) -> Path:
    """Write the report under `out`; `across` are the two flags of a map. Returns the page."""
    refuse_foreign(out)
    flags = [flag_name(text) for text in across or ()]
    comparisons = compare(runs, flags)
    made = [_parts(comparison, flags) for comparison in comparisons]
    try:
        for folder in ("figures", "tables"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        if not (out / PAGE).exists():
            write_text(out / PAGE, [f"<!doctype html>{TITLE}</title>"])  # an interrupted report is known as ours
    except OSError as problem:
        raise UserError(f"cannot write to {out}: {problem.strerror}. Choose another --out.") from problem
    slugs = [re.sub(r"[^a-z0-9.]+", "-", one.name.lower()).strip("-.")[:60] for one in comparisons]
    sections = []
    for number, (comparison, parts, slug) in enumerate(zip(comparisons, made, slugs, strict=True)):
        several = f"-{slugs[: number + 1].count(slug)}" if slugs.count(slug) > 1 or not slug else ""
        prefix = f"{slug or 'task'}{several}-" if len(comparisons) > 1 else ""
        saved = [_save(replace(part, name=prefix + part.name), out) for part in parts]
        sections.append(section(comparison, saved, OF_A_MAP if flags else sentence(comparison)))
    scores = benchmarks.benchmarks(comparisons)
    _save(scores, out)
    write_text(out / PAGE, [render(comparisons, sections, scores, skipped)])
    return out / PAGE


def refuse_foreign(out: Path, option: str = "--out") -> None:
    """Raise if something of a report's names is there without our page."""
    with contextlib.suppress(OSError):
        if TITLE in (out / PAGE).read_text(encoding="utf-8", errors="replace")[:HEAD]:
            return
    ownership.refuse_foreign(option, (out / name for name in (PAGE, "figures", "tables")), ours=False)


def _parts(comparison: Comparison, flags: Sequence[str]) -> list[Picture | Table]:
    """The figures and tables of a comparison in reading order; with flags only a map over these."""
    over_flags = (maps.heat_maps, maps.cells, maps.differences)
    drawn = (figures.dynamics, figures.ablation, figures.knobs, figures.distributions)
    usual = (tables.results, differences, figures.forest, *drawn, tables.ratios, benchmarks.gains)
    made = [make(comparison, flags) for make in over_flags] if flags else [make(comparison) for make in usual]
    return [part for part in made if part is not None]


def _save(part: Picture | Table, out: Path) -> Table | dict[str, str]:
    """Write a table in two forms, or a figure with its numbers. Returns what the page shows of it."""
    if isinstance(part, Table):
        for suffix, form in (("md", to_markdown), ("csv", to_csv)):
            write_text(out / "tables" / f"{part.name}.{suffix}", [form(part)])
        return part
    picture = drawing.save_as(part, out / "figures" / f"{part.name}.png", with_pdf=True)
    write_text(out / "figures" / f"{part.name}.csv", [part.to_csv()])
    png = picture.read_bytes()
    width = int.from_bytes(png[16:20], "big") * 2 // 3  # of its header; three dots to two pixels
    return {"title": part.title, "caption": part.caption, "png": base64.b64encode(png).decode(), "width": str(width)}


def section(comparison: Comparison, parts: Sequence[Table | dict[str, str]], said: str) -> dict[str, Any]:
    """What the template shows of a comparison; answers are those of the first run of each setting that kept some."""
    kept: dict[str, tuple[str, list[answers.Group]]] = {}
    for setting in comparison.settings:
        for run in setting.runs:
            if setting.label not in kept and (groups := answers.read(run.path)):
                kept[setting.label] = f"{setting.label}, run {run.path.name}", groups
    return {"name": comparison.name, "sentence": said, "parts": parts, "answers": [*kept.values()]}


def render(
    comparisons: Sequence[Comparison],
    sections: Sequence[dict[str, Any]],
    scores: Table,
    skipped: Sequence[tuple[Path, str]],
) -> str:
    """The whole page as text. The template escapes every text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    for form in (shown, is_bold, answers.short, answers.moments, answers.held_out, answers.first_and_last_mixed):
        pages.filters[form.__name__] = form
    text = pages.get_template("page.html.j2").render(
        comparisons=comparisons,
        version=__version__,
        skipped=[(word(str(path)), word(reason, 400)) for path, reason in skipped],
        sections=sections,
        about_answers=answers.ABOUT,
        benchmarks=scores,
    )
    return plain(text.lstrip())
