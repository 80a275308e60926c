"""From graded problems to numbers: pass@1, its standard errors, and pass@k, per benchmark and on average."""

from collections.abc import Iterable

import numpy as np

from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.report.benchmarks.scores import protocol
from real_openrlhf.report.statistics import Estimate, bootstrap
from real_openrlhf.report.table_forms import Cell, Row, Table, words


def summarise(problems: Iterable[dict], seed: int) -> tuple[dict, dict]:
    """Benchmarks by name, and their unweighted average."""
    groups: dict[str, list[dict]] = {}
    for problem in problems:
        groups.setdefault(problem["benchmark"], []).append(problem)
    resampled = {
        # a generator of its own: a benchmark's error does not depend on its neighbours
        name: bootstrap(np.array([row["pass@1"] for row in rows]), np.random.default_rng([seed, *name.encode()]))
        for name, rows in groups.items()
    }
    benchmarks = {name: _summary(name, rows, resampled[name]) for name, rows in groups.items()}
    average = {
        "pass@1": float(np.mean([entry["pass@1"] for entry in benchmarks.values()])),
        "standard_error": float(np.mean(list(resampled.values()), axis=0).std(ddof=1)),
    }
    return benchmarks, average


def _summary(name: str, rows: list[dict], resampled: np.ndarray) -> dict:
    verdicts = np.array([row["verdicts"] for row in rows])
    tokens = np.array([row["tokens"] for row in rows])
    return {
        "title": BENCHMARKS[name].title if name in BENCHMARKS else name,
        "problems": len(rows),
        "pass@1": float(verdicts.mean()),
        "standard_error": float(resampled.std(ddof=1)),
        "pass@k": {str(k): pass_at(k, verdicts) for k in powers_of_two(verdicts.shape[1])},
        "truncated": float(np.mean([row["truncated"] for row in rows])),
        "ungraded": sum(row["ungraded"] for row in rows),
        "mean_tokens": float(tokens.mean()),
        "mean_tokens_right": _mean(tokens[verdicts == 1]),
        "mean_tokens_wrong": _mean(tokens[verdicts == 0]),
    }


def table(results: dict) -> Table:
    """The paper's row, with everything without which the numbers cannot be compared."""
    settings, sets = results["settings"], [*results["benchmarks"].values()]
    columns = [*sets, {"title": "Avg.", **results["average"]}] if len(sets) > 1 else sets
    numbers = [Cell(number=Estimate(one["pass@1"], one["standard_error"], 1)) for one in columns]
    counts = ", ".join(f"{one['title']} {one['problems']}" for one in sets)
    ungraded = sum(one["ungraded"] for one in sets)
    notes = [
        f"pass@1 ± standard error (bootstrap over problems). Problems: {counts}.",
        f"{protocol(settings)}, seed = {settings['seed']}.",
    ]
    notes += [f"{ungraded} samples could not be graded and count as wrong."] if ungraded else []
    row = Row([words(results["name"]), *numbers])
    return Table("benchmarks", "Benchmarks", ["Model", *(one["title"] for one in columns)], [("", [row])], notes)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def pass_at(k: int, verdicts: np.ndarray) -> float:
    """The unbiased estimate of Chen et al. 2021: one minus the share of k-subsets of the samples without a hit."""
    _, n = verdicts.shape
    misses = n - verdicts.sum(axis=1)
    # choose(misses, k) / choose(n, k) as a product of k ratios, none above 1
    steps = np.arange(k)
    all_wrong = np.prod(np.clip(misses[:, None] - steps, 0, None) / (n - steps), axis=1)
    return float(1.0 - all_wrong.mean())


def powers_of_two(k: int) -> list[int]:
    """1, 2, 4, ... and k itself."""
    return sorted({2**i for i in range(k.bit_length())} | {k})
