"""What all campaigns say together: REAL less its frozen weights against z, and every method less REAL in each place.

A cell is one campaign's REAL and `real_constant` with equal flags and seeds. A place is a campaign that compares
methods. `refresh.py` draws the figure and fills the tables of docs/evidence/results.md from here.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import campaigns
import matplotlib
import numpy as np
from drawing import INK, STYLE, save_png
from maps import collapsed
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from methods import METHODS, Look
from records import HERE, runs_of, spread_over_tau

from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Setting, over_training, tasks, validation
from real_openrlhf.report.statistics import MARGIN, Difference, Estimate, estimate
from real_openrlhf.report.table_forms import NONE, Table
from real_openrlhf.report.tables import less_first, samples, verdict

Line = tuple[str, Look | None, Difference | None]  # a heading has no look and no difference
# Records without a tree: the code that ran cannot be had again. `map` used DeepSpeed's Adam.
OLDER = ("archive", "map", "stale", "tune-hard", "tune-sums", "tune-rates", "tune-hard-rates", "tune-sums-rates")
AGAIN = "table-skill-7a0258d5"  # the runs of `table` a second time, equal in every number: they count once
ONE_CELL = {"weights-small": "16 updates", "weights-seeds": "16 updates", "smollm2-controls": "smollm2"}
LEARNED = 0.1  # mean over training; below it neither arm learned, and the cell compares nothing
BINS = {"at most 0.03": (0.0, 0.03), "0.03 to 0.1": (0.03, 0.1), "above 0.1": (0.1, np.inf)}


@dataclass(frozen=True)
class Matched:
    """One cell, over the seeds that both arms have."""

    name: str
    z: float  # of REAL's runs
    gain: float  # REAL less constant weights, by the mean over training
    best: float  # the larger of both means
    seeds: int
    died_constant: int  # seeds in which constant weights alone collapsed
    died_real: int

    @property
    def is_older(self) -> bool:
        return self.name.split("/")[0] in OLDER


@cache
def cells() -> tuple[Matched, ...]:
    arms: dict[tuple[str, str, str], dict[int, Run]] = defaultdict(dict)
    for folder in sorted(path.parent for path in (*HERE.glob("*/campaign.json"), *HERE.glob("next/*/campaign.json"))):
        for run in campaigns.runs([folder]) if folder.name != AGAIN else ():
            part, _, name = run.name.rpartition("/")
            part = ONE_CELL.get(part or folder.name, part or folder.name)
            arm = re.sub(r"-s\d+$", "", name).removeprefix(run.algo)
            arm = re.sub(r"(?<=lr-)[\d.]+(e-\d+)?", lambda rate: f"{float(rate[0]):g}", arm)
            if run.algo in ("real", "real_constant") and run.counted and _curve(run) is not None:
                arms[f"archive/{part}" if folder.name == "archive" else part, arm, run.algo][run.seed or 0] = run
    found = []
    for (part, arm, algo), frozen in arms.items():
        adaptive = arms.get((part, arm, "real"), {})
        seeds = sorted(frozen.keys() & adaptive.keys())
        if algo == "real_constant" and seeds:
            found.append(_matched(part + arm.replace("-lr", "/lr"), [(adaptive[one], frozen[one]) for one in seeds]))
    return tuple(cell for cell in found if cell.best >= LEARNED)


def _matched(name: str, pairs: Sequence[tuple[Run, Run]]) -> Matched:
    real, constant = (np.mean([over_training(_curve(pair[side])) for pair in pairs]) for side in (0, 1))
    died = [tuple(map(_died, pair)) for pair in pairs]
    z = np.mean([spread_over_tau(adaptive) or 0.0 for adaptive, _ in pairs])
    alone = sum(c and not r for r, c in died), sum(r and not c for r, c in died)
    return Matched(name, float(z), float(real - constant), float(max(real, constant)), len(pairs), *alone)


def _curve(run: Run):
    curve = validation(run, sorted(run.sets))
    return curve if curve is not None and curve.index[-1] > 0 and len(run.sets) == 1 else None


def _died(run: Run) -> bool:
    return collapsed(_curve(run))


def by_z() -> Table:
    """All cells but those of `map`, in three bins of z."""
    known = [cell for cell in cells() if not cell.name.startswith("map")]
    rows = []
    for title, (low, high) in BINS.items():
        here = [cell for cell in known if low < cell.z <= high or (low == 0 == cell.z)]
        rows.append(
            {
                "z": title,
                "Cells": str(len(here)),
                "Pairs of runs": str(sum(cell.seeds for cell in here)),
                "REAL less constant weights": estimate(cell.gain for cell in here),
                "Only constant died": str(sum(cell.died_constant for cell in here)),
                "Only REAL died": str(sum(cell.died_real for cell in here)),
            }
        )
    return Table("by_z", "REAL less its frozen weights", rows)


# Places: title, campaign, what its runs' names begin with or have
PLACES = (
    ("Tuned, 4 updates", "next/table-7a0258d5", ""),
    ("Hard task, same rates", "next/table-hard-7a0258d5", ""),
    ("Pretrained, tuned", "smollm2-mixed", ""),
    ("Pretrained, fresh seeds", "next/pretrained-78089738", ""),
    ("Old answers, one rate", "weights-age", ""),
    ("16 updates, one rate", "weights", ""),
    ("16 updates, fresh seeds", "next/ratio-7a0258d5", ""),
    ("1 update, hard task, tuned", "next/group-weights-7a0258d5", ""),
    ("Old answers, tuned", "next/old-4-7a0258d5", "^(?!grpo-lr)"),  # GRPO without correction: by mistake
    ("Fresh answers at the same rates", "next/old-0-7a0258d5", ""),
)
FILES = {  # of examples/objectives/
    "oapl": ("OAPL", Look("#8C564B", (0, (1, 1)), ">")),
    "vespo": ("VESPO", Look("#009E73", "-.", "X")),
    "rence": ("ReNCE", Look("#7F7F7F", ":", "D")),
}
IN_TABLE = ("real_constant", "grpo", "gspo")
IN_FOREST = (*IN_TABLE, "dapo", "cispo", "reinforce", "real_balanced", "real")  # `real`: another anchor or objective


@dataclass(frozen=True)
class Place:
    title: str
    real: Setting
    estimate: Estimate | None
    z: Estimate | None
    gaps: Mapping[Setting, tuple[Difference, float]]  # of each other setting, with Holm's p


@cache
def places() -> tuple[Place, ...]:
    found = []
    for title, campaign, word in PLACES:
        (task,) = tasks([run for run in runs_of(campaign) if re.search(word, run.name)])
        measured = samples(task, over_training)
        real, gaps = less_first(measured)
        assert real is not None and real.algo == "real"
        z = estimate(map(spread_over_tau, real.counted), digits=2)
        found.append(Place(title, real, estimate(itertools.chain(*measured[real].values())), z, gaps))
    return tuple(found)


def everywhere() -> Table:
    """A row a place that has one of three methods: REAL, and the methods less REAL with the verdict."""
    rows = []
    for place in places():
        if not any(setting.algo in IN_TABLE and not setting.changed for setting in place.gaps):
            continue
        row = {"Place": place.title, "z": place.z, "REAL": place.estimate}
        for algo in IN_TABLE:
            known = [pair for setting, pair in place.gaps.items() if setting.algo == algo and not setting.changed]
            row[f"{METHODS[algo].label} less REAL"] = _said(*known[0], len(place.gaps)) if known else NONE
        rows.append({**row, "Seeds": str(place.estimate.n if place.estimate else 0)})
    return Table("everywhere", "By the mean over training", rows)


def _said(gap: Difference, p: float, rows: int) -> str:
    name = verdict(gap, p)
    seen = f" ({gap.detectable(rows):.2f})" if name == "open" else ""
    return f"{gap.mean:+.3f} ± {gap.se:.3f}, {name}{seen}"


# The figure

NEW, OLD = "#0072B2", "#7F7F7F"


def save_picture(path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        lines = list(_lines())
        figure = Figure(figsize=(10, 0.8 + 0.1 * len(lines)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
        _draw_cells(left)
        draw_forest(right, lines, size=7)
        right.set_xlim(-0.6, 0.6)
        right.set_title("Methods less REAL, 95 % intervals; band: ± 0.03")
        save_png(figure, path)


def _draw_cells(axes: Axes) -> None:
    """A dot a cell, larger for more seeds; the number counts seeds in which constant weights alone broke down."""
    for cell in cells():
        x, colour = max(cell.z, 2e-3), OLD if cell.is_older else NEW
        inside = "none" if cell.is_older else colour
        size = 16 + 9 * cell.seeds
        axes.scatter([x], [cell.gain], s=size, facecolors=inside, edgecolors=colour, alpha=0.75, linewidths=1)
        if cell.died_constant:
            offset = (6, 4)
            axes.annotate(str(cell.died_constant), (x, cell.gain), offset, textcoords="offset points", fontsize=9)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.axvline(0.1, color=INK, linewidth=0.6, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks([0.002, 0.01, 0.03, 0.1, 0.3], ["0", "0.01", "0.03", "0.1", "0.3"])
    axes.minorticks_off()
    for place, (colour, inside, label) in enumerate(((NEW, NEW, "today's code"), (OLD, "none", "older code †"))):
        y = 0.95 - 0.05 * place
        axes.scatter([0.05], [y], s=50, facecolors=inside, edgecolors=colour, transform=axes.transAxes, clip_on=False)
        axes.text(0.09, y, label, transform=axes.transAxes, va="center")
    axes.set_title("REAL less its frozen weights, equal rate and seeds")
    axes.set_xlabel("z: spread of REAL's scores / tau")
    axes.set_ylabel("held-out pass@1, mean over training")


def _lines() -> Iterator[Line]:
    for place in places():
        yield place.title, None, None
        for setting, (gap, _) in place.gaps.items():
            if setting.algo in IN_FOREST and not any("labels" in word for word in setting.changed):
                label = setting.label.replace("score=log_ratio_rollout", "sampler as anchor")
                label = re.sub(r".*ratios.py:ratio_(\w+).*", r"GRPO's surrogate, ratio: \1", label)
                look = METHODS["grpo" if label.startswith("GRPO") else setting.algo].look
                file = re.search(r"(\w+)\.py:", label)
                yield *FILES.get(file[1] if file else "", (label, look)), gap


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


TABLES: dict[str, Callable[[], Table]] = {"by_z": by_z, "everywhere": everywhere}
