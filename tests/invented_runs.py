"""Invented run folders and TensorBoard logs, in the formats that training writes. Numbers mean nothing."""

import json
import math
import random
import tempfile
from pathlib import Path

from real_openrlhf.comparison.publish import publish
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.report.methods import METHODS
from real_openrlhf.runs.run_folder import json_value

RATIOS = [f"ratio/{side}/{name}" for side in ("pos", "neg") for name in ("below", "low", "high", "above")]
GROUP_OBJECTIVES = [name for name, algorithm in ALGORITHMS.items() if algorithm.family]


def invent(algo: str, seed: int, steps: int, eval_steps: int = 10):
    """Rows as training writes them, with invented numbers."""
    dice = random.Random(f"{algo} {seed}")
    skill = 0.08 * (sorted(METHODS).index(algo) if algo in METHODS else 0)
    for step in range(steps + 1):
        learned = 0.4 + (0.2 + 0.3 * skill) * (1 - math.exp(-2 * step / steps))
        if step:
            reward = learned + dice.gauss(0, 0.03)
            row = {"phase": "train", "step": step, "time": 1e9 + step, "policy_loss": dice.gauss(0, 0.1)}
            row |= {
                "actor_grad_norm": 1.0,
                "actor_lr": 1e-4,
                "entropy_loss": 1.2 - skill * step / steps + dice.gauss(0, 0.02),
            }
            row |= {"rollout/reward_mean": reward, "rollout/pass_rate": reward, "rollout/solve_none": 0.1}
            row |= {"rollout/solve_all": reward**2, "rollout/ignored": 0.0, "rollout/response_length_mean": 7.5}
            for name in RATIOS:
                share = 95.0 if "high" in name else 5 / 3
                row |= {f"{name}/share": share + dice.random() / 100, f"{name}/grad": 1.0 + dice.gauss(0, 0.01)}
            if algo in GROUP_OBJECTIVES:
                drift = 0.001 * step
                row |= {"real/loss": 1.0, "real/score_pos": drift, "real/score_neg": -drift, "real/score_std": 0.02}
                for side, sign in (("pos", 1), ("neg", -1)):
                    row |= {f"real/score_{side}_std": 0.02, f"real/score_{side}_min": sign * drift - 0.05}
                    row |= {
                        f"real/score_{side}_max": sign * drift + 0.05,
                        f"real/weight_{side}": 0.4 + dice.gauss(0, 0.01),
                    }
                row |= {"real/weight_abs_max": 1.1, "real/weight_bound": 0.55, "real/weight_cv": 0.01 * dice.random()}
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
    own = {flag: json_value(setting.words) for flag, setting in ALGORITHMS[algo].settings.items()}
    flags = {**own, "--train.seed": seed, "--train.run_dir": f"runs/{name}", "--actor.adam.lr": 1e-4, **(flags or {})}
    run = {"name": name, "algo": algo, "recipe": "cpu", "seed": seed, "status": "finished", "flags": flags}
    run |= {
        "command": ["real-openrlhf", "train", "--algo", algo],
        "code_version": "0.1.0",
        "tree": "5e" * 20,
        "data": {"train.jsonl": "5e"},
    }
    (folder / "run.json").write_text(json.dumps({**run, **record}))
    return write_lines(folder, invent(algo, seed, steps))


