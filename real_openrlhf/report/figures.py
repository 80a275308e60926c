"""The curves of a task's settings, and the picture of one run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from real_openrlhf.report.curves import training, validation
from real_openrlhf.report.read_runs import Run, read_run
from real_openrlhf.report.tables import FINAL, TRAINING, against_reference
from real_openrlhf.report.task_runs import MethodRuns, TaskRuns, best_of_each_method, standing, tasks

Curve = Callable[[Run], pd.Series | None]
HUES = ("#0072b2", "#d55e00")  # the reference, the best of the others; all others are grey
GREYS, LINES = ("0.3", "0.5", "0.7"), ("-", "--", ":", "-.")
PANEL = (5.2, 3.3)  # inches
LETTER = 0.072  # inches, of a legend
FEW = 4  # settings that all have a band
MAX_POINTS = 100  # a curve is averaged over equal windows of steps until it has no more points than this
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
    """The paper's training dynamics: entropy, validation, pass rate and all-solved groups."""
    rate, solved, entropy, _ = ((title, partial(training, keys=keys)) for title, keys in TRAINING.items())
    held_out = FINAL, partial(validation, sets=task.sets)
    return _draw(task, dict((held_out, rate, entropy, solved)), path)


def weights(task: TaskRuns, path: Path) -> pd.DataFrame | None:
    """How far scores move and how far weights differ; None without a run that logged them."""
    return _draw(task, {title: partial(training, keys=keys) for title, keys in WEIGHTS.items()}, path)


def training_curves(folder: str | Path, path: str | Path) -> Path:
    """One run at a glance."""
    (task,) = tasks([read_run(folder)])
    dynamics(task, Path(path))
    return Path(path)


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
    down, styles = -(-len(varying) // across), _styles(task, settings)
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 9}):  # names of runs are no formulas
        figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down), layout="constrained", dpi=110)
        for number, title in enumerate(varying, 1):
            axes = figure.add_subplot(down, across, number, xlabel="step")
            axes.set_title(title, loc="left", weight="bold", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
            axes.grid(alpha=0.2)
            axes.margins(x=0.01)
            _panel(axes, styles, panels[title])
        if len(settings) > 1:
            lines, names = axes.get_legend_handles_labels()
            columns = max(int(PANEL[0] * across / (LETTER * max(map(len, names)) + LETTER * 8)), 1)
            figure.legend(lines, names, loc="outside lower center", ncols=columns, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        FigureCanvasAgg(figure).print_png(path)
    return points


def _styles(task: TaskRuns, settings: Sequence[MethodRuns]) -> dict[MethodRuns, dict[str, Any]]:
    """The reference and the best of the others stand out; each of the rest has a grey and a line of its own."""
    first = against_reference(task)[0] or settings[0]
    best = max((s for s in settings if s is not first), key=lambda setting: standing(task, setting), default=None)
    rest = [setting for setting in settings if setting not in (first, best)]
    styles: dict[MethodRuns, dict[str, Any]] = {
        setting: {"color": GREYS[number % 3], "linestyle": LINES[number // 3 % 4]}
        for number, setting in enumerate(rest)
    }
    loud = ({"color": hue, "linewidth": 2.2, "zorder": 3} for hue in HUES)
    styles |= dict(zip((first, best) if best else (first,), loud, strict=False))
    return {setting: styles[setting] for setting in settings}


def _mean(setting: MethodRuns, curve: Curve) -> pd.DataFrame:
    """runs, mean and se over the finished runs, at the steps that all of them logged."""
    curves = [values for run in setting.counted if (values := curve(run)) is not None]
    table = pd.concat(curves, axis=1, join="inner") if curves else pd.DataFrame()
    if (window := -(-len(table) // MAX_POINTS)) > 1:  # each at its last step; whole ones only
        table = table.groupby((table.index - 1) // window * window + window).mean().loc[: table.index[-1]]
    return pd.DataFrame({"runs": len(curves), "mean": table.mean(axis=1), "se": table.sem(axis=1)})


def _panel(axes: Axes, styles: Mapping[MethodRuns, dict[str, Any]], curve: Curve) -> None:
    methods = [setting.method for setting in styles]
    for setting, style in styles.items():
        name = setting.method if methods.count(setting.method) == 1 else setting.label
        axes.plot([], [], label=name, **style)
        for run in setting.runs:  # a run that broke off is a thin line that ends in a cross, and no mean includes it
            if not run.counted and (values := curve(run)) is not None:
                axes.plot(values.index, values, **style | {"linewidth": 0.6})
                axes.plot(values.index[-1:], values.iloc[-1:], color=style["color"], marker="x")
        table = _mean(setting, curve)
        axes.plot(table.index, table["mean"], **style)
        if len(styles) <= FEW:
            low, high = table["mean"] - table["se"], table["mean"] + table["se"]
            axes.fill_between(table.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
