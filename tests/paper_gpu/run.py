"""Everything on paper cards, as a table: `python tests/paper_gpu/run.py [PART...]`, of an environment for GPUs.

Parts: train, engine, kernels, ranks, memory, doctor, faults. Two rows run at a time, trainings one after another.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))
import forked_workers  # noqa: E402

from real_openrlhf.forecast.memory import KNOWN_CONFIGS  # noqa: E402
from real_openrlhf.training import tiny_task  # noqa: E402

RTX_4090 = {"PAPER_GB": "25.25", "PAPER_NAME": "NVIDIA GeForce RTX 4090", "PAPER_CC": "8.9"}
CARDS = {"9.0": "NVIDIA H100 80GB HBM3", "10.0": "NVIDIA B200", "12.0": "NVIDIA RTX PRO 6000"}
LENGTHS = "--rollout.batch_size 4 --train.batch_size 32 --rollout.max_new_tokens 14 --data.max_len 32"
LENGTHS += " --vllm.enforce_eager"
SMALL = f"""{LENGTHS} --train.max_tokens_per_gpu 256 --rollout.max_tokens_per_gpu 512 --no-eval.at_start
    --no-eval.at_end --actor.adam.lr 1e-3 --rollout.temperature 1.0""".split()
OWN = f"""python -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 1 --vllm.num_engines 1
    --vllm.tensor_parallel_size 1 --train.colocate_all --vllm.gpu_memory_utilization 0.5 --vllm.enable_sleep
    --ds.enable_sleep --vllm.sync_backend nccl --ds.zero_stage 3 --ds.param_dtype bf16 --ds.packing_samples
    --ds.attn_implementation flash_attention_torch --algo.advantage.estimator group_norm --data.max_samples 4
    --rollout.n_samples_per_prompt 8 --data.input_key prompt --data.label_key label --actor.policy_loss_type real
    {LENGTHS}"""  # OpenRLHF's script for GRPO with a reward function, and the one flag of README
NO_DISK = ("--ckpt.save_steps", "-1", "--no-ds.enable_sleep", "--no-vllm.enable_sleep")  # nor host memory
RESUMED = '"$@" & until cat $RUNS/*/checkpoints/_actor/latest; do kill -0 $! || exit 1; sleep 1; done; kill -TERM $!'
RESUMED += '; wait; "$@"'
TWO_SHELLS = '"$@" & one=$!; "$@" & wait $! && wait $one'
LOGGED = '"$@" && tail -n 1 $RUNS/own/metrics.jsonl'
V1, V2 = ({"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": runner} for runner in "01")  # kernels are interpreted
LEAST_GB = 1.5  # of this machine's memory


@dataclass
class Row:
    part: str
    what: str
    words: tuple[str, ...]
    said: str  # patterns that the output must have, in lines
    variables: dict[str, str]
    fails: bool = False
    seconds: float = 900


def here(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-W", "ignore", str(HERE / "alone.py"), str(HERE / f"{name}.py"), *words)


def large_model(folder: Path) -> Path:
    """A model's folder whose config.json is that of 1.5B."""
    shape = shutil.copytree(tiny_task.unpack() / "model", folder / "shape") / "config.json"
    config = json.loads(shape.read_text()) | KNOWN_CONFIGS["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"]
    shape.write_text(json.dumps(config))
    return shape.parent


