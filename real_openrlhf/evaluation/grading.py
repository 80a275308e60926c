"""From samples to numbers: verdicts by the verifier or by a reward file, then pass@1, its errors, and pass@k."""

import argparse
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.user_files import raised, reward_function, reward_problem
from real_openrlhf.data.benchmarks import average_title, chosen
from real_openrlhf.evaluation.questions import Question, file_records
from real_openrlhf.evaluation.store import Sample
from real_openrlhf.report.paired import protocol, title_of
from real_openrlhf.report.statistics import Estimate, bootstrap
from real_openrlhf.report.table_forms import Table
from real_openrlhf.rewards.calls import checked
from real_openrlhf.rewards.graders import Asked, judge_many
from real_openrlhf.rewards.variables import GRADERS
from same_answer.extract import Think

Grade = Callable[[list[tuple[Question, Sample]]], Iterator[tuple[float, str]]]
Graded = tuple[Sample, float, str]  # the score is 1, 0, or nan where the verifier could not tell; then the reason


def refuse(args: argparse.Namespace) -> None:
    """Raise for what is wrong before anything is loaded: numbers, names, files. `compare` asks before it trains."""
    if not (args.temperature >= 0 and 0 < args.top_p <= 1):
        raise UserError("--temperature must be 0 or more, --top-p above 0 and at most 1. Change the one that is not")
    if args.grader.endswith(".py") and (wrong := reward_problem(Path(args.grader))):
        raise UserError(f"--grader {args.grader} {wrong}")
    if args.grader not in GRADERS and not args.grader.endswith(".py"):
        known = f"{', '.join(GRADERS)}, or a Python file with reward_func"
        raise UserError(f"unknown grader {args.grader}. There are: {known}")
    for file in map(Path, chosen(args.benchmarks)[1]):
        file_records(file)


def find_grader(name: str, think: Think, allowed: tuple[str, ...] = ()) -> Grade:
    if name in GRADERS:
        how = think, name, allowed
        return lambda pairs: judge_many(
            (Asked(one.response, question.label, question.prompt) for question, one in pairs), *how
        )
    try:
        reward = reward_function(name)
    except ValueError as error:
        raise UserError(f"--grader {error}") from error
    return lambda pairs: (_rewarded(question, sample, reward, name) for question, sample in pairs)


def grade(questions: list[Question], k: int, samples: dict[tuple[str, int], Sample], grader: Grade) -> list[dict]:
    """The lines of per_problem.jsonl: one per problem, with the verdicts on its k samples."""
    pairs = [(question, samples[question.identity, number]) for question in questions for number in range(k)]
    verdicts = tqdm(grader(pairs), "grading", len(pairs), unit="sample")
    graded: list[Graded] = [(sample, *verdict) for (_, sample), verdict in zip(pairs, verdicts, strict=True)]
    return [per_problem(question, graded[number * k : (number + 1) * k]) for number, question in enumerate(questions)]


def per_problem(question: Question, graded: list[Graded]) -> dict:
    """One line of per_problem.jsonl; a sample that could not be graded counts as incorrect."""
    verdicts = [int(score == 1.0) for _, score, _ in graded]
    return {
        "benchmark": question.benchmark,
        "id": question.identity,
        "label": question.label,
        "pass@1": sum(verdicts) / len(verdicts),
        "verdicts": verdicts,
        "reasons": [reason for _, _, reason in graded],
        "ungraded": sum(math.isnan(score) for _, score, _ in graded),
        "tokens": [sample.tokens for sample, _, _ in graded],
        "truncated": [sample.truncated for sample, _, _ in graded],
    }


def _rewarded(question: Question, sample: Sample, reward: Callable, file: str) -> tuple[float, str]:
    """Call the reward function with one query. Its score must be 0, 1, or nan for ungraded."""
    try:
        score = checked(reward([question.prompt + sample.response], [question.prompt], [question.label]))["scores"]
    except (Exception, SystemExit) as error:
        raise UserError(
            f"--grader {file} failed on {question.identity}: {raised(error, Path(file).resolve())}"
        ) from error
    if not (math.isnan(score) or score in (0.0, 1.0)):
        raise UserError(f"the reward file gave {score}, and pass@1 needs 0 or 1. Return these, or nan for ungraded")
    return score, "reward"


# Numbers, per benchmark and on average


def summarise(problems: Iterable[dict], seed: int) -> tuple[dict, dict]:
    """Benchmarks by name, and their unweighted average."""
    groups: dict[str, list[dict]] = {}
    for problem in problems:
        groups.setdefault(problem["benchmark"], []).append(problem)
    benchmarks, resampled = {}, []
    for name, rows in groups.items():
        # a random generator for each benchmark: its error does not depend on the other benchmarks
        rng = np.random.default_rng([seed, *name.encode()])
        resampled.append(bootstrap(np.array([row["pass@1"] for row in rows]), rng))
        verdicts, tokens = (np.array([row[key] for row in rows]) for key in ("verdicts", "tokens"))
        benchmarks[name] = {
            "title": title_of(name),
            "problems": len(rows),
            "pass@1": float(verdicts.mean()),
            "standard_error": float(resampled[-1].std(ddof=1)),
            "pass@k": {str(k): pass_at(k, verdicts) for k in powers_of_two(verdicts.shape[1])},
            "truncated": float(np.mean([row["truncated"] for row in rows])),
            "ungraded": sum(row["ungraded"] for row in rows),
            "mean_tokens": float(tokens.mean()),
        }
    average = {
        "pass@1": float(np.mean([entry["pass@1"] for entry in benchmarks.values()])),
        "standard_error": float(np.mean(resampled, axis=0).std(ddof=1)),
    }
    return benchmarks, average


def table(results: dict, thinks: bool = True) -> Table:
    """A row as in the paper's table, with the settings that comparable numbers must share."""
    settings, sets = results["settings"], [*results["benchmarks"].values()]
    columns = [*sets, {"title": average_title(results["benchmarks"]), **results["average"]}] if len(sets) > 1 else sets
    counts = ", ".join(f"{benchmark['title']} {benchmark['problems']}" for benchmark in sets)
    ungraded = sum(benchmark["ungraded"] for benchmark in sets)
    notes = [f"pass@1 ± standard error (bootstrap over problems). Problems: {counts}."]
    notes.append(f"{protocol(settings)}, seed = {settings['seed']}.")
    notes += [f"{ungraded} samples could not be graded and count as incorrect."] if ungraded else []
    numbers = {column["title"]: Estimate(column["pass@1"], column["standard_error"]) for column in columns}
    # `compare` shows this table and no other output of an evaluation
    unclosed = ": no response has `</think>`, so all are incorrect. If the model does not think, give --think optional"
    return Table("benchmarks", "Benchmarks" + unclosed * (not thinks), [{"Model": results["name"], **numbers}], notes)


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
