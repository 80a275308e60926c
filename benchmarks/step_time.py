"""How long a step takes with REAL, beside GRPO with and without its reference model, on the CPU stack.

All runs share one Ray and one vLLM engine and alternate (A B C ... A B C ...). The learning rate is next to nothing
and the rollouts are seeded, so that every variant samples, scores and trains on the same responses; a step is compared
with the same step of the baseline in the same round. The first steps of a run are left out.

    python benchmarks/step_time.py --rounds 3 --steps 20 --updates 4
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
from pathlib import Path

from real_openrlhf.comparison.command import environment_of
from real_openrlhf.training import command as train_command
from real_openrlhf.training import shared_ray

WARM_UP = 3
SAMPLES = 256
GRPO, GRPO_NO_KL = "grpo", "grpo without KL"
VARIANTS = {
    GRPO: ["--algo", "grpo"],
    GRPO_NO_KL: ["--algo", "grpo", "--algo.kl.init_coef", "0", "--no-algo.kl.use_loss"],
    "real, separate": ["--algo", "real", "--algo.real.scoring", "separate"],
    "real, deferred": ["--algo", "real", "--algo.real.scoring", "deferred"],
    "real, micro_batch": ["--algo", "real", "--algo.real.scoring", "micro_batch"],
}
PARTS = ("step_total", "generation", "make_experience", "ppo_train", "broadcast")
COMMON = [
    *("--recipe", "cpu", "--actor.adam.lr", "1e-9", "--ckpt.save_steps", "-1"),
    *("--no-eval.at_start", "--no-eval.at_end", "--eval.steps", "1000"),
]


def step_times(variant: str, args, session: Path, runs: Path, name: str) -> list[dict[str, float]]:
    """Seconds of every step after the first ones, by part."""
    flags = ["--runs-dir", str(runs), "--run-name", name, "--max-steps", str(args.steps)]
    flags += ["--train.batch_size", str(SAMPLES // args.updates), *VARIANTS[variant], *args.flags]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = train_command.run(train_command.parse([*COMMON, *flags]), session)
    if code:
        raise SystemExit(f"{variant} failed: {(runs / name / 'train.log').read_text()[-3000:]}")
    lines = [json.loads(line) for line in (runs / name / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["phase"] == "train"][WARM_UP:]
    return [{part: step[f"timing/{part}"] for part in PARTS} for step in steps]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--updates", type=int, default=4, help=f"optimizer steps per rollout of {SAMPLES} samples")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args, args.flags = parser.parse_known_args()
    times: dict[str, list[dict[str, float]]] = {variant: [] for variant in args.variants}
    with tempfile.TemporaryDirectory() as folder:
        session, log = Path(folder) / "session", Path(folder) / "session.log"
        with shared_ray.opened(session, environment_of(COMMON), log):
            for round_ in range(args.rounds):
                for number, variant in enumerate(args.variants):
                    steps = step_times(variant, args, session, Path(folder) / "runs", f"{round_}-{number}")
                    times[variant] += steps
                    seconds = statistics.median(step["step_total"] for step in steps)
                    print(f"round {round_ + 1}, {variant}: {seconds:.3f} s", flush=True)
    show(times, args)


def show(times: dict[str, list[dict[str, float]]], args) -> None:
    print(f"\n{args.updates} updates per rollout, {args.rounds} rounds of {args.steps - WARM_UP} steps")
    bases = [base for base in (GRPO, GRPO_NO_KL) if base in times]
    print("median seconds of a step and its parts; ratio of the sums, [quartiles of the ratios of single steps]")
    print(f"{'':18}" + "".join(f"{part:>16}" for part in PARTS) + "".join(f"   to {base:26}" for base in bases))
    for variant, steps in times.items():
        row = [statistics.median(step[part] for step in steps) for part in PARTS]
        ratios = [ratio(steps, times[base]) for base in bases]
        print(
            f"{variant:18}" + "".join(f"{value:16.3f}" for value in row) + "".join(f"   {text:29}" for text in ratios)
        )


def ratio(steps: list[dict[str, float]], base: list[dict[str, float]]) -> str:
    ours, theirs = ([step["step_total"] for step in run] for run in (steps, base))
    low, middle, high = statistics.quantiles((a / b for a, b in zip(ours, theirs, strict=True)), n=4)
    return f"{sum(ours) / sum(theirs):.3f} [{low:.3f} {middle:.3f} {high:.3f}]"


if __name__ == "__main__":
    main()