def rows(folder: Path) -> list[Row]:
    one, eight = ({"PAPER_GPUS": number} for number in "18")  # forks see the eight that their server saw
    task, runs = tiny_task.unpack(), ("--runs-dir", str(folder))
    data = ("--data", str(task / "train.jsonl"), "--eval.dataset", str(task / "eval.jsonl"))
    small = ("--model", str(task / "model"), *data, *SMALL)
    many = "8" if psutil.virtual_memory().total > 20e9 else "2"  # eight took 13.6 GB of this machine's memory
    script = ("bash", "examples/scripts/train_real_gpu.sh")
    large = {"PAPER_LIMIT": "300000", "PAPER_SKIP": "2000000"}
    compared = "compare --recipe qwen1.5b-1gpu --algos real --seeds 2 --steps 1 --benchmarks none --out".split()
    return [
        Row("train", "train_real_gpu.sh qwen1.5b-1gpu, ended after a checkpoint, and again",
            ("bash", "-c", RESUMED, "-", *script, "qwen1.5b-1gpu", *small, *runs, "--max-steps", "3",
             "--ckpt.save_steps", "2"),
            "step +2/3.*\nfailed .*SIGTERM.*\nstep +3/3.*\nfinished.*", V2 | eight),
        Row("train", "lora-24gb on an RTX 4090", (*script, "lora-24gb", *small, *runs, "--max-steps", "2"),
            "step +2/2.*\nfinished.*", V1 | RTX_4090 | eight),
        Row("train", "OpenRLHF's own command with --actor.policy_loss_type real",
            ("bash", "-c", LOGGED, "-", *OWN.split(), "--actor.model_name_or_path", str(task / "model"),
             "--data.prompt_dataset", str(task / "train.jsonl"), "--train.run_dir", f"{folder}/own",
             "--reward.remote_url", str(ROOT / "real_openrlhf/rewards/math_reward.py"),
             "--ckpt.path", f"{folder}/own/checkpoints", "--ckpt.output_dir", f"{folder}/own/model"),
            '"train", "step": 1.*', V1 | eight),
        Row("train", "compare in two shells: each takes a card of its own",
            ("bash", "-c", TWO_SHELLS, "-", "real-openrlhf", *compared, str(folder / "compared"), *small),
            "takes GPU 0 of 8\nreport: .*\ntakes GPU 1 of 8; 0 is in use.*", V1 | eight),
        Row("train", f"train_real_qwen7b.sh on {many} cards",
            ("bash", "examples/scripts/train_real_qwen7b.sh", *small, *runs, "--gpus", many, "--max-steps", "1",
             *"--rollout.batch_size 8 --train.batch_size 64".split()), "step +1/1.*\nfinished.*", V1 | eight),
        *[
            Row("kernels", f"the head's kernels for {cc}", here("compiles"), r"\d+ cubins, .*", {"PAPER_CC": cc} | one)
            for cc in ("8.0", "9.0", "10.0", "12.0")
        ],
        Row("ranks", "2 ranks of ZeRO-3 and ZeRO-2 train as one", here("ranks", "2:3", "2:2"), "2 ranks of.*", eight),
        Row("ranks", "8 ranks of ZeRO-3", here("ranks", "8:3"), "8 ranks of.*", eight),
        Row("doctor", "real-openrlhf doctor", ("real-openrlhf", "doctor"), "0 failed.*", eight),
        Row("faults", "a kernel that does not compile for 12.0", here("compiles", "for_hopper"),
            ".*'wgmma.fence' not supported.*", {"PAPER_CC": "12.0"} | one, fails=True),
        Row("faults", "a collective in another order on one rank", here("ranks", "2:3", "other_order"),
            "paper NCCL: collective.*", eight, fails=True),
        Row("faults", "a tensor left on the host", here("ranks", "2:2", "on_the_host"),
            ".*Expected all tensors to be on the same device.*", eight, fails=True),
        Row("faults", "a card's memory too small for the recipe: a dry run",
            (*script, "qwen1.5b-1gpu", "--model", str(large_model(folder)), *data, *NO_DISK, "--dry-run"),
            "note: memory per GPU: .*It may not fit", RTX_4090 | one),
        Row("faults", "the same: a step, 2 of 28 layers", here("step_memory", "lora-24gb", "2"),
            ".*CUDA out of memory.*", large | RTX_4090 | one | {"PAPER_CAP_GB": "3", "LAYERS": "2"}, fails=True),
        Row("faults", "weights handed over before vLLM is awake", here("engine", "eager", "asleep"),
            ".*illegal memory access.*", V2 | one, fails=True),
        Row("faults", "two runs on one card", here("two_runs"), ".*1 free GPU of 1; in use: 0.*", one, fails=True),
        *[
            Row("engine", f"each recipe's on {name}", here("engines"), r"\d+ libraries, .*",
                {"PAPER_CC": cc, "PAPER_NAME": name, "RAY_ADDRESS": "none"} | eight)
            for cc, name in CARDS.items()
        ],
        Row("engine", "vLLM with CUDA graphs: sleeps, wakes, gets weights by CUDA IPC", here("engine", "graphs"),
            "GB before.*", V2 | one),
        *[
            Row("memory", f"{recipe}, {prompts} prompts", here("step_memory", recipe, prompts),
                ".*is enough\nstep 2.*", large | cards)
            for recipe, prompts, cards in (
                ("qwen1.5b-1gpu", "4", one),
                ("lora-24gb", "2", one | RTX_4090),
                ("qwen7b-lora", "2", one),
                ("qwen1.5b", "16", eight),  # one rank alone
                ("qwen7b", "16", eight),
            )
        ],
    ]  # fmt: skip


