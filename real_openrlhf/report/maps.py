"""Where methods work and where they break: heat maps over two flags, their table, and differences in each cell."""

import functools
from collections.abc import Callable, Iterator, Sequence

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from real_openrlhf.base.errors import UserError
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.curves import AT_THE_END, BEST, LOST, outcomes
from real_openrlhf.report.differences import samples, table
from real_openrlhf.report.drawing import INK, Entry, Look, Panel, Picture
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import estimate
from real_openrlhf.report.table_forms import BLOCK, SE_NOTE, Row, Table

# More columns of the table of cells, if runs logged the key: title -> (key, what is made of a run's values).
COLUMNS: dict[str, tuple[str, Callable[[pd.Series], float]]] = {
    "Clipped updates": ("update/clipped_share", pd.Series.mean),
    "Entropy, last step": ("entropy_loss", lambda values: values.iloc[-1]),
    "Largest ratio": ("update/ratio_max", pd.Series.max),
    "Score deviation, largest": ("real/score_std", pd.Series.max),
    "Spread of weights, largest": ("real/weight_cv", pd.Series.max),
}


def lay_out(comparison: Comparison, across: Sequence[str]) -> pd.DataFrame:
    """The `outcomes`, with the values `x` and `y` of the two flags, in order; `UserError` if a flag does not vary."""
    found = outcomes(comparison)
    for axis, flag in zip("xy", across, strict=True):
        values = [flags_of(run.meta).get(flag, "not set") for run in found["run"]]
        found[axis] = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        known = sorted({*found[axis]}, key=_order)
        if len(known) < 2:
            raise UserError(
                f"--map {flag.removeprefix('--')}: {flag} is {known[0]} in all runs. Name a flag that varies."
            )
        found[axis] = pd.Categorical(found[axis], known, ordered=True)
    return found


def _order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def _cells(found: pd.DataFrame, setting: Setting) -> Iterator[tuple[tuple[str, str], pd.DataFrame, pd.DataFrame]]:
    """The values of the flags, all runs with them, and those that finished and were evaluated."""
    for place, runs in found[found["setting"] == setting].groupby(["x", "y"], observed=True):
        yield place, runs, runs.dropna(subset=[AT_THE_END])


def _collapsed(ended: pd.DataFrame) -> str:
    return f"{ended[LOST].sum():g} of {len(ended)}"


def heat_maps(comparison: Comparison, across: Sequence[str]) -> Picture:
    """A panel a setting: the first flag from left to right, the second upwards."""
    found, names = lay_out(comparison, across), [flag.removeprefix("--") for flag in across]
    rows = [
        (setting.label, f"{names[1]} {y}", x, final.n, final.mean, final.se)
        for setting in comparison.settings
        for (x, y), _, ended in _cells(found, setting)
        if (final := estimate(ended[AT_THE_END]))
    ]
    top = max((mean for *_, mean, _ in rows), default=0.0) or 1.0
    panels = [
        Panel(setting.label, functools.partial(_draw, found=found, names=names, setting=setting, top=top))
        for setting in comparison.settings
    ]
    caption = (
        f"Validation pass@1 at the end of training, mean over runs; all panels have one scale, 0 to {top:.2f}, darker "
        f"is better. ✕ and a frame: runs that collapsed, which ended below half of their own best. "
        f"Left to right {names[0]}, upwards {names[1]}."
    )
    legend = [Entry("collapsed", Look(INK, "", "x")), Entry("empty: no run", None)]
    return Picture("map", "Where methods work and where they break", caption, panels, legend, 3, rows, names[0])


def _draw(axes: Axes, found: pd.DataFrame, names: Sequence[str], setting: Setting, top: float) -> None:
    columns, lines = ([*found[axis].cat.categories] for axis in "xy")
    for (column, line), _, ended in _cells(found, setting):
        x, y, final = columns.index(column), lines.index(line), estimate(ended[AT_THE_END])
        share = final.mean / top if final else 0.0
        # from a tint to a dark blue, so that black or white text stays readable
        shade = colormaps["Blues"](0.04 + 0.8 * share)
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="white"))
        ink = "white" if share > 0.6 else "#0a0a0a"
        words = f"{final.mean:.2f}" if final else "failed"
        if ended[LOST].any():
            words += f"\n✕ {_collapsed(ended)}"
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=ink, linewidth=1.2))
        size = 9 if len(columns) < 5 else 7
        axes.text(x, y, words, ha="center", va="center", fontsize=size, color=ink)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(lines)), lines)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(lines) - 0.5)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.grid(visible=False)


def cells(comparison: Comparison, across: Sequence[str]) -> Table:
    """The numbers of the maps, and other metrics of the runs of each cell."""
    found, names = lay_out(comparison, across), [flag.removeprefix("--") for flag in across]
    logged = {key for run in comparison.runs for key in run.logged["train"]}
    rows: list[Row] = []
    for setting in comparison.settings:
        for place, runs, ended in _cells(found, setting):
            logs = [run.logged["train"] for run in ended["run"]]
            more = {
                title: estimate(pick(log[key].dropna()) for log in logs if key in log)
                for title, (key, pick) in COLUMNS.items()
                if key in logged
            }
            broke = len(runs) - len(ended)
            rows.append(
                {
                    BLOCK: setting.label,
                    **dict(zip(names, place, strict=True)),
                    "Final pass@1": estimate(ended[AT_THE_END]),
                    "Best pass@1": estimate(ended[BEST]),
                    **more,
                    "Collapsed": _collapsed(ended),
                    "Runs": f"{len(ended)}" + (f", {broke} failed or unfinished" if broke else ""),
                }
            )
    notes = [
        SE_NOTE,
        "Collapsed: ended below half of the run's own best validation. Means over runs: of a run's largest value "
        "where a column says so, of its steps' mean for clipped updates.",
    ]
    return Table("map", "The cells of the map", rows, notes)


def differences(comparison: Comparison, across: Sequence[str]) -> Table | None:
    """Every method less the first one, in each cell with enough runs, at the end of training."""
    found, names = lay_out(comparison, across), [flag.removeprefix("--") for flag in across]
    blocks = {
        ", ".join(map(" ".join, zip(names, place, strict=True))): samples(runs, AT_THE_END)
        for place, runs in found.groupby(["x", "y"], observed=True)
    }
    return table("cell-differences", "Differences in the cells of the map, at the end", blocks)
