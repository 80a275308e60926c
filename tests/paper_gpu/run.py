"""Everything on paper cards, as a table: `python tests/paper_gpu/run.py [PART...]`, of an environment for GPUs.

Parts: engine, kernels, ranks, memory, doctor, faults, train.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from watch import watched

from real_openrlhf.training import tiny_task

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RTX_4090 = {"PAPER_GB": "25.25", "PAPER_NAME": "NVIDIA GeForce RTX 4090", "PAPER_CC": "8.9"}
CARDS = {"9.0": "NVIDIA H100 80GB HBM3", "10.0": "NVIDIA B200", "12.0": "NVIDIA RTX PRO 6000"}
SMALL = (
    *"--rollout.batch_size 8 --train.batch_size 32 --rollout.max_new_tokens 14 --data.max_len 32".split(),
    *"--train.max_tokens_per_gpu 256 --rollout.max_tokens_per_gpu 512 --vllm.enforce_eager --max-steps 3".split(),
    *"--no-eval.at_start --no-eval.at_end --ckpt.save_steps 2 --actor.adam.lr 1e-3 --rollout.temperature 1.0".split(),
)
NO_DISK = ("--ckpt.save_steps", "-1", "--no-ds.enable_sleep", "--no-vllm.enable_sleep")  # nor host memory
V2 = {"TRITON_INTERPRET": "1"}  # its Triton kernels are interpreted


@dataclass
class Row:
    part: str
    what: str
    words: tuple[str, ...]
    said: str  # a pattern that the output must have
    variables: dict[str, str]
    fails: bool = False
    gb: float = 9.0  # of this machine's memory, at most
    seconds: float = 900


def here(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-W", "ignore", str(HERE / f"{name}.py"), *words)


def rows(folder: Path) -> list[Row]:
    one, eight = {"PAPER_GPUS": "1"}, {"PAPER_GPUS": "8"}
    shape, task = folder / "shape", tiny_task.unpack()
    data = ("--data", str(task / "train.jsonl"), "--eval.dataset", str(task / "eval.jsonl"))
    small = ("--model", str(task / "model"), *data, *SMALL, "--runs-dir", str(folder / "runs"))
    script = "examples/scripts/train_real_gpu.sh"
    large = {"PAPER_LIMIT": "300000", "PAPER_SKIP": "2000000"}
    return [
        *[
            Row("kernels", f"the head's kernels for {cc}", here("compiles"), r"\d+ cubins .*", {"PAPER_CC": cc} | one)
            for cc in ("8.0", "9.0", "10.0", "12.0")
        ],
        Row("ranks", "2 ranks of ZeRO-3 and ZeRO-2 train as one", here("ranks", "2:3", "2:2"), r"2 ranks of.*", eight),
        Row("ranks", "8 ranks of ZeRO-3 and ZeRO-2", here("ranks", "8:3", "8:2"), r"8 ranks of.*", eight),
        Row("doctor", "real-openrlhf doctor", ("real-openrlhf", "doctor"), r"0 failed.*", eight),
        Row("faults", "a kernel that does not compile for 12.0", here("compiles", "for_hopper"),
            r".*'wgmma.fence' not supported.*", {"PAPER_CC": "12.0"} | one, fails=True),
        Row("faults", "a collective in another order on one rank", here("ranks", "2:3", "other_order"),
            r"paper NCCL: collective.*", eight, fails=True),
        Row("faults", "a tensor left on the host", here("ranks", "2:2", "on_the_host"),
            r".*Expected all tensors to be on the same device.*", eight, fails=True),
        Row("faults", "(a folder of the 1.5B model's shape)", here("step_memory", "shape", str(shape)), "", one),
        Row("faults", "a card's memory too small for the recipe: a dry run",
            ("bash", script, "qwen1.5b-1gpu", "--model", str(shape), *data, *NO_DISK, "--dry-run"),
            r"note: memory per GPU: .*It may not fit", RTX_4090 | one),
        Row("faults", "the same: a step, 2 of 28 layers", here("step_memory", "lora-24gb", "2"),
            r".*CUDA out of memory.*", large | RTX_4090 | one | {"PAPER_CAP_GB": "3", "LAYERS": "2"}, fails=True),
        Row("faults", "weights handed over before vLLM is awake", here("engine", "eager", "asleep"),
            r".*illegal memory access.*", V2 | one, fails=True),
        Row("faults", "two runs on one card", here("two_runs"), r".*1 free GPU of 1; in use: 0.*", one, fails=True),
        Row("faults", "two runs on eight cards", here("two_runs"), r"takes GPU 1 of 8; 0 is in use.*", eight),
        *[
            Row("engine", f"each recipe's on {name}", here("engines"), r"\d+ libraries, .*",
                {"PAPER_CC": cc, "PAPER_NAME": name, "RAY_ADDRESS": "none"} | eight)
            for cc, name in CARDS.items()
        ],
        Row("engine", "vLLM, eager: draws, sleeps, wakes, gets weights by CUDA IPC", here("engine", "eager"),
            r"GB before.*", V2 | one),
        Row("engine", "the same with CUDA graphs", here("engine", "graphs"), r"GB before.*", V2 | one),
        *[
            Row("memory", f"two steps of {recipe}", here("step_memory", recipe, prompts), r"step 2.*", large | cards)
            for recipe, prompts, cards in (
                ("qwen1.5b-1gpu", "4", one),
                ("lora-24gb", "2", one | RTX_4090),
                ("qwen7b-lora", "4", one),
                ("qwen1.5b", "16", eight),  # one rank alone
                ("qwen7b", "16", eight),
            )
        ],
        Row("train", "train_real_gpu.sh qwen1.5b-1gpu, 3 steps", ("bash", script, "qwen1.5b-1gpu", *small),
            r".*finished.*", V2 | one),
        Row("train", "lora-24gb on an RTX 4090", ("bash", script, "lora-24gb", *small),
            r".*finished.*", V2 | RTX_4090 | one),
    ]  # fmt: skip


def run(row: Row, base: dict[str, str], folder: Path) -> tuple[bool, str, float]:
    log = folder / "log"
    state = {"PAPER_STATE": f"/dev/shm/paper_gpu_{os.getpid()}"}
    began = time.time()
    with open(log, "w") as out:
        code, most = watched(
            row.words, row.gb, row.seconds, env=base | state | row.variables, stdout=out, stderr=out, cwd=ROOT
        )
    text = log.read_text(errors="replace")
    for file in ([Path(state["PAPER_STATE"])], Path("/dev/shm").glob("paper_nccl_*")):
        for one in file:
            one.unlink(missing_ok=True)
    said = re.findall(f"^.*?({row.said}).*?$", text, re.M)
    good = bool(said) and (code != 0) == row.fails
    if not good:
        print(f"--- {row.what}: exit code {code}\n{text[-6000:]}", file=sys.stderr, flush=True)
    told = said[-1] if said and isinstance(said[-1], str) else said[-1][0] if said else f"exit code {code}"
    return good, f"{told[:200]} (host {most:.1f} GB)", time.time() - began


def main(parts: list[str]) -> int:
    out, venv = ROOT / "build" / "paper_gpu", Path(sys.prefix)
    subprocess.run(["bash", str(HERE / "make.sh"), str(venv), str(out)], check=True, stdout=subprocess.DEVNULL)
    text = subprocess.check_output(["bash", "-c", f". {out}/env; env -0"], text=True)
    base = dict(one.partition("=")[::2] for one in text.split("\0") if one)
    bad = 0
    print("| | part | what | seconds | it said |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            if parts and row.part not in parts:
                continue
            good, said, seconds = run(row, base, Path(folder))
            bad += not good
            word = "FAILED" if not good else "caught" if row.fails else "ok"
            print(f"| {word} | {row.part} | {row.what} | {seconds:.0f} | {said} |", flush=True)
    print(f"{bad} failed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