def ended(process: psutil.Process) -> None:
    with suppress(psutil.Error):
        for child in [*process.children(recursive=True), process]:
            with suppress(psutil.Error):
                child.kill()


def run(row: Row, base: dict[str, str], log: Path) -> tuple[bool, str, float]:
    own = {"PAPER_STATE": str(log.with_suffix(".state")), "RUNS": str(log.parent)}
    began = time.time()
    with open(log, "w") as out:
        streams = {"stdout": out, "stderr": subprocess.STDOUT}
        process = psutil.Popen(row.words, env=base | row.variables | own, cwd=ROOT, start_new_session=True, **streams)
        while process.poll() is None:
            time.sleep(0.5)
            if time.time() - began > row.seconds or psutil.virtual_memory().available < LEAST_GB * 1e9:
                out.write(f"\nended after {time.time() - began:.0f} s, or because this machine's memory is full\n")
                ended(process)
        code = process.wait()
    text, told = log.read_text(errors="replace"), [f"exit code {code}"]
    for pattern in row.said.split("\n"):
        told.append(line[0] if (line := re.search(pattern, text)) else "")
    good = all(told) and (code != 0) == row.fails
    if not good:
        print(f"--- {row.what}: {told}\n{text[-6000:]}", file=sys.stderr, flush=True)
    return good, told[-1][:200] or f"exit code {code}", time.time() - began


@contextmanager
def forks(base: dict[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """An environment in which `python` and `real-openrlhf` are forks of one process that has imported the stack."""
    base = base | V2 | {"PAPER_FORKS": "1", "PAPER_STATE": f"{folder}/server", forked_workers.ALL: "1"}
    with forked_workers.started(base) as (python, environment):
        for name, words in {"python": "", "real-openrlhf": " -m real_openrlhf.cli"}.items():
            (folder / name).write_text(f'#!/bin/sh\nexec {python}{words} "$@"\n')
            (folder / name).chmod(0o755)
        yield environment | {"PATH": f"{folder}:{base['PATH']}"}


def main(parts: list[str]) -> int:
    out, venv = ROOT / "build" / "paper_gpu", Path(sys.prefix)
    subprocess.run(["bash", str(HERE / "make.sh"), str(venv), str(out)], check=True, stdout=subprocess.DEVNULL)
    text = subprocess.check_output(["bash", "-c", f". {out}/env; env -0"], text=True)
    base = dict(one.partition("=")[::2] for one in text.split("\0") if one)
    bad, began = [], time.time()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))  # what was started ends with us
    print("| | part | what | seconds | it said |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        chosen = [row for row in rows(folder) if not parts or row.part in parts]
        trainings = deque(row for row in chosen if row.part == "train")
        others = deque(row for row in chosen if row.part != "train")
        forking = stack.enter_context(forks(base, folder)) if trainings else base

        def lane(*queues: deque[Row]) -> None:
            for queue in queues:
                while queue:
                    row = queue.popleft()
                    environment = forking if queue is trainings else base
                    good, said, seconds = run(row, environment, folder / f"log{id(row)}")
                    bad.extend([] if good else [row])
                    word = "FAILED" if not good else "caught" if row.fails else "ok"
                    print(f"| {word} | {row.part} | {row.what} | {seconds:.0f} | {said} |", flush=True)

        second = threading.Thread(target=lane, args=(others,), daemon=True)
        try:
            second.start()
            lane(trainings, others)
            second.join()
        finally:
            for child in psutil.Process().children():
                ended(child)
            for room in Path("/dev/shm").glob("paper_nccl_*"):
                room.unlink()
    print(f"{len(bad)} failed, {time.time() - began:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
