"""Two evaluations of the same problems with the same settings, problem by problem: `real-openrlhf eval --compare`."""

from pathlib import Path

import numpy as np

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import parsed
from real_openrlhf.data.benchmarks import BENCHMARKS, average_title
from real_openrlhf.report.statistics import bootstrap
from real_openrlhf.report.table_forms import Row, Table, to_markdown

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
    (first, ours), (second, theirs) = map(_read, (a, b))
    settings = first["settings"]
    pairs = {name: (settings.get(name), second["settings"].get(name)) for name in {**settings, **second["settings"]}}
    if unlike := [f"{name} {one} and {other}" for name, (one, other) in pairs.items() if one != other]:
        raise UserError(f"the two evaluations differ: {'; '.join(unlike)}. Evaluate one again, like the other")
    golds, others = ({key: line["label"] for key, line in side.items()} for side in (ours, theirs))
    if alone := sorted(golds.items() ^ others.items()):
        differs = f"{' '.join(alone[0][0])} is in one evaluation only, or has another answer in each"
        raise UserError(f"{differs}. Evaluate both on the same benchmark files")
    benchmarks = [*dict.fromkeys(benchmark for benchmark, _ in ours)]
    columns: dict[str, tuple] = {}
    for benchmark in benchmarks:
        keys = [key for key in ours if key[0] == benchmark]
        before, after = (np.array([side[key]["pass@1"] for key in keys]) for side in (ours, theirs))
        draws = bootstrap(after - before, np.random.default_rng([settings["seed"], *benchmark.encode()]))
        columns[title_of(benchmark)] = len(keys), before.mean(), after.mean(), draws
    if len(columns) > 1:
        problems, *means = zip(*columns.values(), strict=True)
        columns[average_title(benchmarks)] = sum(problems), *(np.mean(values, axis=0) for values in means)
    rows: list[Row] = []
    for title, (problems, before, after, draws) in columns.items():
        row: Row = {"Benchmark": title, "Problems": str(problems)}
        row |= {f"A: {first['name']}": f"{before:.3f}", f"B: {second['name']}": f"{after:.3f}"}
        low, high = np.percentile(draws, [2.5, 97.5])
        rows.append(row | {"B - A": f"{after - before:+.3f}", "95 % interval": f"{low:+.3f} to {high:+.3f}"})
    notes = [
        "pass@1, problem by problem. Interval: bootstrap over problems, which keeps pairs together. Of twenty such "
        "intervals over equal models one leaves out 0 by chance.",
        f"{protocol(settings)}, seed = {settings['seed']}.",
    ]
    return to_markdown(Table("comparison", "B minus A", rows, notes))


def _read(folder: Path) -> tuple[dict, Problems]:
    """results.json and the problems of a folder that `real-openrlhf eval --out` wrote."""
    try:
        results = parsed((folder / "results.json").read_bytes())
        lines = [*map(parsed, (folder / "per_problem.jsonl").read_bytes().splitlines())]
    except FileNotFoundError as error:
        missing = f"{folder} has no {Path(error.filename).name}"
        raise UserError(f"{missing}. Name a folder that real-openrlhf eval --out has filled") from error
    except ValueError as error:
        raise UserError(f"{folder} has a broken file ({first_line(error)}). Evaluate again") from error
    return results, {(line["benchmark"], line["id"]): line for line in lines}
