"""Invented run folders, in the formats that training writes. Numbers mean nothing."""

import json
import math
import random
from pathlib import Path

from real_openrlhf.base.parsing import json_value
from real_openrlhf.recipes.algorithms import ALGORITHMS

RATIOS = [f"ratio/{side}/{name}" for side in ("pos", "neg") for name in ("below", "low", "high", "above")]
GROUP_OBJECTIVES = [name for name, algorithm in ALGORITHMS.items() if algorithm.family]


def invent(algo: str, seed: int, steps: int, eval_steps: int = 10):
    """Rows as training writes them, with invented numbers."""
    dice = random.Random(f"{algo} {seed}")
    for step in range(steps + 1):
        learned = 0.6 - 0.2 * math.exp(-2 * step / steps)
        if step:
            reward = learned + dice.gauss(0, 0.03)
            row = {"phase": "train", "step": step, "time": 1e9 + step, "policy_loss": dice.gauss(0, 0.1)}
            row |= {
                "actor_grad_norm": 1.0,
                "actor_lr": 1e-4,
                "rollout/frac_ungraded": 0.0,
                "rollout/frac_all_wrong": 0.1,
            }
            row |= {"entropy_loss": 1.2 + dice.gauss(0, 0.02)}
            row |= {"rollout/reward_mean": reward, "rollout/pass_rate": reward, "rollout/frac_all_correct": reward**2}
            for name in RATIOS:
                share = 95.0 if "high" in name else 5 / 3
                row |= {f"{name}/share": share + dice.random() / 100, f"{name}/grad": 1.0 + dice.gauss(0, 0.01)}
            if algo in GROUP_OBJECTIVES:
                row |= {"real/weight_bound": 0.55, "real/weight_cv": 0.01 * dice.random()}
                for side, drift in (("pos", 0.001 * step), ("neg", -0.001 * step)):
                    scores = {"": drift, "_std": 0.02, "_min": drift - 0.05, "_max": drift + 0.05}
                    row |= {f"real/score_{side}{name}": value for name, value in scores.items()}
                    row |= {f"real/weight_{side}": 0.4 + dice.gauss(0, 0.01)}
            yield row
        if step % eval_steps == 0 or step == steps:
            yield {"phase": "eval", "step": step, "time": 1e9 + step, "eval_sums_pass1": learned + dice.gauss(0, 0.01)}


def write_lines(folder: Path, lines) -> Path:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_run(root: Path, algo: str = "real", seed: int = 1, steps: int = 20, flags=None, name=None, **record) -> Path:
    """A run folder as `real-openrlhf train` leaves it."""
    name = name or f"cpu-{algo}-s{seed}"
    folder = root / name
    folder.mkdir(parents=True)
    own = {flag: json_value(setting.words) for flag, setting in ALGORITHMS[algo].flags.items()}
    flags = {**own, "--train.seed": seed, "--train.run_dir": f"runs/{name}", "--actor.adam.lr": 1e-4, **(flags or {})}
    run = {"name": name, "algo": algo, "recipe": "cpu", "seed": seed, "status": "finished", "flags": flags}
    run |= {"command": ["real-openrlhf", "train", "--algo", algo], "data": {"train.jsonl": "5e"}}
    run |= {"code_version": "0.1.0", "tree": "5e" * 20}
    (folder / "run.json").write_text(json.dumps({**run, **record}))
    return write_lines(folder, invent(algo, seed, steps))


def write_evaluation(folder: Path, changed: dict | None = None, /, **scores: tuple[float, float]) -> Path:
    """pass@1 and its standard error by benchmark, as `real-openrlhf eval` leaves them."""
    settings = {"k": 16, "temperature": 0.6, "top_p": 0.95, "max_new_tokens": 8192, "grader": "robust", "seed": 42}
    benchmarks = {name: {"pass@1": mean, "standard_error": se} for name, (mean, se) in scores.items()}
    results = {"name": folder.name, "settings": settings | (changed or {}), "benchmarks": benchmarks}
    (folder / "eval").mkdir()
    (folder / "eval" / "results.json").write_text(json.dumps(results))
    return folder


# Broken files of a run: (file, content, a word of the reason that must be named)
BROKEN = {
    "no-lines": ("metrics.jsonl", "", "nothing was logged"),
    "other-log": ("metrics.jsonl", '[1]\n{"loss": 1}\n', "nothing was logged"),
    "no-numbers": ("metrics.jsonl", '{"phase": "train", "step": 1}\n', "nothing was logged"),
    "binary": ("metrics.jsonl", b"\xff\xfe\x00\x80", "nothing was logged"),
    "half-json": ("run.json", '{"algo": "re', "run.json is broken"),
    "not-ours": ("run.json", '{"project": "other"}', "no key `algo`"),
    "half-eval": ("eval/results.json", '{"settings": {"k": 1', "results.json is broken"),
}


def break_folders(root: Path) -> dict[str, str]:
    """Every way in which a folder is no run, and a word of the reason that must be named."""
    for name, (file, content, _) in BROKEN.items():
        folder = write_run(root, name=name)
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (write_run(root, name="never-logged") / "metrics.jsonl").unlink()
    (root / "foreign").mkdir()
    (root / "foreign" / "config.json").write_text("{}")
    (root / "empty").mkdir()
    write_run(root, steps=5, flags={"--train.max_steps": 20}, name="half-copied")
    none = {
        "half-copied": "lacks its last steps",
        "never-logged": "no step is logged",
        "foreign": "not a run",
        "empty": "not a run",
    }
    return {name: reason for name, (_, _, reason) in BROKEN.items()} | none
