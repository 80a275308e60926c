"""`real-openrlhf data`: a training set or the benchmarks as OpenRLHF's JSONL, with a report of what was dropped."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from real_openrlhf import __version__
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.ownership import MANIFEST, refuse_foreign_rows, write_rows
from real_openrlhf.base.parsing import did_you_mean, path_of, positive
from real_openrlhf.data.benchmarks import BENCHMARKS, read_benchmark
from real_openrlhf.data.problems import LEFT, PLACE, Problem, is_raw, load_tokenizer, read_problems, token_ids
from real_openrlhf.data.sources import TRAINING_SETS, HubDataset, Rows, is_hub_name, read_hub, read_local
from same_answer import verify

MAX_PROMPT_TOKENS = 1024
TRAINING_ONLY = ("problem_column", "gold_column", "template", "tokenizer", "max_prompt_tokens")


def configure(parser: argparse.ArgumentParser) -> None:
    sets = f"{', '.join(TRAINING_SETS)}; benchmarks (all) or one of {', '.join(BENCHMARKS)}; a parquet, JSON or JSONL "
    sets += "file of your own; OWNER/NAME or OWNER/NAME@FOLDER on the hub"
    parser.add_argument("what", metavar="WHAT", help=sets)
    parser.add_argument("--out", type=path_of, required=True, help="the JSONL to write; a folder for benchmarks")
    parser.add_argument("--source", type=path_of, help="read this file or folder instead of the hub")
    training = parser.add_argument_group("training sets only")
    training.add_argument("--problem-column", help="column of the problem (default: found by its usual names)")
    training.add_argument("--gold-column", help="column of the gold answer (default: found by its usual names)")
    template = r"boxed: ask for the answer in \boxed{}; none: prompts as they are; TEXT with {} for the problem "
    template += "(default: boxed, for a file of your own only if its answers are numbers or formulas)"
    training.add_argument("--template", metavar="boxed, none or TEXT", type=_template_of, help=template)
    tokenizer = "model whose tokenizer counts --max-prompt-tokens (default: no count)"
    training.add_argument("--tokenizer", help=tokenizer)
    longest = "drop longer prompts, chat template included (default %(default)s)"
    training.add_argument("--max-prompt-tokens", type=positive, default=MAX_PROMPT_TOKENS, help=longest)


def _template_of(text: str) -> str:
    if text not in ("boxed", LEFT) and PLACE not in text:
        raise argparse.ArgumentTypeError(f"{text!r} has no {PLACE}, where the problem would stand")
    return text


def run(args: argparse.Namespace) -> int:
    own = {name: getattr(args, name) for name in TRAINING_ONLY}
    given = [name.replace("_", "-") for name, value in own.items() if value not in (None, MAX_PROMPT_TOKENS)]
    if given and args.what in ("benchmarks", *BENCHMARKS):
        raise UserError(f"--{given[0]} is for training sets, and benchmarks stay as they are. Leave it out")
    if args.what == "benchmarks":
        for name in BENCHMARKS:
            prepare_benchmark(name, args.source, args.out / f"{name}.jsonl")
    elif args.out.suffix != ".jsonl":
        raise UserError(f"--out {args.out}: the name must end in .jsonl, by which OpenRLHF knows the format")
    elif args.what in BENCHMARKS:
        prepare_benchmark(args.what, args.source, args.out)
    else:
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
    dropped = out.with_suffix(".dropped.jsonl")
    refuse_foreign_rows("--out", [out, dropped], out.with_suffix(MANIFEST))
    name, rows = _source(what, source)
    problems = read_problems(rows.rows, problem_column, gold_column)
    selection = distinct(tqdm(problems, desc="reading", disable=None), _agree)
    selection.keep(_gold_objection, UNVERIFIED)
    asked, about_template = _template(template, what, selection.kept)
    if tokenizer:
        loaded = load_tokenizer(tokenizer)

        def length_objection(problem: Problem) -> str | None:
            length = len(token_ids(loaded, problem.chat(asked)))
            return f"{length} tokens" if length > max_prompt_tokens else None

        selection.keep(length_objection, TOO_LONG)
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


# Which problems are kept: each text once, with a gold that verifies, and a short prompt

DUPLICATE = "same problem text as an earlier row"
NO_PROBLEM = "no problem text"
NO_GOLD = "no gold answer"
CONFLICT = "same problem text with different golds"
UNVERIFIED = "the gold does not verify against itself"
TOO_LONG = "the prompt is too long"


@dataclass
class Selection:
    """The kept problems, and the dropped problems with reasons; duplicates are counted, not listed."""

    kept: list[Problem]
    counts: Counter = field(default_factory=Counter)  # reason -> rows
    dropped: list[dict] = field(default_factory=list)  # a line for each

    def keep(self, judge: Callable[[Problem], str | None], reason: str) -> None:
        """Drop every problem for which `judge` has an objection."""
        survivors = []
        for problem in tqdm(self.kept, desc="checking", disable=None):
            objection = judge(problem)
            if objection is None:
                survivors.append(problem)
            else:
                self.drop(problem, reason, objection)
        self.kept = survivors

    def drop(self, problem: Problem, reason: str, detail: str = "", rows: int = 1) -> None:
        self.counts[reason] += rows
        why = {"row": problem.row, "reason": reason, "detail": detail}
        self.dropped.append(why | {"golds": problem.golds, "problem": problem.text})


def distinct(problems: Iterable[Problem], agree: Callable[[Problem, Problem], bool]) -> Selection:
    """Keep one problem per text, and none if the golds of a text disagree. Memory grows with texts, not rows."""
    seen: dict[str, tuple[Problem, Counter]] = {}  # text -> its first row, how often each spelling of the golds
    selection = Selection(kept=[])
    for problem in problems:
        if not problem.key:
            selection.drop(problem, NO_PROBLEM)
        elif not problem.golds:
            selection.drop(problem, NO_GOLD)
        else:
            _, spellings = seen.setdefault(problem.key, (problem, Counter()))
            spellings[problem.golds] += 1
    for first, spellings in seen.values():
        rows = spellings.total()
        others = (Problem(first.row, first.text, golds) for golds in spellings)
        if all(other.golds == first.golds or agree(first, other) for other in others):
            selection.kept.append(first)
            if rows > 1:
                selection.counts[DUPLICATE] += rows - 1
        else:
            selection.drop(first, CONFLICT, " | ".join(map(", ".join, spellings)), rows)
    return selection


def _source(what: str, local: Path | None) -> tuple[str, Rows]:
    if what in TRAINING_SETS:
        return what, read_local(local) if local else read_hub(TRAINING_SETS[what])
    if local:
        raise UserError(
            f"--source goes with {', '.join(TRAINING_SETS)} or a benchmark; {what} is read as a file itself"
        )
    path = Path(what)
    if not path.exists():
        if is_hub_name(what):
            repo, _, folder = what.partition("@")
            return repo.rpartition("/")[2], read_hub(HubDataset(repo, "train", folder or None))
        names = [*TRAINING_SETS, "benchmarks", *BENCHMARKS]
        near = did_you_mean(path.stem, names)
        raise UserError(f"{what} is neither a file nor a known data set. {near}There are: {', '.join(names)}")
    return path.stem, read_local(path)


def _template(asked: str | None, what: str, problems: list[Problem]) -> tuple[str | None, str]:
    """(the template of the prompts, a line about it): BOXED for mathematics unless another one is asked for."""
    if asked not in (None, "boxed"):
        form = "as they are in the source" if asked == LEFT else f"in the template {asked!r}"
        return asked, f"prompts are {form}"
    formal = sum(any(letter.isdigit() or letter == "\\" for letter in "".join(p.golds)) for p in problems)
    if asked is None and what not in TRAINING_SETS and formal < len(problems) / 2:
        return (
            LEFT,
            "the answers are no numbers or formulas, so prompts are as they are: --template boxed asks for a box",
        )
    return None, r"prompts ask for the answer in \boxed{}: --template none leaves them as they are"


def _agree(problem: Problem, other: Problem) -> bool:
    return any(verify(f"\\boxed{{{gold}}}", other.label).score == 1.0 for gold in problem.golds)


def _gold_objection(problem: Problem) -> str | None:
    """Why the verifier rejects a gold as its own answer, or None. Such a gold would make every rollout incorrect."""
    if any(map(is_raw, problem.golds)):
        return "the answer stands behind ####, or in a list as Python prints it: write it alone"
    verdicts = (verify(f"\\boxed{{{gold}}}", gold) for gold in problem.golds)
    return next((verdict.reason for verdict in verdicts if verdict.score != 1.0), None)
