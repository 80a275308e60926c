"""Speed of the verifier on one core, and what hostile answers do to it.

    python same_answer/benchmarks/speed.py [--golds FILE.jsonl ...]

First 1,000 responses of about 13,000 characters: milliseconds per verdict. The golds are drawn from prepared
benchmark files (their `label` column) or, without any, generated in the mix of kinds that the six benchmarks have.
Then the hostile inputs of same_answer/tests: seconds per verdict, how long the event loop of the asking process stood
still (beside the same loop with nothing to do, which shows the machine's own jitter), and memory.
"""

import argparse
import asyncio
import importlib.util
import json
import logging
import os
import random
import re
import resource
import statistics
import time
from collections import Counter
from pathlib import Path

from same_answer import verdict as verifier
from same_answer.extract import golds_of

ROOT = Path(__file__).resolve().parents[1]
SENTENCES = (
    "Okay, so I need to find the value of this expression, and first I should recall what is given. ",
    "Let me denote the side by $s$, so the area is $\\frac{s^2\\sqrt{3}}{4}$ and the perimeter is $3s$. ",
    "Wait, that does not look right, because then $x^2 + 2x - 15 = 0$ would give $x = 3$ or $x = -5$. ",
    "Hmm, let me check: $\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$, which for $n = 12$ is 78. ",
    "Maybe the answer is \\boxed{17}? Let me verify by plugging it back in. ",
    "\\[ a_{n+1} = 2a_n + 3, \\qquad a_1 = 1 \\]\n\n",
    "Alternatively, we can count the complement: there are $\\binom{10}{3} = 120$ ways in total. ",
)
# Percent of each kind among the golds of the six benchmarks (1,590 rows).
KINDS = {
    "integer": 52,
    "decimal": 14,
    "expression": 10,
    "fraction": 10,
    "list": 7,
    "root": 3,
    "constant": 2,
    "tuple": 2,
}


def generated_gold(generator: random.Random) -> str:
    kind = generator.choices(list(KINDS), list(KINDS.values()))[0]
    a, b, c = (generator.randint(2, 99) for _ in range(3))
    variable = generator.choice("nxktm")
    return {
        "integer": str(generator.choice((a, 7 * b + c, a * b * c, -a))),
        "decimal": f"{a}.{b}",
        "fraction": f"\\frac{{{a}}}{{{b}}}",
        "root": generator.choice((f"{a}\\sqrt{{{b}}}", f"\\frac{{{a}+\\sqrt{{{b}}}}}{{{c}}}")),
        "constant": generator.choice((f"{a}\\pi", f"\\frac{{{a}\\pi}}{{{b}}}", f"e^{{{a}}}-{b}", f"\\ln {a}")),
        "expression": generator.choice(
            (
                f"{a}{variable}^2+{b}{variable}-{c}",
                f"\\frac{{{variable}({variable}+{a})}}{{{b}}}",
                f"{a}^{{{variable}}}-{b}",
            )
        ),
        "tuple": f"({a},{-b},{c})",
        "list": f"{a},{b},{c}",
    }[kind]


def rewritten(gold: str, generator: random.Random) -> str:
    """An equal answer as a model would write it."""
    forms = [gold, f"x = {gold}", gold.replace("\\frac", "\\dfrac"), gold.replace("+", " + "), gold + "."]
    if re.search(r"[a-z]", gold) and not re.search(r"[$,=%]|text|mbox|begin|circ|pm|cup", gold):
        forms += [f"1 \\cdot ({gold})", f"\\frac{{2({gold})}}{{2}}"]  # equal by algebra only
    return generator.choice(forms)


def wrong(gold: str, other: str, generator: random.Random) -> str:
    """Another gold, or this one with a digit changed."""
    if generator.random() < 0.5 and re.search(r"\d", gold):
        return re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), gold, count=1)
    return other


