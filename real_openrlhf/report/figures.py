"""The curves of a task's settings, and the picture of one run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from real_openrlhf.report.read_runs import Run, read_run
from real_openrlhf.report.settings import (
    MethodRuns,
    TaskRuns,
    best_of_each_method,
    standing,
    tasks,
    training,
    validation,
)
from real_openrlhf.report.tables import TRAINING, against_reference

Curve = Callable[[Run], pd.Series | None]
HUES, GREY = ("#0072b2", "#d55e00"), "#8a8f98"  # the reference, the best of the others; all others
LINES = ("-", "--", "-.", ":", (0, (1, 1)), (0, (5, 1, 1, 1)))  # of the grey ones
PANEL = (5.2, 3.3)  # inches
FEW = 4  # settings that all have a band
MAX_POINTS = 100  # a curve is averaged over equal windows of steps until it has no more points than this
LETTERS = 34  # of a name at the end of a line
COLUMNS = ("curve", "metric", "step", "runs", "mean", "se")
WEIGHTS = {
    "Score, correct responses": ("real/score_pos",),
    "Score, incorrect responses": ("real/score_neg",),
    "Spread of weights within a prompt": ("real/weight_cv",),
    "Weight |W|, correct responses": ("real/weight_pos",),
    "Weight |W|, incorrect responses": ("real/weight_neg",),
    "Largest |W|": ("real/weight_abs_max",),
}


def dynamics(task: TaskRuns, path: Path) -> pd.DataFrame | None:
    """The paper's training dynamics: entropy, validation, reward and all-solved groups."""
    reward, solved, entropy, _ = ((title, partial(training, keys=keys)) for title, keys in TRAINING.items())
    held_out = "Validation pass@1", partial(validation, sets=task.sets)
    return _draw(task, dict((held_out, reward, entropy, solved)), path)


def weights(task: TaskRuns, path: Path) -> pd.DataFrame | None:
    """How far scores move and how far weights differ; None without a run that logged them."""
    return _draw(task, {title: partial(training, keys=keys) for title, keys in WEIGHTS.items()}, path)


def training_curves(folder: Path, path: Path) -> Path:
    """One run at a glance."""
    (task,) = tasks([read_run(folder)])
    dynamics(task, path)
    return path


def _draw(task: TaskRuns, panels: Mapping[str, Curve], path: Path) -> pd.DataFrame | None:
    """Draw a line per setting in each panel, and return the numbers; None if no run logged any."""
    settings = [
        setting
        for setting in best_of_each_method(task)
        if any(curve(run) is not None for run in setting.runs for curve in panels.values())
    ]
    if not settings:
        return None
    rows = [
        (setting.label, title, *point)
        for title, curve in panels.items()
        for setting in settings
        for point in _mean(setting, curve).itertuples()
    ]
    points = pd.DataFrame(rows, columns=COLUMNS)
    spread = points.groupby("metric")["mean"].agg(lambda values: values.max() - values.min())
    varying = [title for title in panels if spread.get(title, 0) > 0] or [*panels]
    across = min(len(varying), 2)
    down, colours = -(-len(varying) // across), _colours(task, settings)
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 9}):  # names of runs are no formulas
        figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down), layout="constrained", dpi=110)
        for number, title in enumerate(varying, 1):
            axes = figure.add_subplot(down, across, number, xlabel="step")
            axes.set_title(title, loc="left", weight="bold", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
            axes.grid(alpha=0.2)
            axes.margins(x=0.01)
            _panel(axes, settings, panels[title], colours)
        path.parent.mkdir(parents=True, exist_ok=True)
        FigureCanvasAgg(figure).print_png(path)
    return points


def _colours(task: TaskRuns, settings: Sequence[MethodRuns]) -> dict[MethodRuns, str]:
    """A hue for the reference and for the best of the others; grey for the rest."""
    first = against_reference(task)[0] or settings[0]
    others = sorted((s for s in settings if s is not first), key=lambda setting: standing(task, setting), reverse=True)
    return dict(zip([first, *others], [*HUES, *[GREY] * len(settings)], strict=False))


def _mean(setting: MethodRuns, curve: Curve) -> pd.DataFrame:
    """runs, mean and se over the finished runs, at the steps that all of them logged."""
    curves = [values for run in setting.counted if (values := curve(run)) is not None]
    table = pd.concat(curves, axis=1, join="inner") if curves else pd.DataFrame()
    if (window := -(-len(table) // MAX_POINTS)) > 1:  # each at its last step; whole ones only
        table = table.groupby((table.index - 1) // window * window + window).mean().loc[: table.index[-1]]
    return pd.DataFrame({"runs": len(curves), "mean": table.mean(axis=1), "se": table.sem(axis=1)})


def _panel(axes: Axes, settings: Sequence[MethodRuns], curve: Curve, colours: Mapping[MethodRuns, str]) -> None:
    ends = []
    methods = [setting.method for setting in settings]
    for number, setting in enumerate(settings):
        name = setting.method if methods.count(setting.method) == 1 else setting.label
        colour, grey = colours[setting], colours[setting] == GREY
        line = LINES[number % len(LINES)] if grey else "-"
        style: dict[str, Any] = {"color": colour, "linestyle": line, "zorder": 2 if grey else 3}
        for run in setting.runs:  # a run that broke off is a thin line that ends in a cross, and no mean includes it
            if not run.counted and (values := curve(run)) is not None:
                axes.plot(values.index, values, linewidth=0.6, **style)
                axes.plot(values.index[-1:], values.iloc[-1:], color=colour, marker="x")
                ends += [(float(values.iloc[-1]), name, colour)] if not setting.counted else []
        table = _mean(setting, curve)
        if len(table):
            axes.plot(table.index, table["mean"], linewidth=1.2 if grey else 2, **style)
            ends.append((float(table["mean"].iloc[-1]), name, colour))
            if not grey or len(settings) <= FEW:
                low, high = table["mean"] - table["se"], table["mean"] + table["se"]
                axes.fill_between(table.index, low, high, color=colour, alpha=0.15, linewidth=0)
    if len(settings) > 1:
        _write_names(axes, sorted(ends))


def _write_names(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each name at the end of its line, moved apart where lines end close together."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    for (end, label, colour), height in zip(ends, _apart([end for end, *_ in ends], low, high), strict=True):
        name = label if len(label) <= LETTERS else f"{label[: LETTERS // 2]}…{label[-LETTERS // 2 :]}"
        axes.annotate(
            name,
            (1.0, end),
            (1.04, height),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            color="#565c66" if colour == GREY else colour,
            fontsize=8,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "relpos": (0, 0.5)},
        )


def _apart(heights: Sequence[float], low: float, high: float) -> list[float]:
    """Sorted heights, moved as little as leaves a line of text between neighbours, within the panel if they fit."""
    line = (high - low) / 17
    clusters: list[list[float]] = []  # neighbours that touch; each height less the lines below it
    for rank, height in enumerate(heights):
        clusters.append([height - rank * line])
        while len(clusters) > 1 and fmean(clusters[-2]) > fmean(clusters[-1]):
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    middles = [fmean(cluster) for cluster in clusters for _ in cluster]
    most = max(low, high - line * (len(heights) - 1))
    return [min(max(middle, low), most) + rank * line for rank, middle in enumerate(middles)]
