"""The samples of an evaluation on disk: appended one by one, continued only with the settings that drew them."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from real_openrlhf.base import files, ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_json

SAMPLES, MANIFEST = "samples.jsonl", "manifest.json"
RESULTS = PROBLEMS, NUMBERS, TABLE = "per_problem.jsonl", "results.json", "table.md"


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
    """Raise if a file that an evaluation writes is there without our manifest."""
    ours = ownership.has_keys(out / MANIFEST, "settings", "prompts")
    files = [out / name for name in (SAMPLES, MANIFEST, *RESULTS)]
    if files[0].is_file() and not files[0].stat().st_size:
        del files[0]  # an evaluation that was killed before its manifest made it, and it has nothing to lose
    ownership.refuse_foreign("--out", files, ours)


class SampleStore:
    """`samples.jsonl` and `manifest.json` in one folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._samples = folder / SAMPLES
        self._manifest = folder / MANIFEST

    @contextlib.contextmanager
    def opened(self, settings: dict, prompts: dict[str, str], problems: dict[str, set[str]]) -> Iterator[Self]:
        """Lock the store; refuse it if its samples have other settings or prompts (benchmark -> digest).

        Samples are kept by the ids of `problems` (benchmark -> ids), so two benchmarks may not share an id.
        """
        try:
            self._samples.parent.mkdir(parents=True, exist_ok=True)
            file = self._samples.open("a+b")
        except OSError as error:
            where = self._samples.parent
            raise UserError(f"cannot write to {where} ({error.strerror}). Choose another --out") from error
        with file:
            if not files.lock_taken(file):
                raise UserError(f"another evaluation is writing to {self._samples.parent}: give another --out")
            file.seek(0)  # a kill in the middle of a write leaves a last line without line end: remove it
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
            self._agree(settings, prompts, problems)
            self._file = file
            yield self

    def _agree(self, settings: dict, prompts: dict[str, str], problems: dict[str, set[str]]) -> None:
        before: dict[str, dict] = {"settings": settings, "prompts": {}}
        if self._manifest.exists():
            before = json.loads(self._manifest.read_text(encoding="utf-8"))
        for name, value in {**dict.fromkeys(before["settings"]), **settings}.items():
            old = before["settings"].get(name)
            if old != value:
                changed = f"{self._samples.parent} was sampled with {name} = {old}, now it is {value}"
                raise UserError(f"{changed}. Give another --out, or the old setting to continue")
        for name, value in prompts.items():
            if before["prompts"].get(name, value) != value:
                raise UserError(f"{self._samples.parent} was sampled on another version of {name}. Give another --out")
        new = {name: ids for name, ids in problems.items() if name not in before["prompts"]}
        drawn = {sample.id for sample in self} if any(new.values()) else set()
        for name, ids in new.items():
            if shared := sorted(ids & drawn):
                other = f"{self._samples.parent} has samples of another benchmark with ids of {name}"
                raise UserError(f"{other}, such as {shared[0]!r}. Give another --out")
        write_json(self._manifest, {"settings": settings, "prompts": {**before["prompts"], **prompts}})

    def append(self, sample: Sample) -> None:
        self._file.write(json.dumps(asdict(sample), ensure_ascii=False).encode() + b"\n")
        self._file.flush()

    def __iter__(self) -> Iterator[Sample]:
        with self._samples.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield Sample(**json.loads(line))
                except (ValueError, TypeError) as error:
                    damage = f"line {number} is damaged ({error})"
                    raise UserError(f"{self._samples}: {damage}. Delete that line") from error
