"""How often a policy is right that copies the question: it boxes a formula of the problem, without thinking.

    python benchmarks/copying_policy.py FILE ...

A file is parquet as the benchmarks of DeepScaleR and DisCO have it, or JSON or JSONL with `problem` and `answer` or
`solution`. Two policies: the last formula of the question; and every one, as a policy that always picks the best.
Before: without the prompt, so that a value counts however it is written. After: with the prompt, as in training. The
last column is the price: worked solutions, where the file has them, that are right before and not after.
"""

import argparse
import json
import re
from pathlib import Path

import pyarrow.parquet

from real_openrlhf.verifier.extract import boxed_answer, golds_of
from real_openrlhf.verifier.verdict import verify

FORMULA = re.compile(r"(?<!\\)\$\$?(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
LAYOUT = re.compile(r"\\begin\{align\*?\}|\\end\{align\*?\}|\[asy\].*?\[/asy\]", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--show", action="store_true", help="print what the first policy still gets")
    args = parser.parse_args()
    print("| problems | last formula: before | after | any formula: before | after | solutions lost |")
    print("|---|---|---|---|---|---|")
    for file in args.files:
        print(row(file, args.show), flush=True)


def row(file: Path, show: bool) -> str:
    problems = read(file)
    counts = [0, 0, 0, 0]
    solved = lost = 0
    for problem, label, solution in problems:
        copies = formulas(problem)
        before = [right(copy, label) for copy in copies]
        after = [was and right(copy, label, problem) for was, copy in zip(before, copies, strict=True)]
        if show and after and after[-1]:
            print(f"    {copies[-1]}  for  {label}")
        for at, found in enumerate((before[-1:], after[-1:], before, after)):
            counts[at] += any(found)
        if solution and verify(solution, label).score == 1.0:
            solved += 1
            lost += verify(solution, label, prompt=problem).score != 1.0
    shares = " | ".join(f"{count / len(problems):.1%}" for count in counts)
    return f"| {file.stem}, {len(problems):,} | {shares} | {f'{lost} of {solved:,}' if solved else '-'} |"


def formulas(problem: str) -> list[str]:
    """The formulas of a question, and the sides of an equation, as one would box them."""
    whole = [next(filter(None, found.groups())) for found in FORMULA.finditer(LAYOUT.sub(" ", problem))]
    return [text.strip(" .,;&\n") for text in whole if text.strip(" .,;&\n")]


def right(answer: str, label: object, prompt: str = "") -> bool:
    return verify(f"\\boxed{{{answer}}}", label, prompt=prompt).score == 1.0


def read(file: Path) -> list[tuple[str, object, str]]:
    """(problem, label, worked solution or an empty text)."""
    if file.suffix == ".parquet":
        rows = pyarrow.parquet.read_table(file).to_pylist()
        return [(one["prompt"][0]["content"], one["reward_model"]["ground_truth"], "") for one in rows]
    text = file.read_text(encoding="utf-8")
    rows = json.loads(text) if file.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    found = [(one["problem"], one.get("answer"), one.get("solution") or "") for one in rows]
    found = [(problem, label or boxed_answer(solution), solution) for problem, label, solution in found]
    return [one for one in found if golds_of(one[1])]


if __name__ == "__main__":
    main()