def write_events(folder: Path, algo: str, seed: int, steps: int = 20) -> Path:
    """What stock OpenRLHF's TensorBoard logger writes; it knows none of our own metrics."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for row in invent(algo, seed, steps):
        for key, number in row.items():
            if key not in ("phase", "step", "time") and not key.startswith(
                ("real/", "ratio/", "rollout/solve", "rollout/pass")
            ):
                value = Summary.Value(tag=f"{row['phase']}/{key}", simple_value=number)
                writer.add_event(Event(step=row["step"], wall_time=row["time"], summary=Summary(value=[value])))
    writer.close()
    return folder


def write_evaluation(folder: Path, changed: dict | None = None, /, **scores: tuple[float, float]) -> Path:
    """pass@1 and its standard error by benchmark, as `real-openrlhf eval` leaves them."""
    settings = {
        "k": 16,
        "temperature": 0.6,
        "top_p": 0.95,
        "max_new_tokens": 8192,
        "grader": "robust",
        **(changed or {}),
    }
    results = {
        "settings": settings,
        "benchmarks": {name: {"pass@1": mean, "standard_error": se} for name, (mean, se) in scores.items()},
    }
    (folder / "eval").mkdir()
    (folder / "eval" / "results.json").write_text(json.dumps(results))
    return folder


def write_campaign(folder: Path, *seeds: int) -> Path:
    """Runs of REAL as `compare --publish` leaves them."""
    with tempfile.TemporaryDirectory() as place:
        publish([write_run(Path(place), "real", seed) for seed in seeds], folder)
    return folder


def break_folders(root: Path) -> dict[str, str]:
    """Every way in which a folder is no run, and a word of the reason that must be named."""
    whole = write_run(root, "real", 9, name="cut")
    text = (whole / "metrics.jsonl").read_text()
    (whole / "metrics.jsonl").write_text(text[: -len(text.splitlines()[-1]) // 2])
    (root / "empty").mkdir()
    (root / "foreign").mkdir()
    (root / "foreign" / "config.json").write_text("{}")
    for name, content in {
        "no-lines": "",
        "list": "[1]\n",
        "other-log": '{"loss": 1}\n',
        "no-numbers": '{"phase": "train", "step": 1}\n',
    }.items():
        (write_run(root, "real", 9, name=name) / "metrics.jsonl").write_text(content)
    broken = write_run(root, "real", 9, name="garbled") / "metrics.jsonl"
    broken.write_text("garbage\n" + broken.read_text())
    (write_run(root, "real", 9, name="binary") / "metrics.jsonl").write_bytes(b"\xff\xfe\x00\x80")
    (write_run(root, "real", 9, name="half-json") / "run.json").write_text('{"algo": "re')
    (write_run(root, "real", 9, name="not-ours") / "run.json").write_text('{"project": "other"}')
    (write_run(root, "real", 9, name="never-logged") / "metrics.jsonl").unlink()
    half = write_evaluation(write_run(root, "real", 9, name="half-eval"), aime24=(0.5, 0.1)) / "eval" / "results.json"
    half.write_text(half.read_text()[:20])
    events = root / "bad-events"
    events.mkdir()
    (events / "events.out.tfevents.1.host").write_bytes(b"no events at all, but bytes enough for a header")
    for name, file, content in (
        ("other-campaign", "campaign.json", '{"format": 9}'),
        ("short-rows", "runs.csv", "name,algo\nreal-s1\n"),
        ("no-parquet", "metrics.parquet", "PAR1, or so it says PAR1"),
        ("torn-csv", "runs.csv", "name,algo\nreal-s9,re\ral\n"),
        ("no-columns", "runs.csv", "algo\nreal\n"),
    ):
        write_campaign(root / name, 9)
        (root / name / file).write_text(content)
    return {
        "other-campaign": "not of format 1",
        "short-rows": "runs.csv has a row",
        "no-parquet": "metrics.parquet is broken",
        "no-columns": "has no name",
        "torn-csv": "runs.csv is broken",
        "cut": "line 23 is cut off",
        "empty": "empty folder",
        "foreign": "not a run",
        "no-lines": "empty",
        "list": "no phase",
        "other-log": "no phase",
        "no-numbers": "nothing was logged",
        "garbled": "line 1 is not JSON",
        "binary": "cannot be read",
        "half-json": "run.json is broken",
        "not-ours": "names no algo",
        "never-logged": "logged nothing",
        "half-eval": "results.json is broken",
        "bad-events": "not an OpenRLHF log",
    }


# Runs of a map: (algorithm, rate, batch) -> validation of each seed from the first step on
MAP = {
    ("real", 1e-4, 64): [[0.1, 0.5, 0.8], [0.1, 0.5, 0.9]],
    ("real", 1e-3, 64): [[0.1, 0.4, 0.1], [0.1, 0.4, 0.3]],  # one collapsed: 0.1 is below half of 0.4
    ("real", 1e-3, 16): [[0.2, 0.0, 0.0]],
    ("grpo", 1e-4, 64): [[0.1, 0.6, 0.7]],
    ("grpo", 1e-4, 256): [[0.1, 0.2, 0.3]],
}


def map_runs(root: Path) -> Path:
    for (algo, rate, batch), curves in MAP.items():
        for seed, curve in enumerate(curves, 1):
            map_run(root, algo, rate, batch, seed, curve)
    map_run(root, "grpo", 1e-4, 256, 2, [0.9, 0.9], status="failed")
    return root


def map_run(root: Path, algo: str, rate: float, batch: int, seed: int, curve: list[float], **record) -> Path:
    flags = {"--actor.adam.lr": rate, "--train.batch_size": batch}
    folder = write_run(root, algo, seed, 2, flags, f"{algo}-{rate}-{batch}-s{seed}", **record)
    lines = [{"phase": "eval", "step": 10 * n, "time": 1, "eval_x_pass1": value} for n, value in enumerate(curve)]
    share = {"update/clipped_share": 0.25 * seed, "entropy_loss": 0.5, "real/weight_cv": 0.1}
    lines += [{"phase": "train", "step": n, "time": 1, **share, "entropy_loss": 0.5 / n} for n in (1, 2)]
    return write_lines(folder, lines)
