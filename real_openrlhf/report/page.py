"""The report on disk: figures, tables, and one HTML file with everything.

The page needs no network and no script. It is light and dark, and fits a phone's width.
"""

import contextlib
import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from real_openrlhf import __version__
from real_openrlhf.answers import kept
from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_text
from real_openrlhf.base.parsing import flag_name
from real_openrlhf.report import drawing, figures, maps, tables
from real_openrlhf.report.benchmarks import paired, scores
from real_openrlhf.report.differences.table import differences, sentence
from real_openrlhf.report.drawing import Picture, panel_svg, swatch_svg
from real_openrlhf.report.read_runs import Run, word
from real_openrlhf.report.settings import Comparison, compare
from real_openrlhf.report.table_forms import NONE, Table, to_csv, to_html, to_markdown, words

CSS = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
PAGE, TITLE, HEAD = "index.html", "<title>REAL report", 2000  # a page of ours has the title in its first characters
MOST_NAMED = 4  # settings in the heading
Parts = list[Picture | Table]  # of one comparison, in reading order


def write(
    runs: Sequence[Run], skipped: Sequence[tuple[Path, str]], out: Path, across: Sequence[str] | None = None
) -> Path:
    """Write the report under `out`; `across` are the two flags of a map. Returns the page."""
    refuse_foreign(out)
    flags = [flag_name(text) for text in across or ()]
    comparisons = compare(runs, flags)
    sections = [(comparison, _parts(comparison, flags)) for comparison in comparisons]
    _make_folders(out)
    slugs = [re.sub(r"[^a-z0-9.]+", "-", one.name.lower()).strip("-.")[:60] for one in comparisons]
    for number, ((_, parts), slug) in enumerate(zip(sections, slugs, strict=True)):
        several = f"-{slugs[: number + 1].count(slug)}" if slugs.count(slug) > 1 or not slug else ""
        prefix = f"{slug or 'task'}{several}-" if len(comparisons) > 1 else ""
        for part in parts:
            _save(replace(part, name=prefix + part.name), out)
    benchmarks = scores.benchmarks(comparisons)
    _save(benchmarks, out)
    write_text(out / PAGE, [render(sections, benchmarks, skipped)])
    return out / PAGE


def refuse_foreign(out: Path, option: str = "--out") -> None:
    """Raise if something of a report's names is there without our page."""
    with contextlib.suppress(OSError):
        if TITLE in (out / PAGE).read_text(encoding="utf-8", errors="replace")[:HEAD]:
            return
    ownership.refuse_foreign(option, (out / name for name in (PAGE, "figures", "tables")), ours=False)


