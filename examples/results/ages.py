"""Older and older answers: held-out pass@1, as the mean over training, against the number of batches that wait.

`refresh.py` draws it from the campaigns `next/old-*`. Each method has its own rate, chosen with four waiting batches.
"""

import itertools
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import matplotlib
from drawing import STYLE, save_png, strokes
from matplotlib.figure import Figure
from methods import METHODS, Look
from places import FILES
from records import HERE, runs_of

from real_openrlhf.report.settings import over_training, tasks
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.tables import samples

# What a setting's label has, its name in the legend, and its look. REAL: the anchor is the colour, tau the dashes.
OLD_POLICY, SAMPLER = METHODS["real"].look.colour, "#CC79A7"
LINES = (
    ("τ = 0.1, score=log_ratio_rollout", "REAL, sampler as anchor, τ = 0.1", Look(SAMPLER, "--", "s")),
    ("score=log_ratio_rollout", "REAL, sampler as anchor", Look(SAMPLER, "-", "o")),
    ("REAL, τ = 0.1", "REAL, τ = 0.1", Look(OLD_POLICY, "--", "s")),
    ("REAL", "REAL", Look(OLD_POLICY, "-", "o")),
    ("GRPO, ", "GRPO, corrected by token", METHODS["grpo"].look),
    ("CISPO", "CISPO", METHODS["cispo"].look),
    *((file, *named) for file, named in FILES.items()),
)


@dataclass
class Curve:
    """A method's pass@1 at each age, and the rate that it had at all of them."""

    at: dict[int, Estimate] = field(default_factory=dict)
    rates: set[float] = field(default_factory=set)


@cache
def curves() -> dict[str, Curve]:
    """In the order of LINES."""
    made = {name: Curve() for _, name, _ in LINES}
    for folder in HERE.glob("next/old-[0-9]*"):
        (task,) = tasks(runs_of(f"next/{folder.name}"))
        for setting, blocks in samples(task, over_training).items():
            name = next((name for word, name, _ in LINES if word in setting.label), None)
            if name is None:  # GRPO without its correction, by mistake
                continue
            found = estimate(itertools.chain(*blocks.values()))
            assert found is not None
            made[name].at[int(folder.name.split("-")[1])] = found
            made[name].rates |= {run.flags["--actor.adam.lr"] for run in setting.counted}
    return made


def ages() -> list[int]:
    return sorted({age for curve in curves().values() for age in curve.at})


def save_picture(path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 6), layout="constrained")
        axes = figure.add_subplot(title="Each at the rate that was best with four waiting batches")
        for place, (name, curve, look) in enumerate((name, curves()[name], look) for _, name, look in LINES):
            known = sorted(curve.at)
            x = [ages().index(age) + 0.012 * (place - len(LINES) // 2) for age in known]  # bars beside each other
            means, errors = ([getattr(curve.at[age], part) for age in known] for part in ("mean", "se"))
            axes.errorbar(x, means, errors, elinewidth=1, label=f"{name}, {_rate(curve)}", **strokes(look))
        axes.set_xticks(range(len(ages())), [*map(str, ages())])
        axes.set_xlabel("batches that may wait (0: synchronous)")
        axes.set_ylabel("held-out pass@1, mean over training")
        figure.legend(loc="outside lower center", ncols=2)
        save_png(figure, path)


def _rate(curve: Curve) -> str:
    (rate,) = curve.rates
    return f"{rate:.0e}".replace("e-0", "e-")
