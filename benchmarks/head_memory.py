"""What log-probabilities and entropies cost with a table of logits and without: peak memory and time, there and back.

Each way runs in a process of its own, once to warm up and then measured: a forward that gives the log-probability and
the entropy of every token, and a backward through the log-probabilities. The entropy is only logged.

    plain    OpenRLHF's own: the head's logits, their fp32 copy, its functions for entropy and log-probabilities
    ours     real_openrlhf.token_log_probs
    small    the same in blocks of 2**24 logits, which suit a CPU; on a GPU its own are four times larger
    torch    torch.nn.functional.linear_cross_entropy, which has no entropy
    liger    Liger-Kernel's LigerFusedLinearScaledCrossEntropyFunction, where it is installed

    python benchmarks/head_memory.py
    python benchmarks/head_memory.py --tokens 9216 --width 3584 --device cuda
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from expected import Expected

WAYS = ("plain", "ours", "small", "torch", "liger")
TEMPERATURE = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=152_064)
    parser.add_argument(
        "--width", type=int, default=64, help="of hidden states (default %(default)s; Qwen2.5-7B: 3584)"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="measured; the median time counts (default %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print("\n" + json.dumps(measure(args)))
        return
    found = {}
    for way in args.ways:
        if way == "liger" and not importlib.util.find_spec("liger_kernel"):
            print("liger-kernel is not installed", file=sys.stderr)
            continue
        run = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--way", way], capture_output=True, text=True)
        if run.returncode:
            reason = f"{way}: exit code {run.returncode}\n{run.stderr[-3000:]}"
            if way in ("plain", "ours"):
                raise SystemExit(reason)
            print(reason, file=sys.stderr)  # another library's fault does not cost the table
            continue
        found[way] = json.loads(run.stdout.splitlines()[-1])
    print_table(args, found)
    if {"plain", "ours"} <= found.keys() and args.tokens >= 4096:  # fewer are a block or two
        plain, ours = found["plain"], found["ours"]
        expected = Expected()
        share = ours["peak"] / plain["peak"]
        expected.say("memory of ours, of plain", share, share < 0.35, "below 0.35: 2^26 logits of 2^29.2 at once")
        share = (ours["forward"] + ours["backward"]) / (plain["forward"] + plain["backward"])
        expected.say("time of ours, of plain", share, share < 1.5, "below 1.5: its products are made twice")
        expected.end()


def measure(args) -> dict[str, float]:
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    dtype, device = getattr(torch, args.dtype), args.device
    hidden = torch.randn(args.tokens, args.width, dtype=dtype, device=device).requires_grad_()
    weight = (
        torch.randn(args.vocabulary, args.width, dtype=dtype, device=device).div_(args.width**0.5).requires_grad_()
    )
    labels = torch.randint(0, args.vocabulary, (args.tokens,), device=device)
    gradient = torch.randn(args.tokens, device=device)
    log_probs = way_of(args.way)
    peaks, forwards, backwards = [], [], []
    for _ in range(1 + args.rounds):
        hidden.grad, weight.grad = torch.zeros_like(hidden), torch.zeros_like(weight)
        before = memory(device, start=True)
        start = now(device)
        result = log_probs(hidden, weight, labels)
        middle = now(device)
        result.backward(gradient)
        forwards.append(middle - start)
        backwards.append(now(device) - middle)
        peaks.append(memory(device) - before)
    return {"peak": max(peaks[1:]), "forward": median(forwards[1:]), "backward": median(backwards[1:])}


def way_of(name: str):
    """hidden, weight, labels -> log-probabilities; the entropy is made too."""
    import torch
    import torch.nn.functional as F

    if name == "plain":
        from openrlhf.models.utils import compute_entropy, log_probs_from_logits

        def plain(hidden, weight, labels):
            logits = F.linear(hidden, weight).to(torch.float32)
            logits.div_(TEMPERATURE)
            plain.entropy = compute_entropy(logits)
            return log_probs_from_logits(logits, labels)

        return plain
    if name in ("ours", "small"):
        from real_openrlhf import token_log_probs

        def ours(hidden, weight, labels):
            chunk = max(2**24 // len(weight), 1) if name == "small" else None
            log_probs, ours.entropy = token_log_probs(
                hidden, weight, labels, temperature=TEMPERATURE, entropy=True, chunk_tokens=chunk
            )
            return log_probs

        return ours
    if name == "torch":
        options = torch.nn.LinearCrossEntropyOptions()
        return lambda hidden, weight, labels: (
            -F.linear_cross_entropy(hidden / TEMPERATURE, weight, labels, reduction="none", options=options)
        )
    from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction as Liger

    def liger(hidden, weight, labels):
        loss, liger.entropy = Liger.apply(hidden, weight, labels, TEMPERATURE, -100, 1, True)
        return -loss

    return liger


def now(device: str) -> float:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def memory(device: str, start: bool = False) -> float:
    """MB: what is held if `start`, which begins a new peak, else the peak."""
    if device == "cuda":
        import torch

        if start:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated() / 1e6
    if start:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e6


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def print_table(args, found: dict[str, dict[str, float]]) -> None:
    print(f"{args.tokens} tokens x {args.vocabulary} words, width {args.width}, {args.dtype}, {args.device}")
    print("| way | peak extra memory, MB | forward, s | backward, s | memory, of plain | time, of plain |")
    print("|---|---:|---:|---:|---:|---:|")
    for way, one in found.items():
        ratios = "| | |"
        if "plain" in found:
            plain = found["plain"]
            time_of_plain = (one["forward"] + one["backward"]) / (plain["forward"] + plain["backward"])
            ratios = f"| {one['peak'] / plain['peak']:.3f} | {time_of_plain:.2f} |"
        print(f"| {way} | {one['peak']:,.0f} | {one['forward']:.3f} | {one['backward']:.3f} {ratios}")


if __name__ == "__main__":
    main()
