"""A table as data, and its Markdown, CSV and HTML forms, for the report and for evaluations."""

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from real_openrlhf.report.statistics import Estimate

NONE = "–"
SE_NOTE = "± is one standard error over runs; an entry without it is one run."
BOLD_NOTE = "Bold: leads every other entry of its column and block by at least two standard errors of the difference."
FOLDED = "Equal in all rows"


@dataclass(frozen=True)
class Cell:
    """One entry: words, or a number with its standard error."""

    text: str = ""
    number: Estimate | None = None
    digits: int = 3
    bold: bool = False

    def __str__(self) -> str:
        if self.number is None:
            return self.text or NONE
        se = "" if math.isnan(self.number.se) else f" ± {self.number.se:.{self.digits}f}"
        return f"{self.number.mean:.{self.digits}f}{se}"


Row = list[Cell]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: list[str]
    blocks: list[tuple[str, list[Row]]]  # heading ("" for none), rows
    notes: list[str]
    warnings: Sequence[str] = ()
    folds: bool = False  # on the page, columns of one value become a note


def words(text: object) -> Cell:
    return Cell(str(text))


def value(mean: float | None, digits: int = 3) -> Cell:
    """A number that others published, without a standard error."""
    return Cell() if mean is None else Cell(number=Estimate(mean, math.nan, 1), digits=digits)


def to_markdown(table: Table) -> str:
    lines = [f"**{table.title}**", "", _pipe(table.columns), _pipe(["---", *["---:"] * (len(table.columns) - 1)])]
    for heading, rows in table.blocks:
        if heading:
            lines.append(_pipe([f"*{heading}*", *[""] * (len(table.columns) - 1)]))
        lines += [_pipe([f"**{cell}**" if cell.bold else str(cell) for cell in row]) for row in rows]
    said = [f"Warning: {warning}" for warning in table.warnings] + table.notes
    return "\n".join([*lines, "", *(f"- {no_tags(note)}" for note in said)]) + "\n"


def _pipe(cells: Sequence[str]) -> str:
    return "| " + " | ".join(no_tags(cell).replace("|", "\\|") for cell in cells) + " |"


def to_csv(table: Table) -> str:
    """The table with all digits; a column with standard errors becomes two columns."""
    errors = {
        place for _, rows in table.blocks for row in rows for place, cell in enumerate(row) if cell.number is not None
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["Block"]
    for place, column in enumerate(table.columns):
        head += [column, f"{column} SE"] if place in errors else [column]
    writer.writerow(head)
    for heading, rows in table.blocks:
        for row in rows:
            line: list[object] = [no_formula(heading)]
            for place, cell in enumerate(row):
                line.append(cell.number.mean if cell.number else no_formula(cell.text))
                if place in errors:
                    line.append(cell.number.se if cell.number and not math.isnan(cell.number.se) else "")
            writer.writerow(line)
    return text.getvalue()


def to_html(table: Table) -> str:
    table = folded(table) if table.folds else table

    def cells(row: Row) -> str:
        first, *others = row
        kinds = ["words" if cell.text else "best" if cell.bold else "number" for cell in others]
        filled = "".join(f"<td class={kind}>{html.escape(str(c))}</td>" for kind, c in zip(kinds, others, strict=True))
        return f"<tr><th scope=row>{html.escape(str(first))}</th>{filled}</tr>"

    head = "".join(f"<th scope=col>{html.escape(column)}</th>" for column in table.columns)
    body = []
    for heading, rows in table.blocks:
        title = f"<tr class=block><th colspan={len(table.columns)}><span>{html.escape(heading)}</span></th></tr>"
        body.append(f"<tbody>{title if heading else ''}{''.join(map(cells, rows))}</tbody>")
    notes = "".join(f"<li>{with_code(note)}</li>" for note in table.notes)
    warnings = "".join(f"<p class=warn><strong>Warning.</strong> {with_code(one)}</p>" for one in table.warnings)
    table_body = f"<table><thead><tr>{head}</tr></thead>{''.join(body)}</table>"
    return f"{warnings}{scrolling(table_body, table.title)}<ul class=notes>{notes}</ul>"


def scrolling(table: str, title: str) -> str:
    """A box that scrolls from side to side, with the keyboard too."""
    return f'<div class=scroll tabindex=0 role=region aria-label="{html.escape(title)}">{table}</div>'


def with_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def folded(table: Table) -> Table:
    """The table without the columns that say one thing in all of two rows or more; a note says it."""
    rows = [row for _, rows in table.blocks for row in rows]
    if len(rows) < 2:
        return table
    said = [{_mean_of(row[place]) for row in rows} for place in range(len(table.columns))]
    kept = [place for place, found in enumerate(said) if place == 0 or len(found) > 1]
    gone = [f"{table.columns[place]}: {said[place].pop()}" for place in range(len(said)) if place not in kept]
    return replace(
        table,
        columns=[table.columns[place] for place in kept],
        blocks=[(heading, [[row[place] for place in kept] for row in found]) for heading, found in table.blocks],
        notes=[*([f"{FOLDED}: {'; '.join(gone)}."] if gone else []), *table.notes],
    )


def _mean_of(cell: Cell) -> str:
    return str(cell) if cell.number is None else f"{cell.number.mean:.{cell.digits}f}"


def no_tags(markdown: str) -> str:
    """Escape HTML tags, because a viewer may show Markdown as a page."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", markdown)


def no_formula(cell: str) -> str:
    """Quote a text that a spreadsheet would compute as a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "@") or (cell[:1] == "-" and cell[1:2].isalpha()) else cell
