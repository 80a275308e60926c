"""The stand-ins for NCCL and CUDA's driver (tests/paper_gpu), and with the wheels for GPUs all that runs on them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from every import every

PLACE = Path(__file__).parents[1] / "paper_gpu"
ROOT = PLACE.parents[1]
OTHER_ORDER, OUT_OF_MEMORY = 5, 2

RANK = """
import ctypes, os, sys
library, number, rank, order = ctypes.CDLL(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
Id = type("Id", (ctypes.Structure,), {"_fields_": [("b", ctypes.c_char * 128)]})
comm, numbers = ctypes.c_void_p(), (ctypes.c_int * 4)(*[rank + 1] * 4)
codes = [library.ncclCommInitRank(ctypes.byref(comm), 2, Id(number), rank)]
for one in order:
    if one == "r":
        codes.append(library.ncclAllReduce(numbers, numbers, ctypes.c_size_t(4), 2, 0, comm, None))
    else:
        codes.append(library.ncclBroadcast(numbers, numbers, ctypes.c_size_t(4), 2, 1, comm, None))
print(codes, [*numbers])
"""


def built(folder: Path, source: str, *flags: str) -> Path:
    library = folder / f"{source}.so"
    words = ["gcc", "-w", "-shared", "-fPIC", *flags, "-o", library, PLACE / source, "-lpthread", "-ldl"]
    subprocess.run(words, check=True)
    return library


@pytest.fixture(autouse=True)
def compiler():
    if not shutil.which("gcc"):
        pytest.skip("no gcc")


def ranks(library: Path, *orders: str) -> list[tuple[str, str]]:
    number = f"/dev/shm/paper_nccl_{os.getpid()}_{'_'.join(orders)}".encode().hex()
    words = [sys.executable, "-S", "-c", RANK, str(library), number]
    started = [
        subprocess.Popen([*words, str(rank), order], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank, order in enumerate(orders)
    ]
    return [one.communicate(timeout=120) for one in started]


def test_a_collective_gives_every_rank_the_result_and_another_order_is_named(tmp_path):
    library = built(tmp_path, "nccl.c")
    assert [out for out, _ in ranks(library, "rb", "rb")] == ["[0, 0, 0] [3, 3, 3, 3]\n"] * 2
    (first, said), (second, also) = ranks(library, "rb", "br")
    assert first.startswith(f"[0, {OTHER_ORDER}") and second.startswith(f"[0, {OTHER_ORDER}")
    assert "collective 2 differs" in said + also and "broadcast of 4 int32" in said + also


MEMORY = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
where, handle = (ctypes.c_int * 8)(0, 0, 1, 0), ctypes.c_ulonglong()
sizes = map(ctypes.c_size_t, map(int, sys.argv[2:]))
print(*[library.cuMemCreate(ctypes.byref(handle), one, where, 0) for one in sizes], flush=True)
sys.stdin.read()
"""


def test_a_cards_memory_is_counted_over_processes_and_runs_out(tmp_path):
    library = built(tmp_path, "cuda.c", "-DDRIVER")
    own = os.environ | {"PAPER_STATE": str(tmp_path / "state"), "PAPER_GB": "1", "PAPER_CONTEXT_GB": "0.1"}

    def process(*sizes: str) -> subprocess.Popen:
        words = [sys.executable, "-S", "-c", MEMORY, str(library), *sizes]
        return subprocess.Popen(words, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    first = process("400000000", "300000000", "300000000")
    assert first.stdout.readline() == f"0 0 {OUT_OF_MEMORY}\n"
    second = process("200000000", "50000000")
    assert second.communicate("")[0] == f"{OUT_OF_MEMORY} 0\n"
    first.communicate("")
    third = process("800000000")  # the dead hold nothing
    assert third.communicate("")[0] == "0\n"


@every
def test_all_that_runs_on_paper_cards_runs():
    found = ROOT / ".venv-gpu"
    if not (found / "bin/python").exists():
        pytest.skip("no environment for GPUs: REAL_GPU_ELSEWHERE=1 bash examples/scripts/setup_env.sh gpu")
    subprocess.run([found / "bin/python", PLACE / "run.py"], check=True)
