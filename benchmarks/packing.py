"""How many micro-batches whole groups in waves cost, against packing without that rule, and how long planning takes.

Lognormal lengths, median 2,700 tokens, at most 9,216; four updates of 32 prompts x 8 a batch, five batches. A row is a
token budget on so many ranks, a column the deepest wave that memory allows.

    python benchmarks/packing.py        # half a minute
"""

import math
import random
import time

from real_openrlhf.algorithm.schedule import Layout, Limit, shallowest

RANKS, BUDGETS, DEEPEST, BATCHES, UPDATES = (8, 4, 1), (9216, 18432, 36864), (1, 2, 4, 1000), 5, 4
STEP = [list(range(8 * group, 8 * group + 8)) for group in range(32)]


def lognormal(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [min(9216, 200 + int(draw.lognormvariate(math.log(2500), 0.7))) for _ in range(count)]


def measure(ranks: int, budget: int, deepest: int) -> tuple[float, float]:
    """(micro-batches against packing without waves, seconds to plan a rollout batch)."""
    found = plain = 0
    began = time.perf_counter()
    for batch in range(BATCHES):
        seeds = range(UPDATES * batch, UPDATES * (batch + 1))
        layouts = [Layout(lognormal(256, seed), ranks, Limit(max_tokens=budget)) for seed in seeds]
        needed = sum(layout.one_wave(STEP).depth for layout in layouts)
        _, steps = shallowest(lambda depth, own=layouts: [one.waves(STEP, depth) for one in own], needed, deepest)
        found, plain = found + sum(wave.depth for step in steps for wave in step), plain + needed
    return found / plain, (time.perf_counter() - began) / BATCHES


if __name__ == "__main__":
    print("| ranks | tokens | " + " | ".join(f"depth {one}" for one in DEEPEST[:-1]) + " | no limit |")
    print("|---" * (len(DEEPEST) + 2) + "|")
    for ranks in RANKS:
        for budget in BUDGETS:
            cells = [measure(ranks, budget, deepest) for deepest in DEEPEST]
            shown = (f"{share:.3f} ({1000 * seconds:.0f} ms)" for share, seconds in cells)
            print(f"| {ranks} | {budget:,} | {' | '.join(shown)} |", flush=True)
