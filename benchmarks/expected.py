"""What a part of on_a_gpu.sh must find: a line each, `ok` or `DIFFERS`, and exit code 1 where one differs.

python benchmarks/expected.py RUN_DIR            # the part `train`: random weights, every response trains
python benchmarks/expected.py RUN_DIR RUN_DIR    # the same run with vLLM's first model runner, and with its second
python benchmarks/expected.py --hundred DIR      # the part `hundred`: DIR/runs of REAL, its control and GRPO
"""

import json
import sys
from pathlib import Path
from statistics import mean

Z, EQUIVALENT = 0.05, 0.03  # benchmarks/README.md says why; written before any run on a GPU
GAPS = "sampling/logprob_diff_mean", "sampling/logprob_diff_max", "sampling/kl"


class Expected:
    def __init__(self) -> None:
        self.differs = 0

    def say(self, what: str, value: float, fine: bool, wanted: str) -> None:
        print(f"{'ok     ' if fine else 'DIFFERS'} {what}: {value:.4g}, expected {wanted}")
        self.differs += not fine

    def end(self) -> None:
        if self.differs:
            sys.exit(f"{self.differs} of the numbers above differ from what is expected")


def logged(run: Path, phase: str = "train") -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["phase"] == phase]


def check_run(run: Path, expected: Expected) -> None:
    """Random weights answer nothing right, so each group is all wrong, and is kept: every answer has a gradient."""
    steps = logged(run)
    for step in steps:
        number = f"step {step['step']}"
        gap = step["sampling/logprob_diff_mean"]
        # The learning rate is so high that weights which do not reach vLLM are a gap of nats by the second step.
        expected.say(f"{number}, gap between vLLM and the policy, nats per token", gap, 0 < gap < 0.05, "0 to 0.05")
        norm = step["actor_grad_norm"]
        expected.say(f"{number}, gradient norm", norm, 0 < norm < float("inf"), "above 0")
        ungraded = step["rollout/frac_ungraded"]
        expected.say(f"{number}, ungraded responses", ungraded, ungraded == 0, "0")
        drift = step["real/score_drift"]
        expected.say(f"{number}, scores between two forwards", drift, drift < 0.05, "below 0.05")
    moved = max(step["update/ratio_max"] for step in steps)
    expected.say("largest pi/pi_old of a token", moved, moved > 1.01, "above 1.01: the policy moves")
    expected.say("steps", len(steps), len(steps) == 3, "3")


def compare_runners(first: Path, second: Path, expected: Expected) -> None:
    """The second runner draws other answers from the same seeds; both must give the policy's log-probabilities."""
    print(f"| step | {' | '.join(f'{name}, V1 | V2' for name in GAPS)} |\n|{'---|' * (1 + 2 * len(GAPS))}")
    steps = [*zip(logged(first), logged(second), strict=True)]
    for one, two in steps:
        print(f"| {one['step']} | {' | '.join(f'{one[name]:.4g} | {two[name]:.4g}' for name in GAPS)} |")
    same = sum(one["rollout/prompts_crc"] == two["rollout/prompts_crc"] for one, two in steps)
    expected.say("steps with the same prompts", same, same == len(steps), f"{len(steps)}")
    one, two = (mean(step[runner]["sampling/logprob_diff_mean"] for step in steps) for runner in (0, 1))
    expected.say("mean gap of V2, of V1's", two / one, two <= 1.25 * one + 0.002, "1.25 at most")


def check_hundred(folder: Path, expected: Expected) -> None:
    """The predictions of benchmarks/README.md. One seed: an inequality here is no result."""
    runs = {json.loads((run / "run.json").read_text())["algo"]: run for run in sorted(folder.glob("runs/*/"))}
    steps, rates = {algo: logged(run) for algo, run in runs.items()}, {}
    for algo, run in runs.items():
        rates[algo] = mean(step["rollout/pass_rate"] for step in steps[algo][len(steps[algo]) // 2 :])
        print(f"info    {algo}: {len(steps[algo])} steps, pass rate {rates[algo]:.4f} in the second half")
        for line in logged(run, "eval"):
            scores = [f"{key} {value:.3f}" for key, value in line.items() if "pass" in key]
            print(f"info    {algo}: evaluation at step {line['step']}: {', '.join(scores)}")
    real = steps["real"]
    tau = max(step["real/weight_bound"] for step in real) / max(step["real/weight_abs_max"] for step in real)
    z = mean(step["real/score_std"] for step in real) / tau
    expected.say("z of REAL", z, z < Z, f"below {Z}")
    gap = rates["real"] - rates["real_fixed_weights"]
    expected.say(
        "pass rate of REAL less its fixed-weight control", gap, abs(gap) <= EQUIVALENT, f"{EQUIVALENT} at most"
    )


if __name__ == "__main__":
    expected = Expected()
    words = sys.argv[1:]
    folders = [Path(word) for word in words if word != "--hundred"]
    if words[:1] == ["--hundred"] and len(folders) == 1 and (folders[0] / "runs").is_dir():
        check_hundred(folders[0], expected)
    elif folders and len(folders) < 3 and all((folder / "metrics.jsonl").exists() for folder in folders):
        check_run(folders[-1], expected)
        if len(folders) == 2:
            compare_runners(folders[0], folders[1], expected)
    else:
        sys.exit("name the folder of a run: python benchmarks/expected.py RUN_DIR")
    expected.end()