def _make_folders(out: Path) -> None:
    try:
        for folder in ("figures", "tables"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        if not (out / PAGE).exists():
            write_text(out / PAGE, [f"<!doctype html>{TITLE}</title>"])  # an interrupted report is known as ours
    except OSError as problem:
        raise UserError(f"cannot write to {out}: {problem.strerror}. Choose another --out.") from problem


def _parts(comparison: Comparison, flags: Sequence[str]) -> Parts:
    """The figures and tables of a comparison; with flags only a map over these."""
    over_flags = (maps.heat_maps, maps.cells, maps.differences)
    drawn = (figures.dynamics, figures.ablation, figures.knobs, figures.distributions)
    usual = (tables.results, differences, *drawn, tables.ratios, scores.beside_paper, paired.gains)
    made = [make(comparison, flags) for make in over_flags] if flags else [make(comparison) for make in usual]
    return [part for part in made if part is not None]


def _save(part: Picture | Table, out: Path) -> None:
    """A table in two forms; a figure with the numbers that it was drawn from."""
    if isinstance(part, Table):
        for suffix, form in (("md", to_markdown), ("csv", to_csv)):
            write_text(out / "tables" / f"{part.name}.{suffix}", [form(part)])
        return
    drawing.save_as(part, out / "figures" / f"{part.name}.png", with_pdf=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["curve", "metric", part.axis, "runs", "mean", "se"])
    writer.writerows(part.rows)
    write_text(out / "figures" / f"{part.name}.csv", [text.getvalue()])


def render(
    sections: Sequence[tuple[Comparison, Parts]], benchmarks: Table, skipped: Sequence[tuple[Path, str]]
) -> str:
    """The whole page as text."""
    comparisons = [comparison for comparison, _ in sections]
    runs = [run for comparison in comparisons for run in comparison.runs]
    links = [f"<a href='#task-{n}'>{_text(comparison.name)}</a>" for n, comparison in enumerate(comparisons, 1)]
    links += ["<a href='#benchmarks'>Benchmarks</a>", "<a href='#runs'>Runs</a>"]
    body = [
        f"<h1>{_text(heading(comparisons))}</h1>",
        f"<p class=soft>{len(runs)} run{'s' * (len(runs) != 1)}, {len(skipped)} skipped. "
        f"Made by <code>real-openrlhf report</code> {_text(__version__)} from the runs' own logs.</p>",
        f"<nav>{' '.join(links)}</nav>",
        _skipped(skipped),
    ]
    for number, (comparison, parts) in enumerate(sections, 1):
        body.append(f"<h2 id='task-{number}'>Task: {_text(comparison.name)}</h2>")
        body.append(f"<p><strong>{_text(sentence(comparison))}</strong></p>")
        for part in parts:
            body.append(f"<h3>{_text(part.title)}</h3>")
            body.append(to_html(part) if isinstance(part, Table) else _picture(part, f"{number}{part.name}"))
        settings = comparison.settings
        body.append(kept.section((setting.label, run.path) for setting in settings for run in setting.runs))
    body += ["<h2 id=benchmarks>Benchmarks</h2>", to_html(benchmarks)]
    body += ["<h2 id=runs>Runs</h2>", _runs(comparisons)]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<link rel=icon href='data:,'>{TITLE}: {_text(heading(comparisons))}</title>"
        f"<style>\n{CSS}</style></head><body>" + "\n".join(body) + "</body></html>\n"
    )


def heading(comparisons: Sequence[Comparison]) -> str:
    """What the page shows: one run by its name, several by their methods."""
    runs = [run for comparison in comparisons for run in comparison.runs]
    if len(runs) == 1:
        return f"Run {runs[0].name}"
    labels = list(dict.fromkeys(setting.label for comparison in comparisons for setting in comparison.settings))
    if len(labels) > MOST_NAMED:
        return f"{len(labels)} settings compared"
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))


def _text(words: object) -> str:
    return html.escape(str(words))


def _skipped(skipped: Sequence[tuple[Path, str]]) -> str:
    if not skipped:
        return ""
    items = "".join(
        f"<li><code>{_text(word(str(path)))}</code>: {_text(word(reason, 400))}</li>" for path, reason in skipped
    )
    return f"<div class=warn><strong>Skipped</strong><ul>{items}</ul></div>"


def _picture(picture: Picture, salt: str) -> str:
    panels = "".join(f"<div>{panel_svg(panel, f'{salt}-{n}')}</div>" for n, panel in enumerate(picture.panels))
    entries = []
    for number, entry in enumerate(picture.legend):
        swatch = swatch_svg(entry.look, f"{salt}-key-{number}") if entry.look else ""
        entries.append(f"<li{'' if swatch else ' class=missing'}>{swatch}{_text(entry.label)}</li>")
    return (
        f"<figure><ul class=legend>{''.join(entries)}</ul>"
        f"<div class=panels style='--columns:{picture.columns}'>{panels}</div>"
        f"<figcaption>{_text(picture.caption)}</figcaption></figure>"
    )


def _runs(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for comparison in comparisons:
        for setting in comparison.settings:
            for run in setting.runs:
                command = run.meta.get("command")
                command = " ".join(map(str, command)) if isinstance(command, list) else "plain log"
                facts = (run.name, setting.label, NONE if run.seed is None else run.seed, run.status, run.last_step)
                rows.append([words(fact) for fact in (*facts, run.meta.get("code_version", NONE), command)])
    columns = ["Run", "Setting", "Seed", "Status", "Last step", "Code version", "Command"]
    return f"<div class=left>{to_html(Table('runs', 'Runs', columns, [('', rows)], []))}</div>"
