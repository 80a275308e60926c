"""Checks each row of a run's JSONL files for faults that would crash it after minutes, or spoil it silently."""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed
from real_openrlhf.recipes.plan import Plan, used_rows
from real_openrlhf.training.checks.preflight import Findings

TABLES = (".csv", ".parquet", ".arrow")  # OpenRLHF reads them; their rows are not checked here
KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
HUGE = 500  # bytes; no token is longer. A prompt of more than HUGE bytes per allowed token is refused uncounted


def data_findings(plan: Plan, flag: str, findings: Findings) -> None:
    """Find defects of the files that a flag names; only the first defect of each file."""
    for name in plan.text(flag).split(","):
        path = Path(name)
        lines = path.suffix in (".jsonl", ".json")
        hub_id = not path.is_absolute() and path.suffix not in TABLES
        try:
            if lines and path.is_dir():
                findings.problems.append(f"{flag} {name} is a folder. Name a file in it.")
            elif not (path.is_file() if lines else path.exists() or hub_id):
                wrong = "does not exist. Name an existing file or a prepared set: `real-openrlhf data --help`."
                findings.problems.append(f"{flag} {name} {wrong}")
            elif lines:
                _check_file(path, flag, plan, findings)
            else:
                findings.notes.append(f"{flag} {name} is not a JSONL file: its rows were not checked")
        except OSError as error:
            findings.problems.append(f"{flag} {name} cannot be read ({error.strerror}). Name a readable file.")


def _check_file(path: Path, flag: str, plan: Plan, findings: Findings) -> None:
    rows = Rows(plan)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                rows.see(number, line)
            except UserError as wrong:
                findings.problems.append(f"{flag} {path}, line {number} {wrong}")
                return
    if not rows.count:
        findings.problems.append(f"{flag} {path} is empty. Prepare it again: `real-openrlhf data --help`.")
    elif rows.unlabelled == rows.count:
        findings.problems.append(
            f"{flag} {path}: no row has a label in {rows.columns['--data.label_key']!r}. Fill that column, or "
            "name another with --data.label_key."
        )
    elif rows.unlabelled:
        findings.notes.append(f"{flag} {path}: {rows.unlabelled} of {rows.count} rows have no label")
    if rows.count > len(rows.prompts):
        findings.notes.append(f"{flag} {path}: {rows.count - len(rows.prompts)} of {rows.count} rows repeat a prompt")


class PromptLengths:
    """Whether each prompt leaves room for its answer. OpenRLHF would cut off the beginning of a longer prompt."""

    def __init__(self, plan: Plan) -> None:
        total, answer = plan.number("--data.max_len"), plan.text("--rollout.max_new_tokens")
        self.longest = total - (int(answer or 0) or 1)  # an answer without a limit has one token at least
        self.why = f"--data.max_len {total}" + (f" less --rollout.max_new_tokens {answer}" if answer else "")
        self.model = Path(plan.text("--actor.model_name_or_path")).expanduser()

    @cached_property
    def tokenizer(self) -> Any:
        """The model's, or None: model_check reports a broken one, and where there is no file nothing is counted."""
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_file(str(self.model / "tokenizer.json"))
        except Exception:
            return None

    def check(self, texts: list[str]) -> None:
        """Refuse a prompt that is too long. A token has at least one byte, so most prompts need no counting."""
        size = sum(len(text.encode()) for text in texts)
        if size > HUGE * self.longest:
            said = f"{size} bytes"
        elif size <= self.longest or self.tokenizer is None:
            return
        else:
            count = sum(len(self.tokenizer.encode(text, add_special_tokens=False)) for text in texts)
            said = f"{count} tokens" if count > self.longest else ""
        if said:
            raise UserError(
                f"has a prompt of {said}, and {self.why} leaves {self.longest}. Raise --data.max_len, or "
                "leave the row out (`real-openrlhf data FILE --tokenizer MODEL` does)."
            )


