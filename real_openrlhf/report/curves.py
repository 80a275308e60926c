"""Curves of a run, each a pandas series of values by step, and the numbers that tables make of one."""

import math
from collections.abc import Sequence

import pandas as pd

from real_openrlhf.report.read_runs import Run

MANY = 5  # evaluations after step 0 with which a run's end can be told from its rise
TAIL = 0.1  # a training metric's final value is its mean over this share of the steps


def validation(run: Run, sets: Sequence[str]) -> pd.Series | None:
    """pass@1, the unweighted mean over these evaluation sets; None for a run that lacks one of them."""
    keys = [f"eval_{name}_pass1" for name in sets]
    if not keys or not {*keys} <= {*run.logged["eval"]}:
        return None
    curve = run.logged["eval"][keys].dropna().mean(axis=1)
    return None if curve.empty else curve


def training(run: Run, keys: Sequence[str]) -> pd.Series | None:
    """The first of these keys that the run logged."""
    return next((run.logged["train"][key].dropna() for key in keys if key in run.logged["train"]), None)


def over_training(curve: pd.Series) -> float:
    """The mean of the evaluations after step 0; if there are none, the evaluation at step 0."""
    later = curve[curve.index > 0]
    return float((later if len(later) else curve).mean())


def at_the_end(curve: pd.Series) -> float:
    return float(curve.iloc[-1])


def fall(curve: pd.Series) -> float | None:
    """The best evaluation minus the mean of the last two; None of few, where the last two are most of the rise."""
    return float(curve.max() - curve.iloc[-2:].mean()) if (curve.index > 0).sum() >= MANY else None


def near_end(curve: pd.Series) -> float:
    """Of a training metric: its mean over the last tenth of the steps."""
    last = int(curve.index[-1])
    return float(curve.loc[last - max(1, math.ceil(TAIL * last)) + 1 :].mean())
