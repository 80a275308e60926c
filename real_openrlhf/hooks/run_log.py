"""metrics.jsonl: one line a step with every number that was logged."""

import json
import math
import time
import zlib
from pathlib import Path


class RunLog:
    """Stands where OpenRLHF has its TensorBoard logger, for every algorithm, and hands all on to one if there is."""

    def __init__(self, args, tensorboard=None) -> None:
        self.tensorboard = tensorboard
        self.path = Path(args.train.run_dir) / "metrics.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.group_size = args.rollout.n_samples_per_prompt
        self.threshold = threshold_of(args)

    def group_stats(self, rollout_samples: list) -> dict[str, float]:
        """Shares over prompts and rollouts, from the verifier's scores before any penalty touches them."""
        scores = [math.nan if sample.scores is None else float(sample.scores[0]) for sample in rollout_samples]
        groups = [scores[i : i + self.group_size] for i in range(0, len(scores), self.group_size)]
        known = [score for score in scores if not math.isnan(score)]
        right = [[score > self.threshold for score in group] for group in groups]  # nan is not
        return {
            "rollout/pass_rate": sum(map(sum, right)) / max(len(known), 1),
            "rollout/solve_all": sum(map(all, right)) / len(groups),
            "rollout/solve_none": sum(not any(group) for group in right) / len(groups),
            "rollout/ignored": 1 - len(known) / len(scores),
            # two runs that saw the same prompts in this step have the same number here
            "rollout/prompts_crc": zlib.crc32("\n".join(sorted(s.prompts[0] for s in rollout_samples)).encode()) >> 8,
        }

    def log_train(self, step: int, values: dict) -> None:
        self._write("train", step, values)
        if self.tensorboard:
            self.tensorboard.log_train(step, values)

    def log_eval(self, step: int, values: dict) -> None:
        self._write("eval", step, values)
        if self.tensorboard:
            self.tensorboard.log_eval(step, values)

    def close(self) -> None:
        if self.tensorboard:
            self.tensorboard.close()

    def _write(self, phase: str, step: int, values: dict) -> None:
        numbers = {key: float(value) for key, value in values.items() if isinstance(value, int | float)}
        line = {"phase": phase, "step": step, "time": round(time.time(), 3), **numbers}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def threshold_of(args) -> float:
    """The score above which a rollout is right; where none is given, scores are 0 or 1."""
    threshold = args.algo.real.label_threshold
    return 0.5 if threshold is None else threshold
