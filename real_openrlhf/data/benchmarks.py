"""Benchmarks: titles, numbers of rows, and sources. They are the six of the paper's tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import did_you_mean
from real_openrlhf.data.problems import Problem, read_problems
from real_openrlhf.data.sources import SUFFIXES, HubDataset, read_hub, read_local


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str  # in the paper's tables
    rows: int
    hub: HubDataset
    stem: str  # the file that the paper's baselines used, in DisCO's repository under datasets/deepscaler/data
    hub_rows: int | None = None  # if the hub's set has another number than `rows`


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("aime24", "AIME24", 30, HubDataset("HuggingFaceH4/aime_2024", "train"), "aime"),
        Benchmark("aime25", "AIME25", 30, HubDataset("math-ai/aime25", "test"), "aime25"),
        Benchmark("math500", "MATH500", 500, HubDataset("HuggingFaceH4/MATH-500", "test"), "math"),
        # AMC12 of 2022 and 2023, which the paper's tables call AMC 2023
        Benchmark("amc23", "AMC23", 83, HubDataset("AI-MO/aimo-validation-amc", "train"), "amc"),
        Benchmark("minerva", "Minerva", 272, HubDataset("math-ai/minervamath", "test"), "minerva"),
        Benchmark("olympiadbench", "O-Bench", 675, HubDataset("math-ai/olympiadbench", "test"), "olympiad_bench", 674),
    )
}


def average_title(names: Iterable[str]) -> str:
    """`Avg.`, as the paper's six have; with others it says of how many."""
    every = {*names}
    return "Avg." if every == BENCHMARKS.keys() else f"Avg. of {len(every)}"


def read_benchmark(name: str, source: Path | None = None) -> tuple[list[Problem], dict]:
    """A benchmark's problems and their origin, from the hub, a file, or a folder of prepared or original files."""
    benchmark = BENCHMARKS[name]
    if source and source.is_dir():
        files = [source / f"{stem}{end}" for stem in (benchmark.name, benchmark.stem) for end in SUFFIXES]
        if not (there := [file for file in files if file.exists()]):
            raise UserError(
                f"{source} has no {benchmark.name}.jsonl and no {benchmark.stem}.parquet for {benchmark.name}. Make "
                "it with `real-openrlhf data benchmarks`"
            )
        rows = read_local(there[0])
    else:
        rows = read_local(source) if source else read_hub(benchmark.hub)
    problems = list(read_problems(rows.rows))
    if len(problems) not in (benchmark.rows, benchmark.hub_rows):
        raise UserError(
            f"{name} has {benchmark.rows} problems, {source or benchmark.hub.repo} has "
            f"{len(problems)}: scores cannot be compared. To use it anyway, prepare it with `real-openrlhf data FILE`"
        )
    for problem in problems:
        if not problem.key or not problem.golds:
            raise UserError(
                f"{name}: row {problem.row} of {source or benchmark.hub.repo} lacks its problem or gold. Give "
                "another --source"
            )
    return problems, rows.origin


def chosen(typed: str) -> tuple[list[str], list[str]]:
    """(benchmarks, `all` of them or by name, in the order of the paper's tables; JSONL files) of words with commas."""
    words = [word.strip() for word in typed.split(",") if word.strip()]
    files = [word for word in words if word.endswith(".jsonl")]
    if unknown := [word for word in words if word not in ("all", *BENCHMARKS, *files)]:
        near = did_you_mean(unknown[0], BENCHMARKS)
        raise UserError(f"unknown benchmark {unknown[0]}. {near}There are: all, {', '.join(BENCHMARKS)}, JSONL files")
    return [name for name in BENCHMARKS if "all" in words or name in words], files
