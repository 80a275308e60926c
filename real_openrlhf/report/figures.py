"""The figures: each is a list of panels with one legend, drawn whole (PNG, PDF) or panel by panel (the HTML page)."""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from real_openrlhf.errors import UserError
from real_openrlhf.report.curves import DYNAMICS, ENTROPY, LOSS, REWARD, VALIDATION, Metric, curve, series
from real_openrlhf.report.curves import validation_sets as sets_of
from real_openrlhf.report.methods import METHODS, REAL_FAMILY, method
from real_openrlhf.report.read_runs import Run, UnreadableRun, read_run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Series, band, gaps, window_length, windowed
from real_openrlhf.report.weights import bound, clip_edges, figure_one

PANEL = (3.3, 2.5)  # inches
INK = "#0a0b0c"  # everything that is not data; the page replaces it by its own text colour
STYLE = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "real",
    "pdf.fonttype": 42,
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
    "grid.color": INK,
}
MARKERS = 7  # on each curve
# Settings of one method share its colour; these set the second, third ... apart: (how much lighter, line style, marker).
VARIANTS = ((0.0, None, None), (0.5, "--", "s"), (0.25, "-.", "^"), (0.65, ":", "D"), (0.4, (0, (5, 1, 1, 1)), "v"))

PAPER_DYNAMICS = ("grpo", "dapo", "gspo", "real")
PAPER_ABLATION = ("dapo", "real_bce", "real_no_anchor", "real")


@dataclass(frozen=True)
class Look:
    colour: str
    line: str | tuple
    marker: str

    def handle(self) -> Line2D:
        return Line2D([], [], color=self.colour, linestyle=self.line, marker=self.marker)


@dataclass(frozen=True)
class Entry:
    """A legend entry; without a look it names what is missing."""

    label: str
    look: Look | None


@dataclass(frozen=True)
class Panel:
    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    caption: str
    panels: list[Panel]
    legend: list[Entry]
    columns: int
    rows: list[tuple] = field(default_factory=list)  # the drawn numbers: curve, metric, x, runs, mean, SE
    axis: str = "step"


def looks(comparison: Comparison) -> dict[Setting, Look]:
    """Every setting's look, the same in all figures of a comparison."""
    seen: dict[str, int] = {}
    found = {}
    for setting in comparison.settings:
        place = seen.get(setting.algo, 0)
        seen[setting.algo] = place + 1
        lighter, line, marker = VARIANTS[place % len(VARIANTS)]
        base = setting.method
        found[setting] = Look(_lighter(base.colour, lighter), line or base.line, marker or base.marker)
    return found


def _lighter(colour: str, share: float) -> str:
    return to_hex([part + (1 - part) * share for part in to_rgb(colour)])


# ----------------------------------------------------------------------------------------------- curves over training


def dynamics(comparison: Comparison) -> Picture:
    """The paper's training dynamics: its four methods, and every other one that was run with its own knobs."""
    own = [setting for setting in comparison.settings if not setting.deviation]
    chosen = [setting for setting in own if setting.algo not in ("real_bce", "real_no_anchor")]
    return _curves("dynamics", "Training dynamics", comparison, chosen, PAPER_DYNAMICS)


def ablation(comparison: Comparison) -> Picture:
    """The paper's ablation: BCE and no anchor between DAPO and REAL."""
    chosen = [s for s in comparison.settings if not s.deviation and s.algo in (*PAPER_ABLATION, "real_constant")]
    return _curves("ablation", "Ablation: BCE and no anchor", comparison, chosen, PAPER_ABLATION)


def knobs(comparison: Comparison) -> Picture | None:
    """Settings that leave their method's own knobs (tau, KL, uniform groups), beside the method itself."""
    moved = {setting.algo for setting in comparison.settings if setting.deviation}
    chosen = [setting for setting in comparison.settings if setting.algo in moved]
    return _curves("knobs", "Effect of the knobs", comparison, chosen, ()) if chosen else None


