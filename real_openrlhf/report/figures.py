"""The content of each figure: a list of panels with one legend."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv, to_hex, to_rgb

from real_openrlhf.base.errors import UserError
from real_openrlhf.report import drawing
from real_openrlhf.report.curves import (
    DYNAMICS,
    OF_ONE_RUN,
    OVER_TRAINING,
    Curve,
    band,
    curve,
    outcomes,
    series,
    validation_sets,
    windowed,
)
from real_openrlhf.report.differences import less_first, samples
from real_openrlhf.report.drawing import INK, METHODS, Entry, Look, Panel, Picture, method
from real_openrlhf.report.read_runs import UnreadableRun, read_run
from real_openrlhf.report.settings import REAL_FAMILY, Comparison, Setting
from real_openrlhf.report.statistics import MARGIN, Difference

# Settings of one method share its colour; these set the second, third ... apart: how much lighter, line style, marker.
# The hue turns from the sixth on, and with each objective of the user's own.
VARIANTS = ((0.0, None, None), (0.5, "--", "s"), (0.25, "-.", "^"), (0.65, ":", "D"), (0.4, (0, (5, 1, 1, 1)), "v"))

HUE = 0.37  # of a turn

PAPER_DYNAMICS = ("grpo", "dapo", "gspo", "real")
ABLATED = ("real_bce", "real_no_anchor")
PAPER_ABLATION = ("dapo", *ABLATED, "real")


def looks(comparison: Comparison) -> dict[Setting, Look]:
    """Every setting's look, the same in all figures of a comparison."""
    look = {}
    for _, alike in groupby(comparison.settings, lambda setting: setting.algo):
        own = 0
        for place, setting in enumerate(alike):
            lighter, dashes, marker = VARIANTS[place % len(VARIANTS)]
            if setting.has_own_objective:
                own, lighter = own + 1, 0.0
            base = method(setting.algo)
            hue, colourful, bright = rgb_to_hsv(to_rgb(base.colour))
            turned = hsv_to_rgb(((hue + HUE * (own + place // len(VARIANTS))) % 1, colourful, bright))
            red, green, blue = (part + (1 - part) * lighter for part in turned)
            look[setting] = Look(to_hex((red, green, blue)), dashes or base.line, marker or base.marker)
    return look


# ----------------------------------------------------------------------------------------------- curves over training


def dynamics(comparison: Comparison) -> Picture:
    """The paper's training dynamics: its four methods, and every other method with unchanged flags."""
    settings = [one for one in comparison.settings if not one.deviation and one.algo not in ABLATED]
    picture = _curves("dynamics", "Training dynamics", comparison, settings, PAPER_DYNAMICS)
    elsewhere = " Methods with flags or objectives of their own are in the figure of knobs."
    return replace(picture, caption=picture.caption + elsewhere * any(one.deviation for one in comparison.settings))


def ablation(comparison: Comparison) -> Picture | None:
    """The paper's ablation: BCE and no anchor between DAPO and REAL; None without a run of either."""
    shown = (*PAPER_ABLATION, "real_constant")
    settings = [one for one in comparison.settings if not one.deviation and one.algo in shown]
    if not any(one.algo in ABLATED for one in settings):
        return None
    return _curves("ablation", "Ablation: BCE and no anchor", comparison, settings, PAPER_ABLATION)


def knobs(comparison: Comparison) -> Picture | None:
    """Settings that change a flag of their method (tau, KL, uniform groups), beside the unchanged method."""
    algos = {setting.algo for setting in comparison.settings if setting.deviation}
    settings = [setting for setting in comparison.settings if setting.algo in algos]
    return _curves("knobs", "Effect of the knobs", comparison, settings, ()) if settings else None


def _curves(
    name: str, title: str, comparison: Comparison, settings: Sequence[Setting], expected: Sequence[str]
) -> Picture:
    sets = validation_sets(comparison.runs)
    window, look = comparison.window, looks(comparison)
    panels, rows, notes = [], [], []
    for metric in DYNAMICS:
        curves = [curve(setting, metric, sets, window) for setting in settings]
        for item in curves:
            if item.band is not None:
                drawn = item.setting.label, metric.name
                rows += [(*drawn, step, len(item.runs), mean, se) for step, mean, se in item.band.itertuples()]
                if len(item.runs) < len(item.setting.counted):
                    notes.append(f"{metric.title}: {len(item.runs)} runs of {item.setting.label} logged it.")
        silent = [item.setting.label for item in curves if item.band is None and not item.singles]
        if silent and len(silent) < len(curves):
            notes.append(f"{metric.title}: not logged by {', '.join(silent)}.")
        panels.append(Panel(metric.title, partial(_draw_curves, curves=curves, look=look)))
    rates = len({setting.rate for setting in settings}) > 1
    labels = [f"{s.label}, rate {s.rate}" if rates and s.rate else s.label for s in settings]
    legend = [Entry(f"{label} ({s.seeds})", look[s]) for label, s in zip(labels, settings, strict=True)]
    present = {setting.algo for setting in settings}
    legend += [Entry(f"{method(algo).label}: no run", None) for algo in expected if algo not in present]
    caption = (
        "Line: mean over the runs of a setting, at steps that all of them logged; a run that was stopped early keeps "
        "its last value. Band: ±1 standard error. Faint lines: the runs."
    )
    if window > 1:
        caption += f" Each training point is the mean of {window} steps."
    if sets:
        caption += f" Validation on {', '.join(sets)}" + (" (unweighted mean)." if len(sets) > 1 else ".")
    if any(setting.broken_off for setting in settings):
        caption += " Thin lines that end in a cross: runs that failed, broke off or still run, not part of the mean."
    return Picture(name, title, " ".join([caption, *notes]), panels, legend, columns=4, rows=rows)


def _draw_curves(axes: Axes, curves: Sequence[Curve], look: dict[Setting, Look]) -> None:
    for place, item in enumerate(curves):
        style = look[item.setting]
        if item.band is not None:
            drawing.line(axes, item.band["mean"], style, place)
            if len(item.runs) > 1:
                drawing.fill(axes, item.band["mean"], item.band["se"], style.colour)
                for run in item.runs:
                    drawing.thin_line(axes, run, style, linestyle="-", linewidth=0.5, alpha=0.35, zorder=1)
        for single in item.singles:
            drawing.thin_line(axes, single, style, linewidth=0.8)
            axes.plot(single.index[-1:], single.iloc[-1:], color=style.colour, marker="x", markersize=6)
    drawing.over_steps(axes)
    if not axes.lines:
        drawing.say(axes, "no run logged this")


# ----------------------------------------------------------------------------------------- differences from one method

Line = tuple[str, Look | None, Difference | None]  # a heading has no look and no difference


LONG = 60  # letters of a line beside the forest


def forest(comparison: Comparison) -> Picture | None:
    """Every setting less the first one by the main endpoint; None if no two settings have three runs each."""
    first, gaps = less_first(samples(outcomes(comparison), OVER_TRAINING))
    if first is None:
        return None
    look = looks(comparison)
    lines = [(textwrap.fill(setting.label, LONG), look[setting], gap) for setting, gap in gaps.items()]
    rows = [(one.label, OVER_TRAINING, first.label, gap.runs[0], gap.mean, gap.se) for one, gap in gaps.items()]
    panel = Panel("", partial(draw_forest, lines=lines, size=9))
    zero = [Entry(f"{first.label}: 0", look[first])]
    caption = f"Point: validation pass@1 as the mean over training. Line: 95 % interval. Band: ± {MARGIN}, level."
    picture = Picture("forest", f"Less {first.label}", caption, [panel], zero, columns=1, rows=rows, axis="less")
    long = max(len(part) for text, _, _ in lines for part in text.splitlines())
    many = max(len(text.splitlines()) for text, _, _ in lines)
    size = max(6.6, 4 + drawing.LETTER * long), 0.9 + (0.1 + 0.15 * many) * len(lines)
    return replace(picture, panel=size)


def draw_forest(axes: Axes, lines: Sequence[Line], size: float) -> None:
    beside = axes.get_yaxis_transform()
    axes.axvspan(-MARGIN, MARGIN, color=INK, alpha=0.1, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.6)
    for place, (label, look, gap) in enumerate(lines):
        weight = "normal" if look else "bold"
        axes.text(-0.02, place, label, size=size, weight=weight, va="center", ha="right", transform=beside)
        if look and gap:
            axes.plot(gap.interval(0.95), [place, place], color=look.colour, linewidth=1.4)
            axes.plot([gap.mean], [place], color=look.colour, marker=look.marker, markersize=4)
    axes.set_ylim(len(lines) - 0.5, -0.7)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlabel("held-out pass@1, mean over training")


# ------------------------------------------------------------------------------------------------- scores and weights


def distributions(comparison: Comparison) -> Picture | None:
    """How far scores move and how far weights differ from constant ones, for every setting that logs them."""
    window, look = comparison.window, looks(comparison)
    panels, rows = [], []
    for setting in comparison.settings:
        logs = [run.logged["train"] for run in setting.counted or setting.runs]
        if not all("real/score_pos" in log for log in logs):
            continue
        means: dict[str, pd.Series] = {}
        for key in sorted({key for log in logs for key in log if key.startswith("real/")}):
            known = [windowed(log[key].dropna(), window) for log in logs if key in log]
            if (mean := band(known)) is not None:
                means[key.removeprefix("real/")] = mean["mean"]
                rows += [(setting.label, key, step, len(known), *pair) for step, *pair in mean.itertuples()]
        if setting.algo not in REAL_FAMILY:
            means.pop("weight_bound", None)  # the others have none
        for title, draw in {"score": _draw_scores, "weight |W|": _draw_weights, "weight spread": _draw_spread}.items():
            panels.append(Panel(f"{setting.label}: {title}", partial(draw, means=means, look=look[setting])))
    if not panels:
        return None
    legend = [
        Entry("positives (in the setting's colour)", Look(METHODS["real"].colour, "-", "o")),
        Entry("negatives", NEGATIVES),
        Entry("largest weight", LARGEST),
        Entry("its bound 1/τ (Proposition 5.1)", BOUND),
    ]
    caption = (
        "Means over the runs of a setting of each step's statistics. Score: mean over rollouts, band ±1 standard "
        "deviation over rollouts (a spread, not an error), thin lines smallest and largest. Weight: mean of |W| by "
        "class. Weight spread: standard deviation over mean of the weights inside one class of one group; at 0 the "
        "weights are constants and the method does no more than the constant-weight control."
    )
    return Picture("scores", "Scores and weights over training", caption, panels, legend, columns=3, rows=rows)


NEGATIVES = Look(INK, "--", "s")
LARGEST = Look(INK, "-", "")
BOUND = Look(INK, ":", "")


def _draw_scores(axes: Axes, means: dict[str, pd.Series], look: Look) -> None:
    for side, style in (("pos", look), ("neg", NEGATIVES)):
        if (middle := means.get(f"score_{side}")) is not None:
            drawing.line(axes, middle, style)
            spread = means.get(f"score_{side}_std")
            if spread is not None and spread.index.equals(middle.index):
                drawing.fill(axes, middle, spread, style.colour)
            for edge in {f"score_{side}_min", f"score_{side}_max"} & means.keys():
                drawing.thin_line(axes, means[edge], style)
    axes.axhline(0, color=INK, linewidth=0.6)
    drawing.over_steps(axes)


def _draw_weights(axes: Axes, means: dict[str, pd.Series], look: Look) -> None:
    for key, style in (("weight_pos", look), ("weight_neg", NEGATIVES)):
        if key in means:
            drawing.line(axes, means[key], style)
    if "weight_abs_max" in means:
        drawing.thin_line(axes, means["weight_abs_max"], LARGEST)
        if "weight_bound" in means and (share := means["weight_bound"].iloc[-1]) > 0:  # tau times the largest weight
            top = means["weight_abs_max"].iloc[-1] / share
            axes.axhline(top, color=BOUND.colour, linestyle=BOUND.line, linewidth=1)
    axes.set_ylim(bottom=0)
    drawing.over_steps(axes)


def _draw_spread(axes: Axes, means: dict[str, pd.Series], look: Look) -> None:
    _draw_one(axes, means.get("weight_cv"), look)
    axes.set_ylim(0, max(0.01, axes.get_ylim()[1]))  # rounding errors of a constant are no spread


def training_curves(folder: Path, path: Path) -> Path:
    """One run at a glance as a PNG: reward, validation, entropy and loss."""
    try:
        run = read_run(folder)
    except UnreadableRun as problem:
        raise UserError(f"no picture of {folder}: {problem}") from problem
    sets = validation_sets([run])
    look = method(run.algo)
    title = f"{run.name}: {look.label}" + ("" if run.counted else f" ({run.status})")
    panels = [
        Panel(metric.title, partial(_draw_one, values=series(run, metric, sets), look=look)) for metric in OF_ONE_RUN
    ]
    return drawing.save_as(Picture(run.name, title, "", panels, [Entry(title, look)], columns=2), path)


def _draw_one(axes: Axes, values: pd.Series | None, look: Look) -> None:
    drawing.over_steps(axes)
    if values is None:
        drawing.say(axes, "not logged")
    else:
        drawing.line(axes, values, look)