def responses(golds: list[str], count: int, generator: random.Random) -> list[tuple[str, str]]:
    """Four in ten right, five in ten wrong, one in ten cut off, each after some 13,000 characters of thinking."""
    items = []
    for _ in range(count):
        gold = generator.choice(golds)
        thinking, length = [], generator.gauss(13_000, 5_000)
        while length > 0:
            thinking.append(generator.choice(SENTENCES))
            length -= len(thinking[-1])
        text = "".join(thinking)
        fate = generator.random()
        if fate < 0.9:
            answer = rewritten(gold, generator) if fate < 0.4 else wrong(gold, generator.choice(golds), generator)
            text += f"</think>\n\nThus the answer is:\n\\[\n\\boxed{{{answer}}}\n\\]<|im_end|>"
        items.append((text, gold))
    return items


def speed(golds: list[str], count: int) -> None:
    items = responses(golds, count, random.Random(0))
    milliseconds, scores, reasons = [], [], Counter()
    for response, gold in items:
        start = time.perf_counter()
        verdict = verifier.verify(response, gold, think="required")
        milliseconds.append((time.perf_counter() - start) * 1e3)
        scores.append(verdict.score)
        reasons[verdict.reason] += 1
    milliseconds.sort()
    characters = statistics.mean(len(response) for response, _ in items)
    print(f"{count} responses, {characters:,.0f} characters on average, {scores.count(1.0)} right; {dict(reasons)}")
    at = {share: milliseconds[int(share * (count - 1))] for share in (0.5, 0.95, 0.99, 1.0)}
    print(
        f"ms per verdict: mean {statistics.mean(milliseconds):.2f} (bar 5), p50 {at[0.5]:.2f}, p95 {at[0.95]:.1f}, "
        f"p99 {at[0.99]:.1f} (bar 100), max {at[1.0]:.0f}"
    )


async def hostile() -> None:
    spec = importlib.util.spec_from_file_location("hostile_inputs", ROOT / "tests" / "hostile_inputs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    idle = await _worst_stall(asyncio.sleep(5))
    seconds: list[tuple[float, str]] = []

    async def ask_all() -> None:
        for name, response, gold in module.HOSTILE:
            start = time.perf_counter()
            await asyncio.to_thread(verifier.verify, response, gold)
            seconds.append((time.perf_counter() - start, name))

    busy = await _worst_stall(ask_all())
    worst, name = max(seconds)
    print(f"{len(seconds)} hostile inputs: slowest {worst:.2f} s, {name} (bar 3 s)")
    print(f"longest stall of the event loop: {busy * 1e3:.0f} ms (bar 50), with nothing to do {idle * 1e3:.0f} ms")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory: {own:.0f} MB here, {_peak_of_children():.0f} MB in the largest worker")


async def _worst_stall(work) -> float:
    task, worst = asyncio.ensure_future(work), 0.0
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(0.005)
        worst = max(worst, time.perf_counter() - start - 0.005)
    await task
    return worst


def _peak_of_children() -> float:
    peaks = [0.0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if re.search(rf"^PPid:\s+{os.getpid()}$", text, re.MULTILINE):
            peaks.append(int(re.search(r"^VmHWM:\s+(\d+)", text, re.MULTILINE)[1]) / 1024)
    return max(peaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--golds", nargs="*", type=Path, default=[], help="prepared benchmark files (JSONL with label)"
    )
    parser.add_argument("--count", type=int, default=1_000)
    args = parser.parse_args()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # inherited by the workers
    logging.getLogger("same_answer").setLevel(logging.CRITICAL)
    labels = [json.loads(line)["label"] for path in args.golds for line in path.read_text().splitlines()]
    generator = random.Random(1)
    golds = [golds_of(label)[0] for label in labels] or [generated_gold(generator) for _ in range(args.count)]
    verifier.pool()
    assert verifier.verify("\\boxed{\\sqrt{8}}", "2\\sqrt{2}").reason == "algebra"
    time.sleep(2)  # both workers are up, as they are long before a first rollout ends
    speed(golds, args.count)
    os.sched_setaffinity(0, cores)
    asyncio.run(hostile())


if __name__ == "__main__":
    main()
