"""Two evaluations of the same problems with the same settings, problem by problem: `real-openrlhf eval --compare`."""

import json
from pathlib import Path

import numpy as np

from real_openrlhf.base.errors import UserError
from real_openrlhf.data.benchmarks import BENCHMARKS, average_title
from real_openrlhf.report.statistics import bootstrap
from real_openrlhf.report.table_forms import Row, Table, to_markdown

LEVEL = 95  # percent of an interval
PROTOCOL = {"k": "k", "temperature": "T", "top_p": "top_p", "max_new_tokens": "max tokens", "grader": "grader"}
PROTOCOL |= {"think": "closed thinking", "limit": "only the first", "allow": "also counted"}
Problems = dict[tuple[str, str], dict]  # (benchmark, id) -> its line of per_problem.jsonl


def protocol(settings: object) -> str:
    """The settings that two scores must share to be compared."""
    if not isinstance(settings, dict):
        return "protocol unknown"
    return ", ".join(f"{words} = {settings[key]}" for key, words in PROTOCOL.items() if settings.get(key) is not None)


def title_of(name: str) -> str:
    return BENCHMARKS[name].title if name in BENCHMARKS else "Avg." if name == "average" else name


def compare_two(a: Path, b: Path) -> str:
    """The difference on each benchmark, and on their unweighted average if there are several, as Markdown."""
    (first, one), (second, other) = map(_read, (a, b))
    settings = first["settings"]
    _refuse_unlike(settings, second["settings"], one, other)
    rows: list[Row] = []
    means, resampled, counts = [], [], []

    def add(title: str, problems: int, a: float, b: float, draws: np.ndarray, better: int, worse: int) -> None:
        low, high = np.percentile(draws, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
        clear = round(low, 3) > 0 or round(high, 3) < 0  # as it is printed: a bound of 1e-17 is a rounding error
        rows.append(
            {
                "Benchmark": title,
                "Problems": str(problems),
                f"A: {first['name']}": f"{a:.3f}",
                f"B: {second['name']}": f"{b:.3f}",
                "B less A": f"**{b - a:+.3f}**" if clear else f"{b - a:+.3f}",
                f"{LEVEL} % interval": f"{low:+.3f} to {high:+.3f}",
                "B better, worse": f"{better}, {worse}",
            }
        )

    for benchmark in dict.fromkeys(benchmark for benchmark, _ in one):
        keys = [key for key in one if key[0] == benchmark]
        scores, others = (np.array([side[key]["pass@1"] for key in keys]) for side in (one, other))
        gains = others - scores
        means.append((scores.mean(), others.mean()))
        resampled.append(bootstrap(gains, np.random.default_rng([settings["seed"], *benchmark.encode()])))
        counts.append((int((gains > 0).sum()), int((gains < 0).sum())))
        add(title_of(benchmark), len(keys), *means[-1], resampled[-1], *counts[-1])
    if len(rows) > 1:
        (a_mean, b_mean), (better, worse) = np.mean(means, axis=0), np.sum(counts, axis=0)
        title = average_title(benchmark for benchmark, _ in one)
        add(title, len(one), a_mean, b_mean, np.mean(resampled, axis=0), better, worse)
    notes = [
        "pass@1, problem by problem. Interval: bootstrap over problems, which keeps pairs together. Bold: it leaves "
        "out 0. Of twenty such intervals over equal models one does so by chance.",
        f"{protocol(settings)}, seed = {settings['seed']}.",
    ]
    return to_markdown(Table("comparison", "B less A", rows, notes))


def _read(folder: Path) -> tuple[dict, Problems]:
    """results.json and the problems of a folder that `real-openrlhf eval --out` wrote."""
    try:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        lines = (folder / "per_problem.jsonl").read_text(encoding="utf-8").splitlines()
        return results, {(line["benchmark"], line["id"]): line for line in map(json.loads, lines)}
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} has no {Path(error.filename).name}. Name a folder that real-openrlhf eval --out has filled"
        ) from error


def _refuse_unlike(settings: dict, others: dict, one: Problems, other: Problems) -> None:
    """Raise if the two evaluations differ in settings, problems or answers."""
    pairs = {name: (settings.get(name), others.get(name)) for name in sorted({*settings, *others})}
    if unlike := [f"{name} {here} and {there}" for name, (here, there) in pairs.items() if here != there]:
        raise UserError(f"the two evaluations differ: {'; '.join(unlike)}. Evaluate one again, like the other")
    if alone := sorted(one.keys() ^ other.keys()):
        raise UserError(
            f"{len(alone)} problems are in one evaluation only, such as {' '.join(alone[0])}. Evaluate both on the "
            "same benchmarks"
        )
    if changed := [key for key, line in one.items() if line["label"] != other[key]["label"]]:
        raise UserError(
            f"{' '.join(changed[0])} has another answer in each: the benchmark's file has changed. Evaluate one model "
            "again"
        )
