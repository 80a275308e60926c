"""What a part of on_a_gpu.sh must find: a line each, `ok` or `DIFFERS`, and exit code 1 where one differs.

python benchmarks/expected.py RUN_DIR    # of a run: the part `train`
"""

import json
import sys
from pathlib import Path


class Expected:
    def __init__(self) -> None:
        self.differs = 0

    def say(self, what: str, found: float, fine: bool, wanted: str) -> None:
        print(f"{'ok     ' if fine else 'DIFFERS'} {what}: {found:.4g}, expected {wanted}")
        self.differs += not fine

    def end(self) -> None:
        if self.differs:
            sys.exit(f"{self.differs} of the numbers above differ from what is expected")


def check_run(folder: Path) -> None:
    """Random weights answer nothing right, so each group is all wrong, and is kept: every answer has a gradient."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps, expected = [line for line in lines if line["phase"] == "train"], Expected()
    for step in steps:
        number = f"step {step['step']}"
        gap = step["mismatch/mean"]
        # The learning rate is so high that weights which do not reach vLLM are a gap of nats by the second step.
        expected.say(f"{number}, gap between vLLM and the policy, nats a token", gap, 0 < gap < 0.05, "0 to 0.05")
        norm = step["actor_grad_norm"]
        expected.say(f"{number}, gradient norm", norm, 0 < norm < float("inf"), "above 0")
        ignored = step["rollout/ignored"]
        expected.say(f"{number}, answers without a verdict", ignored, ignored == 0, "0")
        drift = step["real/score_drift"]
        expected.say(f"{number}, scores between two forwards", drift, drift < 0.05, "below 0.05")
    moved = max(step["update/ratio_max"] for step in steps)
    expected.say("largest pi/pi_old of a token", moved, moved > 1.01, "above 1.01: the policy moves")
    expected.say("steps", len(steps), len(steps) == 3, "3")
    expected.end()


if __name__ == "__main__":
    if not Path(*sys.argv[1:2], "metrics.jsonl").exists():
        sys.exit("name the folder of a run: python benchmarks/expected.py RUN_DIR")
    check_run(Path(sys.argv[1]))
