"""The problems of each benchmark, as the token ids that the model gets."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from real_openrlhf.data.benchmarks import BENCHMARKS, chosen, read_benchmark
from real_openrlhf.data.prompts import token_ids
from real_openrlhf.data.sources import read_local
from real_openrlhf.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Task:
    benchmark: str
    identity: str
    prompt: str  # as the model reads it
    tokens: tuple[int, ...]
    label: str


def read_tasks(names: str, folder: Path | None, tokenizer: "PreTrainedTokenizerBase") -> dict[str, list[Task]]:
    """`names` as typed: `all`, benchmarks, JSONL files; in the order of the paper's tables, then files."""
    words = [word.strip() for word in names.split(",") if word.strip()]
    files = [Path(word) for word in words if word.endswith(".jsonl")]
    benchmarks = chosen(word for word in words if not word.endswith(".jsonl"))
    records = {name: [problem.record(name) for problem in read_benchmark(name, folder)[0]] for name in benchmarks}
    for file in files:
        if file.stem in records:
            raise UserError(f"{file.stem} is given twice: rename {file}")
        records[file.stem] = _file_records(file)
    if not records:
        raise UserError(f"no benchmark in {names!r}. There are: all, {', '.join(BENCHMARKS)}, or a JSONL file")
    identities = [record["id"] for rows in records.values() for record in rows]
    if len(set(identities)) < len(identities):
        raise UserError(f"{names}: several problems share one id. Make the column id unique, or remove it")
    return {name: [_task(name, record, tokenizer) for record in rows] for name, rows in records.items()}


def _task(benchmark: str, record: dict, tokenizer: "PreTrainedTokenizerBase") -> Task:
    tokens = token_ids(tokenizer, record["prompt"])
    return Task(benchmark, record["id"], tokenizer.decode(tokens), tuple(tokens), record["label"])


def _file_records(file: Path) -> list[dict]:
    """Rows as OpenRLHF reads them: used as they stand, no template of ours around them."""
    records = []
    for number, row in enumerate(read_local(file).rows):
        for column in ("prompt", "label"):
            if column not in row:
                raise UserError(f"{file}: row {number} has no column {column}. Prepare it with real-openrlhf data")
        if not isinstance(row["prompt"], str | list) or not isinstance(row["label"], str):
            raise UserError(
                f"{file}: row {number}: the prompt must be text or a chat, the label text. Change that row"
            )
        records.append({"id": f"{file.stem}-{number}", **row})
    return records


def digest(tasks: Iterable[Task]) -> str:
    """Changes with any prompt token or label."""
    content = [(task.identity, task.tokens, task.label) for task in tasks]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
