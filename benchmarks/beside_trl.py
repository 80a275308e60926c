"""Seconds of a training step here and in TRL: one model, the same questions, sizes and number of updates, in turns.

SmolLM2-135M after its warm-up, on needle_haystack: 8 questions x 8 answers of at most 16 tokens per step, two updates,
no reference model, weights in bf16, learning rate 3e-5. TRL draws answers with transformers, as it does without a
GPU; here vLLM draws them. The first step of each run is left out: both compile or measure something in it.

    python -m pip install --no-deps --target trl trl==1.16.0    # beside the environment, which stays as it is
    python benchmarks/beside_trl.py --trl trl
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUESTIONS, ANSWERS, TOKENS, UPDATES, RATE = 8, 8, 16, 2, 3e-5
TRL = "TRL, GRPO"
OURS = {"here, REAL": "real", "here, DAPO": "dapo"}  # GRPO without KL is DAPO's loss but for its wider clipping


def here(algo: str, steps: int, seed: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["examples/scripts/train_real_smollm2.sh", "--algo", algo, "--seed", str(seed)]
        words += ["--max-steps", str(steps)]
        words += ["--no-eval.at_start", "--no-eval.at_end", "--eval.steps", "1000", "--ckpt.save_steps", "1000"]
        words += ["--runs-dir", folder, "--run-name", "one"]
        subprocess.run(["bash", *words], check=True, stdout=subprocess.DEVNULL)
        lines = map(json.loads, (Path(folder) / "one" / "metrics.jsonl").read_text().splitlines())
        return [line["timing/step_total"] for line in lines if line["phase"] == "train"]


def in_trl(folder: Path, steps: int, seed: int) -> list[float]:
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, "--child", str(steps), str(seed)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def child(steps: int, seed: int) -> None:
    """In a process that finds TRL: the seconds of each step, answers and updates together."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from real_openrlhf.training.tiny_task import cache_folder

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    place = cache_folder() / "smollm2"
    rows = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    data = [{"prompt": row["prompt"], "answer": json.loads(row["label"])["answer"]} for row in rows]

    def right(completions: list, answer: list, **_: object) -> list[float]:
        return [
            float(f"\\boxed{{{gold}}}" in one[0]["content"]) for one, gold in zip(completions, answer, strict=True)
        ]

    class Clock(TrainerCallback):
        at = [time.monotonic()]

        def on_step_end(self, args, state, control, **_):
            if state.global_step % UPDATES == 0:
                self.at.append(time.monotonic())

        def on_train_begin(self, args, state, control, **_):
            self.at[:] = [time.monotonic()]

    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out,
            seed=seed,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=QUESTIONS * ANSWERS // UPDATES,
            steps_per_generation=UPDATES,
            num_generations=ANSWERS,
            max_completion_length=TOKENS,
            temperature=1.0,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            beta=0.0,
            max_steps=steps * UPDATES,
            gradient_checkpointing=False,
            save_strategy="no",
            logging_steps=1000,
            report_to=[],
        )
        GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(place / "model", dtype=torch.bfloat16),
            processing_class=AutoTokenizer.from_pretrained(place / "model"),
            reward_funcs=right,
            args=config,
            train_dataset=Dataset.from_list(data),
            callbacks=[Clock()],
        ).train()
    print(json.dumps([after - before for before, after in zip(Clock.at, Clock.at[1:], strict=False)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", type=Path, default=Path("trl"), help="folder that pip filled (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=5, help="of each run (default: %(default)s)")
    parser.add_argument("--child", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    seconds: dict[str, list[float]] = {name: [] for name in (*OURS, TRL)}
    for seed in range(1, args.rounds + 1):
        for name in seconds:
            steps = in_trl(args.trl, args.steps, seed) if name == TRL else here(OURS[name], args.steps, seed)
            seconds[name] += steps[1:]
            print(f"round {seed}, {name}: {', '.join(f'{one:.1f}' for one in steps)} s", file=sys.stderr, flush=True)
    print(f"{len(os.sched_getaffinity(0))} cores, {args.rounds} rounds of {args.steps} steps, the first left out\n")
    print("| trainer | seconds per step, median | least to most | of TRL's |\n|---|---:|---:|---:|")
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    for name, found in seconds.items():
        spread = f"{min(found):.1f} to {max(found):.1f}"
        print(f"| {name} | {middle[name]:.1f} | {spread} | {middle[name] / middle[TRL]:.2f} |")


if __name__ == "__main__":
    main()
