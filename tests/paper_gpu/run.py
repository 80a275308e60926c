"""Everything on paper cards, as a table: `python tests/paper_gpu/run.py [PART...]`, of an environment for GPUs.

Parts: kernels, engine, ranks, memory, scripts, faults; without a name all of them. README.md says what it shows.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
H100, RTX_4090 = {}, {"PAPER_GB": "25.25", "PAPER_NAME": "NVIDIA GeForce RTX 4090", "PAPER_CC": "8.9"}
V2 = {"TRITON_INTERPRET": "1"}  # its Triton kernels are interpreted


@dataclass
class Row:
    part: str
    what: str
    words: tuple[str, ...]
    said: str  # a pattern that the output must have
    fails: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    gb: float = 9.0  # of this machine's memory, at most
    seconds: float = 900


def here(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-W", "ignore", str(HERE / f"{name}.py"), *words)


def rows() -> list[Row]:
    one, eight = {"PAPER_GPUS": "1"}, {"PAPER_GPUS": "8"}
    found = [
        Row("kernels", f"the head's kernels for {cc}", here("compiles"), r"\d+ cubins .*", variables={"PAPER_CC": cc} | one)
        for cc in ("8.0", "9.0", "10.0", "12.0")
    ]
    found += [
        Row("engine", "vLLM's engine, eager: draws, sleeps, wakes, gets weights by CUDA IPC", here("engine", "eager"), r"GB before.*", variables=V2 | one),
        Row("engine", "the same with CUDA graphs captured", here("engine", "graphs"), r"GB before.*", variables=V2 | one),
    ]
    found += [
        Row("ranks", f"{ranks} ranks of ZeRO-{stage} train as one", here("ranks", str(ranks), str(stage)), r"\d ranks of.*", variables=eight)
        for ranks, stage in ((2, 3), (2, 2), (8, 3), (8, 2))
    ]
    found += [
        Row("faults", "a kernel that does not compile for 12.0", here("compiles", "for_hopper"), r".*(ptxas|wgmma).*", True, {"PAPER_CC": "12.0"} | one),
        Row("faults", "a collective in another order on one rank", here("ranks", "2", "3", "other_order"), r"paper NCCL: collective.*", True, eight),
        Row("faults", "a tensor left on the host", here("ranks", "2", "2", "on_the_host"), r".*Expected all tensors to be on the same device.*", True, eight),
        Row("faults", "weights handed over before the engine is awake", here("engine", "eager", "asleep"), r".*illegal memory access.*", True, V2 | one),
    ]  # fmt: skip
    return found


def run(row: Row, base: dict[str, str], folder: Path) -> tuple[bool, str, float]:
    from watch import watched

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
    said = re.findall(f"^.*?({row.said})$", text, re.M)
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
        for row in rows():
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
