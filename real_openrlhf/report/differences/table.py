"""The table of differences, its verdicts in words, and the sentence at the top of a report."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from real_openrlhf.report.curves import VALIDATION, collapsed, over_training, series, validation_sets
from real_openrlhf.report.differences.welch import LEVEL, MARGIN, Difference, difference, fisher, holm
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import FEWEST, Estimate
from real_openrlhf.report.table_forms import BLOCK, Row, Table

ENDPOINTS: dict[str, Callable[[pd.Series], float]] = {  # the first one is the main one, of every report
    "Mean over training": over_training,
    "At the end": lambda curve: float(curve.iloc[-1]),
}
Values = dict[Setting, dict[Run, float]]  # one endpoint of each finished run


def differences(comparison: Comparison) -> Table | None:
    """Every setting less the first one; None if no two settings have three runs each."""
    blocks = {name: values(comparison, endpoint) for name, endpoint in ENDPOINTS.items()}
    parts = [table("differences", "Differences", {name: found}) for name, found in blocks.items()]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    first, _ = less_first(blocks["Mean over training"])
    lost = _lost_rows(first, lost_runs(comparison)) if first else []
    notes = [*known[0].notes, *_correlation(blocks["Mean over training"]), *([LOST] if lost else [])]
    return replace(known[0], rows=[*(row for part in known for row in part.rows), *lost], notes=notes)


LOST = "Lost: a run that failed, or ended below half of its own best. p: Fisher's exact test, with Holm's correction."


def lost_runs(comparison: Comparison) -> Values:
    """1 for each run that was lost, else 0; runs that still train, and runs without an evaluation, are left out."""
    sets = validation_sets(comparison.runs)
    found: Values = {setting: {} for setting in comparison.settings}
    for setting in comparison.settings:
        for run in setting.runs:
            curve = series(run, VALIDATION, sets)
            if run.status == "failed" or (run.counted and curve is not None):
                found[setting][run] = float(run.status == "failed" or collapsed(curve))
    return found


def _lost_rows(first: Setting, found: Values) -> list[Row]:
    """A row for each setting after the first one, if any of them lost a run."""
    usual = by_block(found[first])
    others = {
        setting: by_block(runs) for setting, runs in found.items() if setting is not first and len(runs) >= FEWEST
    }
    chances = {setting: p for setting, blocks in others.items() if (p := fisher(blocks, usual)) is not None}
    if not any(sum(found[setting].values()) for setting in (first, *chances)):
        return []
    rows: list[Row] = []
    for setting, p in zip(chances, holm([*chances.values()]), strict=True):
        lost, of_first = (f"{sum(runs.values()):g} of {len(runs)}" for runs in (found[setting], found[first]))
        more = np.mean([*found[setting].values()]) > np.mean([*found[first].values()])
        rows.append(
            {
                BLOCK: "Runs lost",
                "Setting": setting.label,
                f"Less {first.label}": f"{lost}, {first.label} {of_first}",
                "p (Holm)": _p(p),
                "It is": "open" if p >= LEVEL else "higher" if more else "lower",
                "Runs": str(len(found[setting])),
            }
        )
    return rows


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def values(comparison: Comparison, endpoint: Callable[[pd.Series], float]) -> Values:
    sets = validation_sets(comparison.runs)
    return {
        setting: {
            run: endpoint(curve) for run in setting.counted if (curve := series(run, VALIDATION, sets)) is not None
        }
        for setting in comparison.settings
    }


def by_block(found: Mapping[Run, float]) -> dict[str, list[float]]:
    """A block is one machine and one starting model. Older records name neither; they are one block."""
    blocks: dict[str, list[float]] = defaultdict(list)
    for run, value in found.items():
        earlier = run.meta.get("earlier_places")
        places = [run.meta, *(earlier if isinstance(earlier, list) else ())]
        machines = sorted({str(one.get("machine")) for one in places if isinstance(one, dict)})
        blocks[f"{machines} {run.meta.get('starting_weights')}"].append(value)
    return blocks


def less_first(found: Values) -> tuple[Setting | None, dict[Setting, Difference]]:
    """The first setting with enough runs, and the others less it."""
    for place, first in enumerate(found):
        others = list(found)[place + 1 :]
        gaps = {setting: difference(by_block(found[setting]), by_block(found[first])) for setting in others}
        if known := {setting: gap for setting, gap in gaps.items() if gap is not None}:
            return first, known
    return None, {}


def table(name: str, title: str, blocks: Mapping[str, Values]) -> Table | None:
    """A block for each endpoint, or for each cell of a map; Holm's correction is over all rows."""
    firsts, gaps = {}, {}
    for block, found in blocks.items():
        firsts[block], gaps[block] = less_first(found)
    every = [gap for known in gaps.values() for gap in known.values()]
    if not every:
        return None
    corrected = iter(holm([gap.p for gap in every]))
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
        for block, known in gaps.items()
        for setting, gap in known.items()
        for p in [next(corrected)]
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
    return "level" if gap.is_level else "open"


def _correlation(found: Values) -> list[str]:
    """How far runs of one seed move together: what pairs of seeds would gain."""
    first, gaps = less_first(found)
    correlations = []
    for setting in gaps:
        mine, his = (
            {run.seed: value for run, value in found[one].items() if run.seed is not None}
            for one in (setting, first)
            if one
        )
        shared = sorted(mine.keys() & his.keys())
        pair = np.array([[one[seed] for seed in shared] for one in (mine, his)])
        if len(shared) > 2 and pair.std(axis=1).all():
            correlations.append(float(np.corrcoef(pair)[0, 1]))
    if not correlations:
        return []
    return [f"Runs of one seed correlate by {np.mean(correlations):.2f} over these rows, by the main endpoint."]


def sentence(comparison: Comparison) -> str:
    """What the runs of a comparison say, by the main endpoint."""
    found = values(comparison, over_training)
    measured = {setting: list(of_runs.values()) for setting, of_runs in found.items() if of_runs}
    if not measured:
        return "No finished run has an evaluation yet."
    if len(measured) == 1:
        ((setting, means),) = measured.items()
        return f"{setting.label}: held-out pass@1 is {np.mean(means):.3f} as the mean over training{_of(means)}."
    first, gaps = less_first(found)
    if first is None:
        numbers = ", ".join(f"{setting.label} {np.mean(means):.3f}" for setting, means in measured.items())
        return f"Fewer than three runs a setting rank nothing. Mean over training: {numbers}."
    corrected = holm([gap.p for gap in gaps.values()])
    called: dict[str, list[str]] = defaultdict(list)
    seen = []
    for (setting, gap), p in zip(gaps.items(), corrected, strict=True):
        name = verdict(gap, p)
        called[name].append(setting.label if name == "open" else f"{setting.label} by {gap.mean:+.3f}")
        seen += [f"{gap.detectable(len(gaps)):.2f}"] if name == "open" else []
    says = {"higher": "Above", "lower": "Below", "level": "Level with", "open": "Cannot be told apart from"}
    parts = [f"{says[name]} {first.label}: {'; '.join(called[name])}." for name in says if name in called]
    if seen:
        least, most = min(seen), max(seen)
        parts.append(f"A difference of {least if least == most else f'{least} to {most}'} would have shown.")
    return f"By the mean over training. {' '.join(parts)}"


def _of(means: Sequence[float]) -> str:
    return f" of {len(means)} runs" if len(means) > 1 else ""
