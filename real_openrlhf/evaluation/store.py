"""The samples of an evaluation on disk, appended one by one, so that the same command goes on after a kill."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from real_openrlhf.base import files, ownership
from real_openrlhf.base.errors import UserError

SAMPLES = "samples.jsonl"
RESULTS = PROBLEMS, NUMBERS, TABLE = "per_problem.jsonl", "results.json", "table.md"
ORIGIN = "origin"  # key of a line: the hash of the model, the sampling settings and the problem


@dataclass(frozen=True)
class Sample:
    id: str  # of the problem
    sample: int
    seed: int
    response: str
    tokens: int
    truncated: bool


def sample_seed(seed: int, identity: str, sample: int) -> int:
    """The seed of one sample, the same whichever engine draws it, in any order and any batch."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{identity}/{sample}".encode()).digest()[:8], "big") >> 1


def refuse_foreign(out: Path) -> None:
    """Raise if a file that an evaluation writes is there without our samples."""
    with contextlib.suppress(OSError), (out / SAMPLES).open("rb") as file:
        first = file.readline()
        if not first or f'"{ORIGIN}"'.encode() in first:
            return
    ownership.refuse_foreign("--out", (out / name for name in (SAMPLES, *RESULTS)), ours=False)


Samples = dict[tuple[str, int], Sample]  # by the problem's id, and the number of the sample


@contextlib.contextmanager
def opened(out: Path, origins: Mapping[str, str]) -> Iterator[tuple[Samples, Callable[[Sample], None]]]:
    """The samples of these origins (id -> origin), and a function that adds one; held by one process at a time."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / SAMPLES).open("a+b")
    except OSError as error:
        raise UserError(f"cannot write to {out} ({error.strerror}). Choose another --out") from error
    with file:
        if not files.lock_taken(file):
            raise UserError(f"another evaluation is writing to {out}: give another --out")
        file.seek(0)
        lines = [line for line in file if line.endswith(b"\n")]  # a kill leaves a last line without its end
        file.truncate(sum(map(len, lines)))
        rows = [row for row in map(json.loads, lines) if row.pop(ORIGIN) == origins.get(row["id"])]
        samples = {(row["id"], row["sample"]): Sample(**row) for row in rows}

        def add(sample: Sample) -> None:
            row = {ORIGIN: origins[sample.id], **asdict(sample)}
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            file.flush()
            samples[sample.id, sample.sample] = sample

        yield samples, add