def _curves(
    name: str, title: str, comparison: Comparison, settings: Sequence[Setting], expected: Sequence[str]
) -> Picture:
    sets = sets_of(comparison.runs)
    window = window_length(max(run.last_step for run in comparison.runs))
    look = looks(comparison)
    panels, rows, notes = [], [], []
    for metric in DYNAMICS:
        found = [curve(setting, metric, sets, window) for setting in settings]
        for item in found:
            if item.band is not None:
                columns = zip(item.band.steps, item.band.mean, item.band.se, strict=True)
                rows += [(item.setting.label, metric.name, int(s), item.band.n, m, e) for s, m, e in columns]
                if item.band.n < len(item.setting.counted):
                    notes.append(f"{metric.title}: {item.band.n} runs of {item.setting.label} logged it.")
        silent = [item.setting.label for item in found if item.absent]
        if silent and len(silent) < len(found):
            notes.append(f"{metric.title}: not logged by {', '.join(silent)}.")
        panels.append(Panel(metric.title, _draw_curves(metric, found, look)))
    legend = [Entry(f"{setting.label} ({setting.seeds})", look[setting]) for setting in settings]
    present = {setting.algo for setting in settings}
    legend += [Entry(f"{method(algo).label}: no run", None) for algo in expected if algo not in present]
    caption = "Line: mean over the runs of a setting, at steps that all of them logged. Band: ±1 standard error."
    if window > 1:
        caption += f" Each training point is the mean of {window} steps."
    if sets:
        caption += f" Validation on {', '.join(sets)}" + (" (unweighted mean)." if len(sets) > 1 else ".")
    if any(setting.broken_off for setting in settings):
        caption += " Thin lines that end in a cross: runs that failed, broke off or still run, not part of the mean."
    return Picture(name, title, " ".join([caption, *notes]), panels, legend, columns=4, rows=rows)


