"""Attention over packed sequences: `flash_attention_torch` beside float64 and, where it is installed, flash-attn.

The shape is a micro-batch of the 7B recipe: 18,432 tokens, 28 heads that share 4 keys, width 128, bf16.

    python benchmarks/attention_kernel.py                  # on a GPU
    python benchmarks/attention_kernel.py --device cpu     # small
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

HEADS, KEYS, WIDTH = 28, 4, 128
TOKENS = {"cpu": 512, "cuda": 18_432}
LIMIT = 2**-6  # of the norm: bf16 rounds each number by up to 2^-9, and a gradient several times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=TOKENS)
    parser.add_argument("--window", type=int, help="of sliding attention")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    import torch

    from real_openrlhf.hooks.model import flash_attention_torch as ours

    torch.manual_seed(0)
    of = ours.Sequences.from_lengths(torch.tensor(lengths(TOKENS[args.device])).to(args.device))
    shapes = [(TOKENS[args.device], heads, WIDTH) for heads in (HEADS, KEYS, KEYS, HEADS)]
    *inputs, grad = (torch.randn(shape, device=args.device).bfloat16() for shape in shapes)
    exact = results(lambda q, k, v: ours.one_by_one(q, k, v, of, None, args.window), inputs, grad, torch.float64)
    way = ours.by_kernel if args.device == "cuda" else ours.one_by_one
    ways = {ours.NAME: lambda q, k, v: way(q, k, v, of, None, args.window)}
    if find_spec("flash_attn") and args.device == "cuda":
        ways["flash-attn"] = lambda q, k, v: flash_attn(q, k, v, of, args.window)
    print("| way | output off by | gradients off by | forward | backward |\n|---|---|---|---|---|")
    worst = 0.0
    for name, function in ways.items():
        found = results(function, inputs, grad, torch.bfloat16)
        errors = [float((one.double() - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True)]
        times = [timed(function, inputs, grad) for _ in range(args.rounds + 1)][1:]
        there, back = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        print(f"| {name} | {errors[0]:.1e} | {max(errors[1:]):.1e} | {there:.2f} ms | {back:.2f} ms |")
        if name == ours.NAME:
            worst = max(errors)
    if worst > LIMIT:
        sys.exit(f"{ours.NAME} is off by {worst:.1e} of the norm, more than {LIMIT:.1e}")


def lengths(tokens: int) -> list[int]:
    """Lognormal around a third of the longest, to the last token."""
    draw, longest, found = random.Random(0), tokens // 2, []
    while sum(found) < tokens:
        found.append(min(max(int(longest / 3 * draw.lognormvariate(0, 0.6)), 1), longest, tokens - sum(found)))
    return found


def results(function: Callable, inputs: list, grad, dtype) -> list:
    given = [one.to(dtype).requires_grad_() for one in inputs]
    import torch

    output = function(*given)
    return [output.detach(), *torch.autograd.grad(output, given, grad.to(dtype))]


def timed(function: Callable, inputs: list, grad) -> tuple[float, float]:
    import torch

    def now() -> float:
        if grad.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    given = [one.detach().requires_grad_() for one in inputs]
    begun = now()
    output = function(*given)
    between = now()
    torch.autograd.grad(output, given, grad)
    return between - begun, now() - between


def flash_attn(q, k, v, of, window: int | None):
    from flash_attn import flash_attn_varlen_func

    sides = (window - 1 if window else -1, 0)
    ends = (of.bounds, of.bounds, of.longest, of.longest)
    return flash_attn_varlen_func(q, k, v, *ends, causal=True, window_size=sides)


if __name__ == "__main__":
    main()