class Rows:
    """Facts about a file's rows so far."""

    def __init__(self, plan: Plan) -> None:
        flags = ("--data.input_key", "--data.label_key")
        self.columns = {flag: plan.text(flag) for flag in flags if plan.text(flag)}  # of those that the run reads
        self.chat = "--data.apply_chat_template" in plan.flags
        self.lengths = PromptLengths(plan)
        self.count = self.unlabelled = 0
        self.prompts: set[int] = set()
        self.kinds: dict[str, tuple[str, int]] = {}  # column -> (kind of value, its first line)

    def see(self, number: int, line: bytes) -> None:
        row = _row(line)
        for flag, column in self.columns.items():
            if column not in row:
                raise UserError(
                    f"has no column {column!r}, it has {', '.join(row) or 'none'}. Name the right one with {flag}."
                )
        for column, value in row.items():
            if value is None:
                continue
            kind, first = self.kinds.setdefault(column, (KINDS[type(value)], number))
            if kind != KINDS[type(value)]:  # OpenRLHF's reader makes a table of the file: a column has one type
                raise UserError(
                    f"has {KINDS[type(value)]} in column {column!r}, line {first} has {kind}. A column must hold one "
                    "kind of value."
                )
        texts = list(self._texts(row[self.columns["--data.input_key"]]))
        self.lengths.check(texts)
        label = row.get(self.columns.get("--data.label_key", ""))
        self.unlabelled += "--data.label_key" in self.columns and label in (None, "", [])
        self.prompts.add(hash("\0".join(texts)))
        self.count += 1

    def _texts(self, prompt: Any) -> Iterator[str]:
        column = self.columns["--data.input_key"]
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        if isinstance(prompt, list) and not self.chat:
            raise UserError(
                f"has a chat in column {column!r}. Add --data.apply_chat_template, or write the prompt as text."
            )
        for message in messages:
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise UserError(f"has a chat in column {column!r} whose messages lack role and content. Write both.")
            content = message.get("content")
            if not isinstance(content, str) or not content:
                what = "nothing" if content in (None, "") else KINDS[type(content)]
                raise UserError(f"has {what} for a prompt in column {column!r}. A prompt is a text, and not empty.")
            yield content


def _row(line: bytes) -> dict:
    """One line as an object. Refuses lines that Python's parser accepts and OpenRLHF's reader does not."""
    if line.startswith(b"\xef\xbb\xbf"):
        raise UserError("begins with a byte order mark. Save the file as UTF-8 without one.")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 (byte {error.start + 1}). Save the file as UTF-8.") from None
    try:
        row = parsed(text, object_pairs_hook=_once, parse_constant=_no_number)
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(r"has half a character (\ud800 to \udfff alone). Write whole characters.") from None
    except ValueError as error:
        raise UserError(f"is not JSON ({last_line(error)}). Write one JSON object a line.") from None
    if not isinstance(row, dict):
        raise UserError("is not a JSON object. Write one object with columns a line.")
    return row


def _once(pairs: list[tuple[str, Any]]) -> dict:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UserError("has a column twice. Leave one of them out.")
    return row


def _no_number(name: str) -> None:
    raise UserError(f"has {name}, which JSON does not know. Write null, or a number.")


def step_problems(plan: Plan, rows: int) -> Iterator[str]:
    """The passes over the data must be enough for all steps."""
    flags = ("--train.max_steps", "--rollout.batch_size", "--train.num_episodes")
    steps, prompts, passes = map(plan.number, flags)
    rows = used_rows(plan, rows)
    if rows < prompts:
        yield f"{rows} rows of training data do not fill one --rollout.batch_size {prompts}. Give more rows."
    elif rows // prompts * passes < steps:
        yield (
            f"{passes} passes over {rows} rows end after {rows // prompts * passes} steps, not after {steps}. "
            "Leave --train.num_episodes out: it follows from --max-steps."
        )