def _draw_curves(metric: Metric, curves: Sequence, look: dict[Setting, Look]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for place, item in enumerate(curves):
            style = look[item.setting]
            if item.band is not None:
                _line(axes, item.band.steps, item.band.mean, style, place)
                if item.band.n > 1:
                    _fill(axes, item.band.steps, item.band.mean, item.band.se, style.colour)
            for single in item.singles:
                points = _broken(single.steps, single.values)
                axes.plot(*points, color=style.colour, linestyle=style.line, linewidth=0.8)
                axes.plot(single.steps[-1:], single.values[-1:], color=style.colour, marker="x", markersize=6)
        _over_steps(axes)
        if all(item.absent for item in curves):
            _say(axes, "no run logged this")

    return draw


def _over_steps(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _broken(steps: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """The points with a hole wherever steps are missing, so that nothing is drawn across it."""
    places = gaps(steps) + 1
    return tuple(np.insert(np.asarray(column, dtype=float), places, np.nan) for column in (steps, *columns))


def _line(axes: Axes, steps: np.ndarray, values: np.ndarray, look: Look, place: int = 0) -> None:
    x, y = _broken(steps, values)
    every = max(1, len(x) // MARKERS)
    axes.plot(x, y, color=look.colour, linestyle=look.line, marker=look.marker, markevery=(place % every, every))


def _fill(axes: Axes, steps: np.ndarray, middle: np.ndarray, spread: np.ndarray, colour: str) -> None:
    x, y, e = _broken(steps, middle, spread)
    axes.fill_between(x, y - e, y + e, color=colour, alpha=0.18, linewidth=0)


def _say(axes: Axes, words: str) -> None:
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])


# ----------------------------------------------------------------------------------------- scores, weights, Figure 1


def distributions(comparison: Comparison) -> Picture | None:
    """How far scores move and how far weights leave their constants, for every setting that logs them."""
    window = window_length(max(run.last_step for run in comparison.runs))
    look = looks(comparison)
    panels = []
    rows: list[tuple] = []
    for setting in comparison.settings:
        runs = setting.counted or list(setting.runs)
        if not all("real/score_pos" in run.logged.get("train", {}) for run in runs):
            continue
        means = {}
        for key in sorted({key for run in runs for key in run.logged["train"] if key.startswith("real/")}):
            logged = [windowed(run.logged["train"][key], window) for run in runs if key in run.logged["train"]]
            if (mean := band(logged)) is not None:
                means[key.removeprefix("real/")] = Series(mean.steps, mean.mean)
                rows += [
                    (setting.label, key, int(s), mean.n, m, e)
                    for s, m, e in zip(mean.steps, mean.mean, mean.se, strict=True)
                ]
        panels += [
            Panel(f"{setting.label}: score", _draw_scores(means, look[setting])),
            Panel(f"{setting.label}: weight |W|", _draw_weights(means, look[setting], setting.algo in REAL_FAMILY)),
            Panel(f"{setting.label}: weight spread", _draw_spread(means, look[setting])),
        ]
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


def _draw_scores(means: dict[str, Series], look: Look) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for side, style in (("pos", look), ("neg", NEGATIVES)):
            if (middle := means.get(f"score_{side}")) is None:
                continue
            _line(axes, middle.steps, middle.values, style)
            spread = means.get(f"score_{side}_std")
            if spread is not None and np.array_equal(spread.steps, middle.steps):
                _fill(axes, middle.steps, middle.values, spread.values, style.colour)
            for extreme in ("min", "max"):
                if (edge := means.get(f"score_{side}_{extreme}")) is not None:
                    axes.plot(
                        *_broken(edge.steps, edge.values), color=style.colour, linestyle=style.line, linewidth=0.6
                    )
        axes.axhline(0, color=INK, linewidth=0.6)
        _over_steps(axes)

    return draw


def _draw_weights(means: dict[str, Series], look: Look, bounded: bool) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for side, style in (("pos", look), ("neg", NEGATIVES)):
            if (middle := means.get(f"weight_{side}")) is not None:
                _line(axes, middle.steps, middle.values, style)
        largest, share = means.get("weight_abs_max"), means.get("weight_bound")
        if largest is not None:
            axes.plot(*_broken(largest.steps, largest.values), color=LARGEST.colour, linewidth=0.6)
            if bounded and share is not None and share.values[-1] > 0:  # weight_bound is tau times the largest weight
                axes.axhline(
                    largest.values[-1] / share.values[-1], color=BOUND.colour, linestyle=BOUND.line, linewidth=1
                )
        axes.set_ylim(bottom=0)
        _over_steps(axes)

    return draw


def _draw_spread(means: dict[str, Series], look: Look) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        _over_steps(axes)
        if (spread := means.get("weight_cv")) is not None:
            _line(axes, spread.steps, spread.values, look)
            axes.set_ylim(0, max(0.01, axes.get_ylim()[1]))  # rounding errors of a constant are no spread
        else:
            _say(axes, "not logged")

    return draw


def gradient_magnitude() -> Picture:
    """The paper's Figure 1, drawn from the weights that training uses."""
    from real_openrlhf.algorithm.objective import NEGATIVE, POSITIVE

    ways = {name: Look(METHODS[name].colour, METHODS[name].line, METHODS[name].marker) for name in ("grpo", "real")}
    rows: list[tuple] = []

    def draw(label: int) -> Callable[[Axes], None]:
        curves = figure_one(label)
        side = "positive" if label == POSITIVE else "negative"
        for name in ways:
            rows.extend(
                (f"{name}, {side}", "|W|", s, 1, w, None)
                for s, w in zip(curves.scores, getattr(curves, name), strict=True)
            )

        def on(axes: Axes) -> None:
            for place, (name, look) in enumerate(ways.items()):
                values = getattr(curves, name)
                axes.plot(
                    curves.scores,
                    values,
                    color=look.colour,
                    linestyle=look.line,
                    marker=look.marker,
                    markevery=(40 + 50 * place, 100),
                )
            axes.axhline(bound(), color=BOUND.colour, linestyle=BOUND.line, linewidth=1)
            axes.axvline(clip_edges()[label == POSITIVE], color=INK, linewidth=0.6)
            axes.set_ylim(0, 4)
            axes.set_xlabel("relative log-probability s")
            axes.set_ylabel("|W|")

        return on

    panels = [
        Panel("(a) positive, r = 1", draw(POSITIVE)),
        Panel("(b) negative, r = 0", draw(NEGATIVE)),
    ]
    legend = [
        Entry("GRPO: ε = 0.2, A = 1", ways["grpo"]),
        Entry("REAL: τ = 0.5, C = 4", ways["real"]),
        Entry("REAL's bound 1/τ", BOUND),
        Entry("where GRPO's clipping sets in", Look(INK, "-", "")),
    ]
    caption = (
        "The paper's Figure 1, computed from the weights that training uses: REAL's by autograd on the score table "
        "(a group of four positives and four negatives, one score moved), GRPO's from its clipped token ratio. "
        "s is a token's relative log-probability for GRPO and its mean over a rollout for REAL."
    )
    return Picture(
        "gradient", "Gradient magnitude of GRPO and REAL", caption, panels, legend, columns=2, rows=rows, axis="score"
    )


# ---------------------------------------------------------------------------------------------------------- drawing


def save(picture: Picture, folder: Path) -> list[Path]:
    """The whole figure as PNG and PDF."""
    with matplotlib.rc_context(STYLE):
        figure = _whole(picture)
        figure.draw_without_rendering()
        figure.set_layout_engine(
            "none"
        )  # the layout is found; finding it again for each format takes most of the time
        paths = [folder / f"{picture.name}.png", folder / f"{picture.name}.pdf"]
        figure.savefig(paths[0], dpi=150, facecolor="white")
        figure.savefig(paths[1], facecolor="white", metadata={"CreationDate": None})
    return paths


def _whole(picture: Picture) -> Figure:
    columns = min(picture.columns, len(picture.panels))
    lines = -(-len(picture.panels) // columns)
    legend_columns = min(len(picture.legend), 2 if columns < 3 else columns)
    legend_height = 0.22 * -(-len(picture.legend) // legend_columns) + 0.1
    width, height = columns * PANEL[0], lines * PANEL[1] + legend_height
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0, legend_height / height, 1, 1 - legend_height / height))
    for place, panel in enumerate(picture.panels, 1):
        axes = figure.add_subplot(lines, columns, place)
        axes.set_title(textwrap.fill(panel.title, 40))
        panel.draw(axes)
    handles = [entry.look.handle() if entry.look else Line2D([], [], linestyle="none") for entry in picture.legend]
    figure.legend(handles, [entry.label for entry in picture.legend], loc="lower center", ncols=legend_columns)
    return figure


def panel_svg(panel: Panel, salt: str) -> str:
    """One panel as an SVG element for an HTML page, in the colours of the text around it."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):  # ids must not collide inside one page
        figure = Figure(figsize=PANEL, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(textwrap.fill(panel.title, 40))
        panel.draw(axes)
        return _svg(figure)


def swatch_svg(look: Look, salt: str) -> str:
    """The line and marker of a legend entry."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure = Figure(figsize=(0.42, 0.16))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.plot([0, 1, 2], [0, 0, 0], color=look.colour, linestyle=look.line, marker=look.marker, markevery=[1])
        axes.set_axis_off()
        return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    element = text.getvalue()
    element = element[element.index("<svg") :].replace(INK, "currentColor")
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.S)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    )


def training_curves(run: str | Path | Run, path: str | Path) -> Path:
    """One run at a glance as a PNG: reward, validation, entropy and loss."""
    if not isinstance(run, Run):
        try:
            run = read_run(run)
        except UnreadableRun as problem:
            raise UserError(f"no picture of {run}: {problem}") from problem
    sets = sets_of([run])
    shown = method(run.algo)
    look = Look(shown.colour, shown.line, shown.marker)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2 * PANEL[0], 2 * PANEL[1] + 0.3), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(f"{run.name}: {shown.label}" + ("" if run.counted else f" ({run.status})"))
        for place, metric in enumerate((REWARD, VALIDATION, ENTROPY, LOSS), 1):
            axes = figure.add_subplot(2, 2, place)
            axes.set_title(metric.title)
            _over_steps(axes)
            values = series(run, metric, sets)
            if values is None:
                _say(axes, "not logged")
            else:
                _line(axes, values.steps, values.values, look)
        figure.savefig(path, format="png", dpi=130, facecolor="white")
    return path
