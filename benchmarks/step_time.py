"""How long a step takes with REAL, beside GRPO with and without its reference model, on the CPU stack.

Runs alternate (A B C A B C ...), each on the whole stack through `real-openrlhf train`; the first steps of a run are
left out. Prints the median seconds of a step and its ratios to the two baselines, with the quartiles of the run medians.

    python benchmarks/step_time.py --rounds 3 --steps 14 --updates 4
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WARM_UP = 3
GRPO, GRPO_NO_KL = "grpo", "grpo without KL"
NO_KL = ["--algo", "grpo", "--algo.kl.init_coef", "0", "--no-algo.kl.use_loss"]
VARIANTS = {
    GRPO: ["--algo", "grpo"],
    GRPO_NO_KL: NO_KL,
    "real, separate": ["--algo", "real", "--algo.real.scoring", "separate"],
    "real, deferred": ["--algo", "real", "--algo.real.scoring", "deferred"],
    "real, micro_batch": ["--algo", "real", "--algo.real.scoring", "micro_batch"],
}


def step_times(variant: str, args, runs: Path, name: str) -> dict[str, list[float]]:
    flags = [
        "--recipe", "cpu", "--runs-dir", str(runs), "--run-name", name, "--max-steps", str(args.steps),
        "--no-eval.at_start", "--no-eval.at_end", "--eval.steps", "1000", "--ckpt.save_steps", "-1",
        "--train.batch_size", str(256 // args.updates), *VARIANTS[variant], *args.flags,
    ]  # fmt: skip
    subprocess.run([sys.executable, "-m", "real_openrlhf.cli", "train", *flags], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (runs / name / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["phase"] == "train"][WARM_UP:]
    return {key: [step[f"timing/{key}"] for step in steps] for key in ("step_total", "ppo_train", "make_experience")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--updates", type=int, default=4, help="optimizer steps per rollout of 256 samples")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args, args.flags = parser.parse_known_args()
    times: dict[str, dict[str, list[list[float]]]] = {variant: {} for variant in args.variants}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(args.rounds):
            for number, variant in enumerate(args.variants):
                measured = step_times(variant, args, Path(folder), f"{round_}-{number}")
                for key, values in measured.items():
                    times[variant].setdefault(key, []).append(values)
                print(f"round {round_ + 1}, {variant}: {statistics.median(measured['step_total']):.3f} s", flush=True)

    print(
        f"\n{args.updates} updates per rollout, {args.rounds} rounds of {args.steps - WARM_UP} steps; seconds, medians"
    )
    print(f"{'':20} {'step':>8} {'training':>9} {'log-probs':>10}   ratio to {GRPO}   ratio to {GRPO_NO_KL}")
    medians = {
        variant: {key: statistics.median(sum(rounds, [])) for key, rounds in keys.items()}
        for variant, keys in times.items()
    }
    for variant, row in medians.items():
        ratios = [
            f"{row['step_total'] / medians[base]['step_total']:.3f}" if base in medians else "-"
            for base in (GRPO, GRPO_NO_KL)
        ]
        print(
            f"{variant:20} {row['step_total']:8.3f} {row['ppo_train']:9.3f} {row['make_experience']:10.3f}   "
            f"{ratios[0]:>13}   {ratios[1]:>21}"
        )


if __name__ == "__main__":
    main()
