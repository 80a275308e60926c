"""A table as data, and its Markdown and CSV forms, for the report and for evaluations. page.html.j2 is its HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from real_openrlhf.base.terminal import plain
from real_openrlhf.report.statistics import Estimate

NONE = "–"
BLOCK = "Block"  # not a column: the heading of a row and of those below it
SETTING = "Setting"  # the column that names a row of runs
SE_NOTE = "± is one standard error over runs; an entry without it is one run."
WARNING = "Warning: "  # the beginning of a note that stands above the table


Cell = str | Estimate | None
Row = dict[str, Cell]  # column -> entry


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        return [column for column in dict.fromkeys(column for row in self.rows for column in row) if column != BLOCK]

    @property
    def same(self) -> Row:
        """The columns behind the first that have one entry in all of several rows."""
        texts = {column: {shown(row.get(column)) for row in self.rows} for column in self.columns[1:]}
        several = len(self.rows) > 1
        return {column: self.rows[0].get(column) for column in texts if several and len(texts[column]) == 1}

    def blocks(self, without: Sequence[str] = ()) -> dict[str, list[list[Cell]]]:
        """Heading ("" for none) -> the entries of its rows."""
        columns = [column for column in self.columns if column not in without]
        blocks: dict[str, list[list[Cell]]] = {}
        for row in self.rows:
            blocks.setdefault(str(row.get(BLOCK, "")), []).append([row.get(column) for column in columns])
        return blocks


def shown(cell: Cell) -> str:
    """On one line and without control characters: names of runs may have any."""
    return plain(" ".join(("" if cell is None else str(cell)).split())) or NONE


def to_markdown(table: Table) -> str:
    others = len(table.columns) - 1
    lines = [f"**{table.title}**", "", _pipe(table.columns), _pipe(["---", *["---:"] * others])]
    for heading, rows in table.blocks().items():
        lines += [_pipe([f"*{shown(heading)}*", *[""] * others])] if heading else []
        lines += [_pipe([*map(shown, row)]) for row in rows]
    return plain("\n".join([*lines, "", *(f"- {no_tags(note)}" for note in table.notes)]) + "\n")


def _pipe(cells: Sequence[str]) -> str:
    return "| " + " | ".join(no_tags(cell).replace("|", "\\|") for cell in cells) + " |"


def to_csv(table: Table) -> str:
    """The table with all digits; a column with standard errors becomes two columns."""
    import pandas

    columns: dict[str, list] = {BLOCK: [_text(row.get(BLOCK)) for row in table.rows]}
    for column in table.columns:
        cells = [row.get(column) for row in table.rows]
        columns[column] = [cell.mean if isinstance(cell, Estimate) else _text(cell) for cell in cells]
        if any(isinstance(cell, Estimate) for cell in cells):
            columns[f"{column} SE"] = [cell.se if isinstance(cell, Estimate) else None for cell in cells]
    return plain(pandas.DataFrame(columns).to_csv(index=False, lineterminator="\n"))


def no_tags(markdown: str) -> str:
    """Escape HTML tags, because a viewer may show Markdown as a page."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", markdown)


def _text(cell: Cell) -> str:
    return shown(cell) if cell else ""
