"""Text of others, for as long as you like: tests/data/untrusted_text.py and same_answer/tests/verifier_properties.py.

    python benchmarks/fuzz.py [--minutes 5] [--seed 0]
    python benchmarks/fuzz.py --pairs 100000        # of same_answer/tests/spelled_pairs.py: equal and unequal values
    python benchmarks/fuzz.py --repeated 3000       # of same_answer/tests/repeated_texts.py: CPU time of the caller

Prints how often each property was tried and for how long and, smallest first, an input for which it does not hold.
"""

import argparse
import logging
import math
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from same_answer import verdict, verify

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests" / "data"), str(ROOT / "same_answer" / "tests")]

import repeated_texts  # noqa: E402
import spelled_pairs  # noqa: E402
import untrusted_text  # noqa: E402
import verifier_properties  # noqa: E402

BATCH = 200  # examples of a property at a time
SHOWN = 3000  # letters of a failing input


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first batch; the next has the next")
    parser.add_argument("--pairs", type=int, default=0, help="how many values in random spellings, and nothing else")
    parser.add_argument("--repeated", type=int, default=0, help="how many repeated and nested texts, and nothing else")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if args.pairs:
        judge_pairs(args.pairs, args.seed)
        return
    if args.repeated:
        time_repeated(args.repeated, args.seed)
        return
    properties = {**untrusted_text.PROPERTIES, **verifier_properties.PROPERTIES}
    tried: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    failures: set[str] = set()
    start, batch = time.monotonic(), args.seed
    while time.monotonic() - start < 60 * args.minutes:
        # whatever had the least time so far
        holds = min(properties, key=lambda one: spent[one.__name__])
        begun = time.monotonic()
        failure = run(holds, properties[holds], batch, tried)
        spent[holds.__name__] += time.monotonic() - begun
        if failure and failure not in failures:
            failures.add(failure)
            print(f"\n{holds.__name__}, seed {batch}:\n{failure[:SHOWN]}", flush=True)
        batch += 1
    minutes = (time.monotonic() - start) / 60
    print(f"\n{sum(tried.values()):,} executions in {minutes:.1f} minutes, {len(failures)} failures")
    for name, count in tried.items():
        print(f"{count:>9,}  {spent[name]:5.0f} s  {name}")


def run(holds, strategies, batch: int, tried: Counter[str]) -> str | None:
    """One batch of a property; the smallest failing example as text."""

    def counted(arguments: tuple) -> None:
        tried[holds.__name__] += 1
        holds(*arguments)

    limits = settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    try:
        limits(seed(batch)(given(st.tuples(*strategies))(counted)))()
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        return f"{notes}\n{traceback.format_exception_only(error)[-1].strip()}"
    return None


def time_repeated(count: int, first: int) -> None:
    """Texts that take over a second of CPU time, or are ungraded; no worker runs, because workers have a deadline."""
    verdict.ask = lambda *_: False  # type: ignore[assignment]
    slow, reasons = [], Counter[str]()
    for at in range(first, first + count):
        text = repeated_texts.text(random.Random(at))
        start = time.process_time()
        reasons[
            (judged := verify(f"\\boxed{{{text}}}", random.Random(at).choice(("7", "5", r"\sqrt{2}")))).reason
        ] += 1
        slow.append((time.process_time() - start, at, text[:60]))
        if slow[-1][0] > 1 or judged.ungraded:
            print(f"seed {at}: {slow[-1][0]:.2f} s, {judged.reason}: {text}", flush=True)
    print(
        f"{count:,} texts, the slowest {max(slow)[0]:.2f} s: seed {max(slow)[1]}, {max(slow)[2]}...; {dict(reasons)}"
    )


def judge_pairs(count: int, first: int) -> None:
    """Every wrong verdict, and what is left without one."""
    judged: Counter[tuple[bool, float]] = Counter()
    start = time.monotonic()
    for at in range(first, first + count):
        gold, answer, equal = spelled_pairs.pair(random.Random(at))
        score = verify(f"so \\boxed{{{answer}}}", gold).score
        judged[equal, score if score in (0.0, 1.0) else math.nan] += 1
        if score != float(equal):
            print(f"seed {at}: {gold}  <-  {answer}: {score}, and they are {'' if equal else 'not '}equal", flush=True)
    equal = sum(count for (one, _), count in judged.items() if one)
    unjudged = sum(count for (_, score), count in judged.items() if math.isnan(score))
    print(f"{count:,} pairs, {equal:,} equal, in {time.monotonic() - start:.0f} s")
    print(f"{judged[True, 0.0]} missed, {judged[False, 1.0]} wrongly accepted, {unjudged} ungraded")


if __name__ == "__main__":
    main()
