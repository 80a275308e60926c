"""metrics.jsonl: one line per step with every number that was logged. rollouts.jsonl: some groups of each step."""

import json
import math
import os
import time
import zlib
from itertools import takewhile
from pathlib import Path

from real_openrlhf.algorithm.groups import POSITIVE
from real_openrlhf.base.files import parsed
from real_openrlhf.base.run_files import METRICS, NOTES, PHASES, ROLLOUTS
from real_openrlhf.hooks.controller.groups import groups_of
from real_openrlhf.hooks.controller.labels import verdict_of

GROWTH = 2.0  # GB of memory/other_gb since the second step: the run's owner is told
FLAT = 3  # steps in which no response has a weight: the run's owner is told


class RunLog:
    """Takes the place of OpenRLHF's TensorBoard logger, for every algorithm, and forwards calls to it if it exists."""

    def __init__(self, args, tensorboard=None) -> None:
        self.tensorboard = tensorboard
        self.path = Path(args.train.run_dir) / METRICS
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.args = args
        self.groups: list[dict] = []  # of the same step, for rollouts.jsonl
        self.flat: list[tuple[int, int, int]] = []  # correct, graded and all responses of the last flat steps
        self.counts = (0, 0, 0)  # of the last step
        self.told = False
        self.other: list[float] = []  # memory/other_gb of each step
        self.step = 0

    def group_stats(self, rollout_samples: list) -> dict[str, float]:
        """Shares over prompts and rollouts, by the labels of `labels.py`."""
        right = [sample.label == POSITIVE for sample in rollout_samples]
        groups = [[sample.label == POSITIVE for sample in own] for own in groups_of(rollout_samples, self.args)]
        graded = sum(not math.isnan(verdict_of(sample)) for sample in rollout_samples)
        self.counts = (sum(right), graded, len(right))
        return {
            **entropy(rollout_samples),
            **by_correctness(rollout_samples),
            "rollout/pass_rate": sum(right) / max(graded, 1),
            "rollout/frac_all_correct": sum(map(all, groups)) / len(groups),
            "rollout/frac_all_wrong": sum(not any(group) for group in groups) / len(groups),
            "rollout/frac_ungraded": 1 - graded / len(right),
            # two runs that saw the same prompts in this step have the same number here
            "rollout/prompts_crc": zlib.crc32("\n".join(sorted(s.prompts[0] for s in rollout_samples)).encode()) >> 8,
        }

    def nothing_to_learn(self) -> str:
        """What the last steps lacked, if they are many enough, and where to look."""
        if len(self.flat) < FLAT:
            return ""
        correct, graded, every = map(sum, zip(*self.flat, strict=True))
        what = "no prompt had correct and incorrect responses"
        if not graded:
            what = f"none of {every} responses was graded"
        elif correct in (0, graded):
            what = f"{'all' if correct else 'none'} of {graded} responses {'were' if correct else 'was'} correct"
        where = f"`real-openrlhf show {self.path.parent}`: prompts, template, reward, label column"
        return f"in the last {len(self.flat)} steps {what}: there is nothing to learn from. Look at {where}"

    def grown(self, values: dict) -> str:
        """Once: that GPU memory outside the policy's allocator has grown since the second step."""
        now, first = values.get("memory/other_gb", 0.0), self.other[1] if len(self.other) > 1 else math.inf
        grown = now - first > GROWTH >= max(self.other[1:], default=0.0) - first
        self.other.append(now)
        return grown * (
            f"memory/other_gb has grown from {first:.1f} to {now:.1f} GB: vLLM keeps memory while it sleeps, or "
            "another program uses the GPU. If memory runs out, --resume starts a new engine from the last checkpoint"
        )

    def log_train(self, step: int, values: dict) -> None:
        self._keep(step)
        self._write("train", step, values)
        self.step = step
        self.flat = [] if values.get("update/frac_nonzero_weight", 1.0) else [*self.flat, self.counts]
        if not self.told and (say := self.nothing_to_learn()):
            self.told = True
            self._append(NOTES, json.dumps({"step": step, "say": say}).encode() + b"\n")
        if say := self.grown(values):
            self._append(NOTES, json.dumps({"step": step, "say": say}).encode() + b"\n")
        if self.tensorboard:
            self.tensorboard.log_train(step, values)

    def log_eval(self, step: int, values: dict) -> None:
        self._write("eval", step, values)
        if self.tensorboard:
            self.tensorboard.log_eval(step, values)

    def resume(self, states: dict, evaluates: bool) -> None:
        """Move lines of steps that will be repeated to metrics.discarded.jsonl, and note it in notes.jsonl."""
        step = states["global_step"]
        rollouts = self.path.with_name(ROLLOUTS)
        whole, again = _parts(self.path, step, evaluates)
        if again:
            self._append("metrics.discarded.jsonl", again if again.endswith(b"\n") else again + b"\n")
            os.truncate(self.path, len(whole))
        if rollouts.exists():
            os.truncate(rollouts, len(_parts(rollouts, step, evaluates)[0]))
        if whole or again or "checkpoint" in states:
            says = [f"a checkpoint is not whole and not used: {damage}" for damage in states.get("damaged", ())]
            says.append(f"goes on after step {step}, from {states.get('checkpoint') or 'the beginning'}")
            for say in says:
                self._append(NOTES, json.dumps({"step": step, "say": say}).encode() + b"\n")

    def close(self) -> None:
        if last := self.nothing_to_learn():  # for the closing lines
            self._append(NOTES, json.dumps({"step": self.step, "last": last}).encode() + b"\n")
        if self.tensorboard:
            self.tensorboard.close()

    def _keep(self, step: int) -> None:
        """Append a step's groups. JSON's escapes keep their text from acting on a terminal."""
        about = {"phase": "train", "step": step}
        if self.groups:
            self._append(ROLLOUTS, b"".join(json.dumps(about | group).encode() + b"\n" for group in self.groups))

    def _write(self, phase: str, step: int, values: dict) -> None:
        numbers = {key: float(value) for key, value in values.items() if isinstance(value, int | float)}
        about = {"phase": phase, "step": step, "time": round(time.time(), 3)}
        line = {**about, **numbers, **about}  # last: no logged name may replace `about`
        self._append(self.path.name, json.dumps(line).encode() + b"\n")

    def _append(self, name: str, text: bytes) -> None:
        """Append the text and sync it to disk, so that it is there before the next checkpoint."""
        with self.path.with_name(name).open("ab") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def _parts(path: Path, step: int, evaluates: bool) -> tuple[bytes, bytes]:
    """(lines to keep, the rest): the rest starts at the first line that is torn or to be written again."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    stay = list(takewhile(lambda line: step and _stays(line, step, evaluates), lines))
    return b"".join(stay), b"".join(lines[len(stay) :])


def _stays(line: bytes, step: int, evaluates: bool) -> bool:
    try:
        row = parsed(line if line.endswith(b"\n") else b"")
        again = evaluates and row["phase"] == "eval" and row["step"] == step
        return row["phase"] in PHASES and row["step"] <= step and not again
    except (ValueError, KeyError, TypeError):  # not a line that this log wrote
        return False


def entropy(rollout_samples: list) -> dict[str, float]:
    """The sampler's entropy, estimated as the mean of -log pi over all tokens that it drew."""
    drawn = [(sample.rollout_log_probs, sample.action_mask.bool()) for sample in rollout_samples]
    tokens = sum(int(mask.sum()) for _, mask in drawn)
    if not tokens or any(log_probs is None for log_probs, _ in drawn):
        return {}
    return {"rollout/entropy": -sum(float(log_probs[mask].double().sum()) for log_probs, mask in drawn) / tokens}


def by_correctness(samples: list) -> dict[str, float]:
    """Mean length and share of truncated responses, of correct and of incorrect ones; nothing for none."""
    stats = {}
    right = [sample for sample in samples if sample.label == POSITIVE]
    wrong = [sample for sample in samples if sample.label != POSITIVE and not math.isnan(verdict_of(sample))]
    for own, length, cut in (
        (right, "rollout/response_length_correct", "rollout/frac_truncated_correct"),
        (wrong, "rollout/response_length_incorrect", "rollout/frac_truncated_incorrect"),
    ):
        if own:
            stats[length] = sum(int(sample.action_mask.sum()) for sample in own) / len(own)
            stats[cut] = sum(bool(sample.truncated[0]) for sample in own) / len(own)
    return stats
