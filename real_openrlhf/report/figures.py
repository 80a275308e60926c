"""The curves of a task's settings, and the picture of one run."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from real_openrlhf.base.errors import UserError
from real_openrlhf.report.read_runs import Run, UnreadableRun, read_run
from real_openrlhf.report.settings import Setting, Task, tasks, training, validation
from real_openrlhf.report.tables import TRAINING

Curve = Callable[[Run], pd.Series | None]
LINES = ("-", "--", "-.", ":", (0, (1, 1)), (0, (5, 1, 1, 1)))  # settings of one method share its colour
WIDTH = 13  # inches
MAX_POINTS = 100  # a curve is averaged over equal windows of steps until it has no more points than this
COLUMNS = ("curve", "metric", "step", "runs", "mean", "se")
WEIGHTS = {
    "Score, positives": ("real/score_pos",),
    "Score, negatives": ("real/score_neg",),
    "Spread of weights in a group": ("real/weight_cv",),
    "Weight |W|, positives": ("real/weight_pos",),
    "Weight |W|, negatives": ("real/weight_neg",),
    "Largest |W|": ("real/weight_abs_max",),
}


def dynamics(task: Task, path: Path) -> pd.DataFrame | None:
    """The paper's training dynamics: entropy, validation, reward and all-solved groups."""
    reward, solved, entropy, _ = ((title, partial(training, keys=keys)) for title, keys in TRAINING.items())
    panels = dict([entropy, ("Validation pass@1", partial(validation, sets=task.sets)), reward, solved])
    return _draw(task.settings, panels, 4, path)


def weights(task: Task, path: Path) -> pd.DataFrame | None:
    """How far scores move and how far weights differ; None without a run that logged them."""
    return _draw(task.settings, {title: partial(training, keys=keys) for title, keys in WEIGHTS.items()}, 3, path)


def training_curves(folder: Path, path: Path) -> Path:
    """One run at a glance."""
    try:
        (task,) = tasks([read_run(folder)])
    except UnreadableRun as problem:
        raise UserError(f"no picture of {folder}: {problem}") from problem
    dynamics(task, path)
    return path


def _draw(settings: Sequence[Setting], panels: Mapping[str, Curve], columns: int, path: Path) -> pd.DataFrame | None:
    """Draw a line a setting in each panel, and return the numbers; None if no run logged any."""
    logged = [s for s in settings if any(curve(run) is not None for run in s.runs for curve in panels.values())]
    names = {setting: textwrap.fill(f"{setting.label} ({setting.seeds})", 150) for setting in logged}
    beside = max(1, min(3, int(WIDTH / (0.7 + 0.075 * max(map(len, names.values()), default=0)))))  # of the legend
    rows, lines = -(-len(panels) // columns), sum(1 + name.count("\n") for name in names.values())
    points: list[tuple] = []
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 9}):  # names of runs are no formulas
        figure = Figure(figsize=(WIDTH, 2.8 * rows + 0.4 + 0.2 * -(-lines // beside)), layout="constrained", dpi=110)
        for place, (title, curve) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, place, title=title, xlabel="step")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
            axes.grid(alpha=0.2)
            for setting, style in zip(logged, _styles(logged), strict=True):
                points += [
                    (setting.label, title, *point)
                    for point in _line(axes, setting, curve, {"label": names[setting], **style})
                ]
        handles: dict[str, Artist] = {}
        for axes in figure.axes:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=beside, frameon=False)
        if logged:
            path.parent.mkdir(parents=True, exist_ok=True)
            FigureCanvasAgg(figure).print_png(path)
    return pd.DataFrame(points, columns=COLUMNS) if logged else None


def _styles(settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    methods = list(dict.fromkeys(setting.algo for setting in settings))
    for place, setting in enumerate(settings):
        again, colour = divmod(methods.index(setting.algo), 10)  # colours of matplotlib's cycle
        same = sum(other.algo == setting.algo for other in settings[:place])
        yield {"color": f"C{colour}", "linestyle": LINES[(same + 3 * again) % len(LINES)]}


def _line(axes: Axes, setting: Setting, curve: Curve, style: Mapping[str, Any]) -> Iterator[tuple]:
    """Draw the mean over the finished runs, at the steps that all of them logged; yields its points."""
    for run in setting.runs:  # a run that broke off is a thin line that ends in a cross, and no mean includes it
        if not run.counted and (values := curve(run)) is not None:
            axes.plot(values.index, values, **{**style, "linewidth": 0.6})
            axes.plot(values.index[-1:], values.iloc[-1:], color=style["color"], marker="x")
    curves = [values for run in setting.counted if (values := curve(run)) is not None]
    table = pd.concat(curves, axis=1, join="inner") if curves else pd.DataFrame()
    if (window := -(-len(table) // MAX_POINTS)) > 1:  # each at its last step; whole ones only
        table = table.groupby((table.index - 1) // window * window + window).mean().loc[: table.index[-1]]
    mean, error = table.mean(axis=1), table.sem(axis=1)
    axes.plot(mean.index, mean, **style)
    axes.fill_between(mean.index, mean - error, mean + error, color=style["color"], alpha=0.18, linewidth=0)
    return ((step, len(curves), *pair) for step, *pair in zip(mean.index, mean, error, strict=True))
