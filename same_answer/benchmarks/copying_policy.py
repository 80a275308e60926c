"""How often a policy is right that copies the question: it boxes the last formula of the problem, also in a disguise.

    python same_answer/benchmarks/copying_policy.py FILE ...

A file is parquet as the benchmarks of DeepScaleR and DisCO have it, or JSON or JSONL with `problem` and `answer` or
`solution`. Before: without the prompt, so that a value counts however it is written. After: with the prompt, as in
training. Then the price: right answers that are wrong with the prompt. They are worked solutions, where the file has
them, and golds as sympy writes them after expand, factor, together, apart and others.
"""

import argparse
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet

from same_answer import verify
from same_answer.extract import boxed_answer, golds_of

FORMULA = re.compile(r"(?<!\\)\$\$?(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
LAYOUT = re.compile(r"\\begin\{align\*?\}|\\end\{align\*?\}|\[asy\].*?\[/asy\]", re.DOTALL)
DISGUISES = ("F", "x = F", "(F)+0", r"1\cdot(F)", "(F)^1", "-(-(F))", r"\frac{2(F)}{2}", "(F)+7-7", "7+F-7",
             r"\sqrt{(F)^2}", "F = F", "F = (F)+0")  # fmt: skip
REWRITTEN = ("expand", "factor", "together", "apart", "radsimp", "simplify", "cancel", "powsimp", "nsimplify")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--show", action="store_true", help="print what a disguise still gets, and what the price is")
    args = parser.parse_args()
    for file in args.files:
        measure(file, args.show)


def measure(file: Path, show: bool) -> None:
    problems = read(file)
    print(f"\n{file.stem}, {len(problems):,} problems\n\n| policy | before | after |\n|---|---|---|")
    for disguise in DISGUISES:
        before = after = 0
        for problem, label, _ in problems:
            copied = disguise.replace("F", ([""] + formulas(problem))[-1])
            if right(copied, label):
                before += 1
                after += (paid := right(copied, label, problem))
                if show and paid:
                    print(f"    {copied}  for  {label}")
        print(f"| `{disguise}` | {before / len(problems):.1%} | {after / len(problems):.1%} |", flush=True)
    for name, answers in (("worked solutions", solutions), ("golds rewritten", rewritten)):
        tried = [(problem, label, text) for problem, label, solution in problems for text in answers(label, solution)]
        known = [one for one in tried if verify(one[2], one[1]).score == 1.0]
        lost = [one for one in known if verify(one[2], one[1], prompt=one[0]).score != 1.0]
        print(f"{name}: {len(lost)} of {len(known):,} right ones are wrong with the prompt", flush=True)
        for problem, label, text in lost if show else []:
            print(f"    {text[-80:]}  for  {label}  in  {' ; '.join(formulas(problem))[-200:]}")


def solutions(label: object, solution: str) -> list[str]:
    return [solution] if solution else []


def rewritten(label: object, solution: str) -> Iterator[str]:
    """Responses with an equal of the gold, as sympy writes it."""
    import sympy
    from latex2sympy2_extended import latex2sympy

    for gold in golds_of(label):
        with contextlib.suppress(Exception):  # a gold that sympy cannot read
            value = latex2sympy(gold)
            for text in {sympy.latex(getattr(sympy, name)(value)) for name in REWRITTEN} - {gold}:
                yield f"\\boxed{{{text}}}"


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
