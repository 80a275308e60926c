"""`real-openrlhf data`: a training set or the benchmarks as OpenRLHF's JSONL, with a report of what was dropped."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from real_openrlhf import __version__
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.ownership import MANIFEST, refuse_foreign_rows, write_rows
from real_openrlhf.base.parsing import did_you_mean, path_of, positive
from real_openrlhf.data import cleaning
from real_openrlhf.data.benchmarks import BENCHMARKS, read_benchmark
from real_openrlhf.data.problems import LEFT, PLACE, Problem, load_tokenizer, read_problems, token_ids
from real_openrlhf.data.sources import HubDataset, Rows, is_hub_id, read_hub, read_local
from same_answer import verify
from same_answer.extract import is_raw

MAX_PROMPT_TOKENS = 1024
TRAINING_ONLY = {  # options with their defaults
    "problem_column": None,
    "gold_column": None,
    "template": None,
    "tokenizer": None,
    "max_prompt_tokens": MAX_PROMPT_TOKENS,
}
TRAINING_SETS = {
    "deepscaler": HubDataset("agentica-org/DeepScaleR-Preview-Dataset", "train"),
    "dapo17k": HubDataset("BytedTsinghua-SIA/DAPO-Math-17k", "train"),  # has every row about 100 times
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        help=f"{', '.join(TRAINING_SETS)}; benchmarks (all) or one of {', '.join(BENCHMARKS)}; "
        "a parquet, JSON or JSONL file of your own; OWNER/NAME or OWNER/NAME@FOLDER on the hub",
    )
    parser.add_argument("--out", type=path_of, required=True, help="the JSONL to write; a folder for benchmarks")
    parser.add_argument("--source", type=path_of, help="read this file or folder instead of the hub")
    training = parser.add_argument_group("training sets only")
    training.add_argument("--problem-column", help="column of the problem (default: found by its usual names)")
    training.add_argument("--gold-column", help="column of the gold answer (default: found by its usual names)")
    training.add_argument(
        "--template",
        metavar="boxed, none or TEXT",
        type=_template_of,
        help=r"boxed: ask for the answer in \boxed{}; none: prompts as they are; TEXT with {} for the problem "
        "(default: boxed, for a file of your own only if its answers are numbers or formulas)",
    )
    training.add_argument("--tokenizer", help="model whose tokenizer counts --max-prompt-tokens (default: no count)")
    training.add_argument(
        "--max-prompt-tokens",
        type=positive,
        default=MAX_PROMPT_TOKENS,
        help="drop longer prompts, chat template included (default %(default)s)",
    )


def _template_of(text: str) -> str:
    if text not in ("boxed", LEFT) and PLACE not in text:
        raise argparse.ArgumentTypeError(f"{text!r} has no {PLACE}, where the problem would stand")
    return text


def run(args: argparse.Namespace) -> int:
    kind = "benchmarks" if args.what in ("benchmarks", *BENCHMARKS) else ""
    given = [name for name, default in TRAINING_ONLY.items() if getattr(args, name) != default]
    if kind and given:
        raise UserError(f"--{given[0].replace('_', '-')} is not read by `data {args.what}`. Leave it out")
    if args.what == "benchmarks":
        if args.out.is_file():
            raise UserError(f"--out {args.out} is a file, and the benchmarks need a folder. Name a folder")
        for name in BENCHMARKS:
            prepare_benchmark(name, args.source, args.out / f"{name}.jsonl")
    elif args.out.suffix != ".jsonl":
        raise UserError(f"--out {args.out}: the name must end in .jsonl, by which OpenRLHF knows the format")
    elif kind == "benchmarks":
        prepare_benchmark(args.what, args.source, args.out)
    else:
        own = {name: getattr(args, name) for name in TRAINING_ONLY}
        prepare_training(args.what, args.out, source=args.source, **own)
    return 0


def prepare_benchmark(name: str, source: Path | None, out: Path) -> None:
    """Write a benchmark with all its rows: nothing is dropped or changed."""
    refuse_foreign_rows("--out", [out], out.with_suffix(MANIFEST))
    problems, origin = read_benchmark(name, source)
    about = {"real_openrlhf": __version__, "datasource": name, "source": origin, "rows": {"written": len(problems)}}
    write_rows({out: [problem.record(name) for problem in problems]}, out.with_suffix(MANIFEST), about)
    print(f"{out}: {len(problems)} problems")


def prepare_training(
    what: str,
    out: Path,
    *,
    source: Path | None = None,
    problem_column: str | None = None,
    gold_column: str | None = None,
    template: str | None = None,
    tokenizer: str | None = None,
    max_prompt_tokens: int = MAX_PROMPT_TOKENS,
) -> None:
    if Path(source or what).resolve() in (out.resolve(), out.resolve().parent):
        raise UserError(f"--out {out} lies in what is read: the next run would read it too. Give another place")
    dropped = out.with_suffix(".dropped.jsonl")
    refuse_foreign_rows("--out", [out, dropped], out.with_suffix(MANIFEST))
    name, rows = _source(what, source)
    problems = read_problems(rows.rows, problem_column, gold_column)
    selection = cleaning.distinct(tqdm(problems, desc="reading", disable=None), _agree)
    selection.keep(_gold_objection, cleaning.UNVERIFIED)
    asked, about_template = _template(template, what, selection.kept)
    if tokenizer:
        loaded = load_tokenizer(tokenizer)

        def length_objection(problem: Problem) -> str | None:
            length = len(token_ids(loaded, problem.chat(asked)))
            return f"{length} tokens" if length > max_prompt_tokens else None

        selection.keep(length_objection, cleaning.TOO_LONG)
    if not selection.kept:
        counts = ", ".join(f"{rows} {reason}" for reason, rows in selection.counts.most_common() if rows)
        raise UserError(
            f"no row of {what} can be used: {counts}. Name the right columns with --problem-column and --gold-column"
        )

    kept, read = len(selection.kept), len(selection.kept) + selection.counts.total()
    summary = {
        "real_openrlhf": __version__,
        "datasource": name,
        "source": rows.origin,
        "rows": {"read": read, "kept": kept, "written": kept, "dropped": dict(selection.counts)},
        "prompt_tokens": {"tokenizer": tokenizer, "limit": max_prompt_tokens} if tokenizer else None,
    }
    files: dict[Path, Iterable[dict]] = {
        out: (problem.record(name, asked) for problem in selection.kept),
        dropped: selection.dropped,
    }
    write_rows(files, out.with_suffix(MANIFEST), summary)
    print(f"{name}: {read} rows read, {kept} kept")
    for reason, count in selection.counts.items():
        print(f"  {count:>8} dropped: {reason}")
    if not tokenizer:
        print("  prompt lengths were not checked: give --tokenizer")
    print(f"{out}: {kept} rows")
    print(f"  {about_template}")
    if systems := sum(bool(problem.system) for problem in selection.kept):
        print(f"  {systems} prompts begin with a system message")
    if answered := sum(problem.answered for problem in selection.kept):
        print(f"  {answered} chats go on behind their question: what follows was left out")


def _source(what: str, local: Path | None) -> tuple[str, Rows]:
    if what in TRAINING_SETS:
        return what, read_local(local) if local else read_hub(TRAINING_SETS[what])
    if local:
        raise UserError(
            f"--source goes with {', '.join(TRAINING_SETS)} or a benchmark; {what} is read as a file itself"
        )
    path = Path(what)
    if not path.exists():
        if is_hub_id(what):
            repo, _, folder = what.partition("@")
            return repo.rpartition("/")[2], read_hub(HubDataset(repo, "train", folder or None))
        names = [*TRAINING_SETS, "benchmarks", *BENCHMARKS]
        near = did_you_mean(path.stem, names)
        raise UserError(f"{what} is neither a file nor a known data set. {near}There are: {', '.join(names)}")
    return path.stem, read_local(path)


def _template(asked: str | None, what: str, problems: list[Problem]) -> tuple[str | None, str]:
    """(the template of the prompts, a line about it): BOXED for mathematics unless another one is asked for."""
    if asked not in (None, "boxed"):
        said = "as they are in the source" if asked == LEFT else f"in the template {asked!r}"
        return asked, f"prompts are {said}"
    formal = sum(any(one.isdigit() or one == "\\" for gold in problem.golds for one in gold) for problem in problems)
    if asked is None and what not in TRAINING_SETS and formal < len(problems) / 2:
        return (
            LEFT,
            "the answers are no numbers or formulas, so prompts are as they are: --template boxed asks for a box",
        )
    return None, r"prompts ask for the answer in \boxed{}: --template none leaves them as they are"


def _agree(one: Problem, other: Problem) -> bool:
    return any(verify(f"\\boxed{{{gold}}}", other.label).score == 1.0 for gold in one.golds)


def _gold_objection(problem: Problem) -> str | None:
    """Why the verifier rejects a gold as its own answer, or None. Such a gold would make every rollout wrong."""
    if any(map(is_raw, problem.golds)):
        return "the answer stands behind ####, or in a list as Python prints it: write it alone"
    verdicts = (verify(f"\\boxed{{{gold}}}", gold) for gold in problem.golds)
    return next((verdict.reason for verdict in verdicts if verdict.score != 1.0), None)
