"""The table of differences from the first setting, its verdicts in words, and the sentence at the top of a report."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from real_openrlhf.report.curves import AT_THE_END, LOST, OVER_TRAINING, outcomes
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import FEWEST, LEVEL, MARGIN, Difference, Estimate, difference, fisher, holm
from real_openrlhf.report.table_forms import BLOCK, Row, Table

ENDPOINTS = OVER_TRAINING, AT_THE_END  # the first one is the main one, of every report
Samples = Mapping[Setting, Mapping[str, list[float]]]  # setting -> machine -> one value a run


def samples(found: pd.DataFrame, column: str) -> Samples:
    """One column of `outcomes`, where runs have it."""
    made: dict[Setting, dict[str, list[float]]] = defaultdict(dict)
    for (setting, block), values in found.dropna(subset=[column]).groupby(["setting", "block"], sort=False)[column]:
        made[setting][block] = values.tolist()
    return made


def less_first(found: Samples) -> tuple[Setting | None, dict[Setting, Difference]]:
    """The first setting with enough runs, and the others less it."""
    for place, first in enumerate(found):
        gaps = {setting: difference(found[setting], found[first]) for setting in [*found][place + 1 :]}
        if known := {setting: gap for setting, gap in gaps.items() if gap is not None}:
            return first, known
    return None, {}


def untested(found: Samples) -> str:
    """Names the settings that `less_first` leaves out; empty if there are none."""
    first, gaps = less_first(found)
    left = [setting.label for setting in found if setting is not first and setting not in gaps]
    return f"Fewer than three runs beside it, so not compared: {'; '.join(left)}." if first and left else ""


def differences(comparison: Comparison) -> Table | None:
    """Every setting less the first one; None if no two settings have three runs each."""
    found = outcomes(comparison)
    parts = [table("differences", "Differences", {name: samples(found, name)}) for name in ENDPOINTS]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    first, _ = less_first(samples(found, OVER_TRAINING))
    lost = _lost_rows(first, samples(found, LOST)) if first else []
    notes = [*known[0].notes, *([OF_LOST] if lost else []), *filter(None, [untested(samples(found, OVER_TRAINING))])]
    return replace(known[0], rows=[*(row for part in known for row in part.rows), *lost], notes=notes)


def table(name: str, title: str, blocks: Mapping[str, Samples]) -> Table | None:
    """A block for each endpoint, or for each cell of a map; Holm's correction is over all rows."""
    firsts, gaps = {}, {}
    for block, found in blocks.items():
        firsts[block], gaps[block] = less_first(found)
    every = [(block, setting, gap) for block, known in gaps.items() for setting, gap in known.items()]
    if not every:
        return None
    labels = list(dict.fromkeys(first.label for first in firsts.values() if first))
    rows: list[Row] = [
        {
            BLOCK: block,
            "Setting": setting.label,
            f"Less {labels[0]}": Estimate(gap.mean, gap.se, gap.runs[0]),
            "95 % interval": "{:.3f} to {:.3f}".format(*gap.interval(0.95)),
            "p (Holm)": _p(p),
            "Detectable": f"{gap.detectable(len(every)):.3f}",
            "It is": verdict(gap, p),
            "Runs": str(gap.runs[0]),
        }
        for (block, setting, gap), p in zip(every, holm([gap.p for *_, gap in every]), strict=True)
    ]
    notes = [
        f"Validation pass@1 less that of {' or '.join(labels)}, whichever comes first with three runs; ± is the "
        "standard error. Welch's test; p has Holm's correction for the rows of an endpoint.",
        f"Detectable: the difference that this test names with a probability of 80 %. Level: the 90 % interval lies "
        f"within ± {MARGIN}. Open: neither.",
    ]
    return Table(name, title, rows, notes)


def verdict(gap: Difference, p: float) -> str:
    if p < LEVEL:
        return "higher" if gap.mean > 0 else "lower"
    low, high = gap.interval(0.9)
    return "level" if -MARGIN < low and high < MARGIN else "open"


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


OF_LOST = (
    "Lost: a run that failed, or ended below half of its own best. p: Fisher's exact test, with Holm's correction."
)


def _lost_rows(first: Setting, found: Samples) -> list[Row]:
    """A row for each setting after the first one, if any of them lost a run."""
    runs = {setting: [one for block in blocks.values() for one in block] for setting, blocks in found.items()}
    others = [setting for setting in found if setting is not first and len(runs[setting]) >= FEWEST]
    chances = {one: p for one in others if (p := fisher(found[one], found[first])) is not None}
    if not any(sum(runs[setting]) for setting in (first, *chances)):
        return []
    return [
        {
            BLOCK: "Runs lost",
            "Setting": setting.label,
            f"Less {first.label}": f"{sum(runs[setting]):g} of {len(runs[setting])}, {first.label} "
            f"{sum(runs[first]):g} of {len(runs[first])}",
            "p (Holm)": _p(p),
            "It is": "open" if p >= LEVEL else "higher" if np.mean(runs[setting]) > np.mean(runs[first]) else "lower",
            "Runs": str(len(runs[setting])),
        }
        for setting, p in zip(chances, holm([*chances.values()]), strict=True)
    ]


def sentence(comparison: Comparison) -> str:
    """What the runs of a comparison say, by the main endpoint."""
    found = outcomes(comparison).dropna(subset=[OVER_TRAINING])
    means = found.groupby("setting", sort=False)[OVER_TRAINING].agg(["mean", "size"])
    if means.empty:
        return "No finished run has an evaluation yet."
    if len(means) == 1:
        ((setting, mean, runs),) = means.itertuples()
        several = f" of {runs} runs" if runs > 1 else ""
        return f"{setting.label}: held-out pass@1 is {mean:.3f} as the mean over training{several}."
    first, gaps = less_first(samples(found, OVER_TRAINING))
    if first is None:
        numbers = ", ".join(f"{setting.label} {mean:.3f}" for setting, mean, _ in means.itertuples())
        return f"Fewer than three runs a setting rank nothing. Mean over training: {numbers}."
    called: dict[str, list[str]] = defaultdict(list)
    seen = []
    for (setting, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
        name = verdict(gap, p)
        called[name].append(setting.label if name == "open" else f"{setting.label} by {gap.mean:+.3f}")
        seen += [f"{gap.detectable(len(gaps)):.2f}"] if name == "open" else []
    says = {"higher": "Above", "lower": "Below", "level": "Level with", "open": "Cannot be told apart from"}
    parts = [f"{says[name]} {first.label}: {'; '.join(called[name])}." for name in says if name in called]
    if seen:
        least, most = min(seen), max(seen)
        parts.append(f"A difference of {least if least == most else f'{least} to {most}'} would have shown.")
    parts += filter(None, [untested(samples(found, OVER_TRAINING))])
    return f"By the mean over training. {' '.join(parts)}"
