"""The verifier's properties (tests/data/verifier_properties.py) on random answers for as long as you like.

    python benchmarks/verifier_fuzz.py [--minutes 10] [--seed 0]

Prints how often each property was tried and, smallest first, an answer for which it does not hold. A verdict that is
late counts as one.
"""

import argparse
import importlib.util
import logging
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from real_openrlhf.rewards.verifier import verdict as verifier

PROPERTIES = Path(__file__).resolve().parents[1] / "tests" / "data" / "verifier_properties.py"
BATCH = 200  # examples between looks at the clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first batch; the next has the next")
    args = parser.parse_args()
    logging.getLogger("real_openrlhf.verifier").setLevel(logging.CRITICAL)
    spec = importlib.util.spec_from_file_location("verifier_properties", PROPERTIES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert verifier.verify("\\boxed{\\sqrt{4}}", "2").reason == "algebra"  # the workers are up
    tried: Counter[str] = Counter()
    failures: dict[str, str] = {}
    start, batch = time.monotonic(), args.seed
    while time.monotonic() - start < 60 * args.minutes:
        for holds, strategies in module.PROPERTIES.items():
            failure = run(holds, strategies, batch, tried)
            if failure and failure not in failures:
                failures[failure] = holds.__name__
                print(f"\n{holds.__name__}, seed {batch}:\n{failure}", flush=True)
        batch += 1
    minutes = (time.monotonic() - start) / 60
    print(f"\n{sum(tried.values()):,} executions in {minutes:.1f} minutes, {len(failures)} failures")
    for name, count in tried.items():
        print(f"{count:>9,}  {name}")


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


if __name__ == "__main__":
    main()
