"""The inputs of an evaluation: the model, and the problems of each benchmark as token ids."""

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import sha256_of_all
from real_openrlhf.base.run_files import MODEL, RECORD
from real_openrlhf.data.benchmarks import BENCHMARKS, chosen, read_benchmark
from real_openrlhf.data.problems import token_ids
from real_openrlhf.data.sources import read_local
from real_openrlhf.rewards.graders import thinking
from real_openrlhf.runs import run_folder
from real_openrlhf.runs.run_record import WEIGHTS
from real_openrlhf.training.checks.model_check import read_config
from same_answer.extract import Think

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST = 8192  # tokens of an answer in the paper's protocol
SUFFIXES = (*WEIGHTS, ".json", ".jinja", ".model", ".txt")  # weights, configuration, tokenizer


@dataclass(frozen=True)
class Question:
    benchmark: str
    identity: str
    prompt: str  # as the model reads it
    tokens: tuple[int, ...]
    label: str

    def origin(self, drawn_by: dict) -> str:
        """A hash of all that its samples depend on."""
        content = json.dumps([drawn_by, self.identity, self.tokens])
        return hashlib.sha256(content.encode()).hexdigest()


def read_records(names: str, folder: Path | None) -> dict[str, list[dict]]:
    """`names` as typed: `all`, benchmarks, JSONL files; in the order of the paper's tables, then files."""
    benchmarks, files = chosen(names)
    records = {name: [problem.record(name) for problem in read_benchmark(name, folder)[0]] for name in benchmarks}
    for file in map(Path, files):
        if file.stem in records:
            raise UserError(f"{file.stem} is given twice: rename {file}")
        records[file.stem] = file_records(file)
    if not records:
        raise UserError(f"no benchmark in {names!r}. There are: all, {', '.join(BENCHMARKS)}, or a JSONL file")
    identities = [record["id"] for rows in records.values() for record in rows]
    if len(set(identities)) < len(identities):
        raise UserError(f"{names}: several problems share one id. Make the column id unique, or remove it")
    return records


def tokenized(records: dict[str, list[dict]], tokenizer: "PreTrainedTokenizerBase") -> dict[str, list[Question]]:
    def question(benchmark: str, record: dict) -> Question:
        tokens = token_ids(tokenizer, record["prompt"])
        return Question(benchmark, record["id"], tokenizer.decode(tokens), tuple(tokens), record["label"])

    return {name: [question(name, record) for record in rows] for name, rows in records.items()}


def file_records(file: Path) -> list[dict]:
    """The rows of a file for OpenRLHF; their prompts are used unchanged, without our template."""
    records = []
    for number, row in enumerate(read_local(file).rows):
        for column in ("prompt", "label"):
            if column not in row:
                raise UserError(f"{file}: row {number + 1} has no column {column}. Prepare it with real-openrlhf data")
        if isinstance(row["label"], int) and not isinstance(row["label"], bool):  # as a run's own labels may be
            row = row | {"label": str(row["label"])}
        if not isinstance(row["prompt"], str | list) or not isinstance(row["label"], str):
            wanted = "the prompt must be text or a chat, the label text or a whole number"
            raise UserError(f"{file}: row {number + 1}: {wanted}. Change that row")
        records.append({"id": f"{file.stem}-{number}", **row})
    return records


def find_model(name: str) -> Path:
    """The model's folder. A hub model is downloaded."""
    folder = Path(name).expanduser()
    if (folder / "adapter_config.json").exists():
        merge = f"python -m openrlhf.cli.lora_combiner --model_path BASE --lora_path {folder} --output_path OUT"
        raise UserError(f"{folder} is the adapter of a LoRA run. Merge it with `{merge}`, then give --model OUT")
    if (folder / RECORD).exists():
        raise UserError(f"{folder} is a run. Give its model: --model {folder / MODEL}")
    read_config(name)  # refuses what is no model
    if folder.exists():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=[f"*{suffix}" for suffix in SUFFIXES]))
    except Exception as error:  # the hub's client raises a dozen unrelated types for one broken download
        raise UserError(f"model {name} cannot be downloaded ({first_line(error)}). Check the network") from error


def name_and_rule(model: str, questions: list[Question]) -> tuple[str, Think]:
    """Of the run that made the model, with its REAL_THINK; without a run, or a record of it, the paper's rule."""
    run, rule = Path(model).expanduser().resolve().parent, "required"
    with contextlib.suppress(UserError, LookupError, TypeError):
        rule = run_folder.read(run)["variables"]["REAL_THINK"]
    required = all(thinking(question.prompt, rule) == "required" for question in questions)
    return run.name if (run / RECORD).exists() else model, "required" if required else "optional"


def fingerprint(model: Path) -> str:
    """One hash over every file that can change an answer; reading the weights also warms the disk's cache for vLLM."""
    return sha256_of_all(file for file in model.iterdir() if file.suffix in SUFFIXES)


def answer_length(model: Path, questions: list[Question], asked: int | None) -> int:
    """Tokens of an answer: as asked for, else LONGEST or what the longest prompt leaves of the model's context."""
    longest = max(len(question.tokens) for question in questions)
    context = read_config(str(model)).get("max_position_embeddings")
    room = context - longest if context else LONGEST
    if context and (room < 1 or (asked or 1) > room):
        fits = f"Use --max-new-tokens {room} or less" if room > 0 else "Leave that benchmark out"
        raise UserError(f"the longest prompt has {longest} tokens, and the model's context is {context}. {fits}")
    if asked is None and room < LONGEST:
        print(f"responses have at most {room} tokens, not {LONGEST}: the model's context is {context}")
    return asked or min(room, LONGEST)
