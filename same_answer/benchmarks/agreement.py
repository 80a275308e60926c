"""The verifier beside math-verify's and OpenRLHF's own graders on pairs of a gold and an answer, as Markdown tables.

python same_answer/benchmarks/agreement.py [--errors] [--pairs FILE]

The pairs are same_answer/tests/written_pairs.jsonl and tricky_pairs.jsonl, or your own: rows with gold, answer, equal.
"""

import argparse
import json
import logging
import runpy
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from math_verify import parse
from math_verify import verify as math_verify

from same_answer import verify

DATA = Path(__file__).resolve().parents[1] / "tests"
PACKAGE = find_spec("openrlhf")  # importing it would need torch, DeepSpeed and more
OPENRLHF = runpy.run_path(f"{PACKAGE.submodule_search_locations[0]}/utils/math_utils.py") if PACKAGE else {}


def ours(gold: str, response: str) -> bool | None:
    verdict = verify(response, gold)
    return None if verdict.ignored else verdict.score == 1.0


def math_verify_whole(gold: str, response: str) -> bool:
    """As its README shows: the whole response, the gold in a box, default timeouts (main thread only)."""
    return math_verify(parse(f"\\boxed{{{gold}}}"), parse(response))


def openrlhf(gold: str, response: str) -> bool:
    """OpenRLHF's and, with the same verdicts, DeepScaleR's and DisCO's: last box, then mathd or sympy."""
    start = response.rfind("\\boxed")
    return start >= 0 and OPENRLHF["grade_answer"](OPENRLHF["extract_boxed_answer"](response[start:]), gold)


GRADERS: dict[str, Callable[[str, str], bool | None]] = {
    "same_answer": ours,
    "math-verify 0.9.0, its defaults": math_verify_whole,
    **({"OpenRLHF 0.11.2 (as DeepScaleR, DisCO)": openrlhf} if OPENRLHF else {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--errors", action="store_true", help="list what each grader got wrong")
    parser.add_argument("--pairs", type=Path, nargs="*", help="JSONL files instead of ours")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    for file in args.pairs or (DATA / "written_pairs.jsonl", DATA / "tricky_pairs.jsonl"):
        pairs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for part in sorted({pair.get("part", 0) for pair in pairs}):
            compare(f"{file.stem}, part {part}", [one for one in pairs if one.get("part", 0) == part], args.errors)


def compare(title: str, pairs: list[dict], errors: bool) -> None:
    equal = sum(pair["equal"] for pair in pairs)
    print(f"\n{title}: {len(pairs)} pairs, {equal} equal, {len(pairs) - equal} not\n")
    print("| grader | right | missed | wrongly accepted | no verdict |\n|---|---|---|---|---|")
    for name, grade in GRADERS.items():
        verdicts = [(pair, grade(pair["gold"], response_of(pair))) for pair in pairs]
        positives = [pair for pair, verdict in verdicts if verdict is True and not pair["equal"]]
        negatives = [pair for pair, verdict in verdicts if verdict is False and pair["equal"]]
        undecided = [pair for pair, verdict in verdicts if verdict is None]
        right = 1 - (len(positives) + len(negatives) + len(undecided)) / len(pairs)
        print(f"| {name} | {right:.1%} | {len(negatives)} | {len(positives)} | {len(undecided)} |", flush=True)
        if errors:
            for kind, wrong in (("+", positives), ("-", negatives), ("?", undecided)):
                for pair in wrong:
                    print(f"    {kind} {pair['gold']}  <-  {response_of(pair)}")


def response_of(pair: dict) -> str:
    return pair.get("response") or f"The answer is \\boxed{{{pair['answer']}}}."


if __name__ == "__main__":
    main()
