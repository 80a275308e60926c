"""Checks each row of a run's data files for faults that would crash it after minutes, or spoil it silently."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.parsing import did_you_mean
from real_openrlhf.data.problems import GOLD_COLUMNS, PROBLEM_COLUMNS, without_verdict
from real_openrlhf.data.sources import is_hub_id
from real_openrlhf.recipes.plan import AGENT, REWARD, USER, Plan, used_rows
from real_openrlhf.recipes.recipes import TRAINING_ROWS
from real_openrlhf.training.checks.findings import Note
from real_openrlhf.training.checks.run_rows import CHECKED, rows_of
from real_openrlhf.training.run_inputs import VALIDATION
from real_openrlhf.training.tasks.reverse_task import TASK

UNCHECKED = ".arrow"  # OpenRLHF reads it too
KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
HUGE = 500  # bytes; no token is longer. A prompt of more than HUGE bytes per allowed token is refused uncounted
DETAILS = re.compile(r"\d+|'[^']*'|\([^)]*\)")  # in which two faults of one kind differ
TRIED = 3  # labels that this package's own reward functions are tried on
MOST = 6  # kinds of faults of a file that are printed


def check(plan: Plan, flag: str, elsewhere: bool) -> Iterator[str]:
    """Find the defects of the files that a flag names: the first row with each kind of fault, and how many follow."""
    for name in plan.text(flag).split(","):
        path = Path(name)
        checked = path.suffix in CHECKED
        try:
            if path.is_dir():
                yield _folder(path, flag, checked)
            elif is_hub_id(name) and not path.exists():
                yield from _of_the_hub(name, flag, elsewhere)
            elif not path.is_file():
                yield f"{flag} {name} does not exist. {did_you_mean(path.stem, [TASK.name, *TRAINING_ROWS])}{EXISTING}"
            elif checked:
                yield from _check_file(path, flag, plan)
            elif path.suffix == UNCHECKED:
                yield Note(f"{flag} {name} is neither JSONL, parquet nor CSV: its rows were not checked")
            else:
                wrong = f"has the ending {path.suffix!r}" if path.suffix else "has no ending"
                known = "by which OpenRLHF knows the format. Unpack or rename it to .jsonl, .json, .parquet or .csv."
                yield f"{flag} {name} {wrong}, {known}"
        except OSError as error:
            yield f"{flag} {name} cannot be read ({error.strerror}). Name a readable file."


EXISTING = (
    "Name an existing file, a prepared set (`real-openrlhf data --help`) or a data set of the hub, as OWNER/NAME."
)


def _folder(path: Path, flag: str, checked: bool) -> str:
    """OpenRLHF reads a folder that `datasets` saved, or one of data files."""
    inside = [*path.iterdir()]
    saved = any(one.name in ("state.json", "dataset_dict.json") for one in inside)
    if checked or not (saved or any(one.suffix in (*CHECKED, UNCHECKED) for one in inside)):
        return f"{flag} {path} is a folder. Name a file in it."
    return Note(f"{flag} {path} is a folder: its rows were not checked")


def _of_the_hub(name: str, flag: str, elsewhere: bool) -> Iterator[str]:
    """Ask the hub whether it has the set. Its rows are not read: that would be the download."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    repo = name.partition("@")[0]
    prepare = f"`real-openrlhf data {repo} --out FILE.jsonl` writes a file that is checked"
    try:
        HfApi().dataset_info(repo, timeout=10)
    except GatedRepoError:
        yield f"{flag} {name} needs a login. Run `hf auth login` with an account that may read it."
    except RepositoryNotFoundError:
        yield f"{flag} {name} is neither a file here nor a data set of the hub. Check the name."
    except Exception as error:  # the hub's client raises a dozen unrelated types for one missing network
        from datasets.config import HF_DATASETS_CACHE

        said = f"{flag} {name} is no file here, and the hub cannot be asked about it ({last_line(error)})"
        if elsewhere:
            yield Note(f"{said}: its existence was not checked")
        elif not os.path.isdir(os.path.join(HF_DATASETS_CACHE, repo.replace("/", "___"))):  # not made before
            yield f"{said}. Check the network, or name a file."
    yield Note(
        f"{flag} {name} comes from the hub and its rows were not checked; a set of several configurations needs the "
        f"folder of one, as {repo}@main. {prepare}"
    )


COLUMNS = {"--data.input_key": "prompt", "--data.label_key": "label"}  # of a file that this package makes
OTHER_FILE = (
    "This file is the recipe's: give --eval.dataset FILE with the columns of your --data, or --no-eval.dataset for a "
    "run without validation."
)


def _check_file(path: Path, flag: str, plan: Plan) -> Iterator[str]:
    rows, faults = Rows(plan, flag), dict[str, list[str]]()
    try:
        for row in rows_of(path, {*rows.columns.values()}):
            for fault in rows.faults(row):
                faults.setdefault(DETAILS.sub("", fault), []).append(f"{flag} {path}, row {rows.count} {fault}")
    except UserError as wrong:
        yield from (f"{flag} {line}" for line in wrong.problems)
        return
    for first, *others in [*faults.values()][:MOST]:
        yield first + f" ({len(others)} more like it)" * bool(others)
    if faults:
        return
    if not rows.count:
        yield f"{flag} {path} is empty. Prepare it again: `real-openrlhf data --help`."
    elif rows.unlabelled == rows.count:
        yield (
            f"{flag} {path}: no row has a label in {rows.columns['--data.label_key']!r}. Fill that column, or "
            "name another with --data.label_key."
        )
    elif rows.unlabelled:
        yield Note(f"{flag} {path}: {rows.unlabelled} of {rows.count} rows have no label")
    if rows.count > len(rows.prompts):
        yield Note(f"{flag} {path}: {rows.count - len(rows.prompts)} of {rows.count} rows repeat a prompt")
    yield from _try_reward(path, flag, plan, rows.labels)


def _try_reward(path: Path, flag: str, plan: Plan, labels: list[Any]) -> Iterator[str]:
    """Whether this package's reward functions can grade the user's first labels."""
    setting = plan.flags.get(flag)
    if setting is None or setting.origin != USER or AGENT in plan.flags or not labels:
        return
    silent = without_verdict(Path(plan.text(REWARD)), labels)
    if silent:
        said = (
            f"{flag} {path}: {plan.text(REWARD)} cannot grade by the labels of {len(silent)} of the first "
            f"{len(labels)} rows ({silent[0]}): no right answer is rewarded there. Mend the labels, or give "
            "--reward.remote_url FILE.py of your own, and try it: `real-openrlhf reward FILE.py --data SET`."
        )
        yield said if len(silent) == len(labels) else Note(said)


class Rows:
    """Facts about a file's rows so far."""

    def __init__(self, plan: Plan, flag: str) -> None:
        # then the columns that it lacks may be those of the user's own --data
        self.recipes_validation = flag == VALIDATION and plan.flags[flag].origin != USER
        self.columns = {flag: plan.text(flag) for flag in COLUMNS if plan.text(flag)}  # of those that the run reads
        self.chat = plan.args.data.apply_chat_template
        total, answer = plan.args.data.max_len, plan.args.rollout.max_new_tokens
        self.longest = total - (int(answer or 0) or 1)  # an answer without a limit has one token at least
        self.why = f"--data.max_len {total}" + (f" less --rollout.max_new_tokens {answer}" if answer else "")
        self.model = Path(plan.args.actor.model_name_or_path or "").expanduser()
        self.count = self.unlabelled = 0
        self.prompts: set[int] = set()
        self.labels: list[Any] = []  # the first ones

    def faults(self, row: dict) -> Iterator[str]:
        self.count += 1
        yield from self.lacking(row)
        column = self.columns["--data.input_key"]
        if column not in row:
            column = next(self._near("--data.input_key", row), column)
        if column in row:
            yield from self._of_prompt(row[column], column)
        if (column := self.columns.get("--data.label_key", "")) in row:
            label = row[column]
            missing = label in (None, "", []) or label != label  # JSON and pandas have nan for nothing
            self.unlabelled += missing
            if len(self.labels) < TRIED and not missing:
                self.labels.append(label)

    def lacking(self, row: Mapping) -> Iterator[str]:
        for flag, column in self.columns.items():
            if column not in row:
                near = next(self._near(flag, row), None)
                hint = f"Is it {flag} {near}?" if near else f"Name the right one with {flag}."
                hint = OTHER_FILE if self.recipes_validation else hint
                yield f"has no column {column!r}, it has {', '.join(row) or 'none'}. {hint}"

    def _near(self, flag: str, row: Mapping) -> Iterator[str]:
        usual = PROBLEM_COLUMNS if flag == "--data.input_key" else GOLD_COLUMNS
        return (name for name in usual if name in row and name not in self.columns.values())

    def _of_prompt(self, prompt: Any, column: str) -> Iterator[str]:
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        if isinstance(prompt, list) and not self.chat:
            yield f"has a chat in column {column!r}. Add --data.apply_chat_template, or write the prompt as text."
        texts = []
        for message in messages:
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                yield f"has a chat in column {column!r} whose messages lack role and content. Write both."
                return
            content = message.get("content")
            if not isinstance(content, str) or not content:
                what = "nothing" if content in (None, "") else KINDS.get(type(content), "a date")
                yield f"has {what} for a prompt in column {column!r}. A prompt is a text, and not empty."
                return
            texts.append(content)
        yield from self._too_long(texts)
        self.prompts.add(hash("\0".join(texts)))

    @cached_property
    def tokenizer(self) -> Any:
        """The model's, or None: model_check reports a broken one, and where there is no file nothing is counted."""
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_file(str(self.model / "tokenizer.json"))
        except Exception:
            return None

    def _too_long(self, texts: list[str]) -> Iterator[str]:
        """OpenRLHF would cut off a prompt's beginning. A token has at least one byte, so most need no counting."""
        size, kind = sum(len(text.encode()) for text in texts), "bytes"
        if self.longest < size <= HUGE * self.longest:
            encode = self.tokenizer.encode if self.tokenizer else lambda *_, **__: ()
            size, kind = sum(len(encode(text, add_special_tokens=False)) for text in texts), "tokens"
        if size > self.longest:
            yield (
                f"has a prompt of {size} {kind}, and {self.why} leaves {self.longest}. Raise --data.max_len, or "
                "leave the row out (`real-openrlhf data FILE --tokenizer MODEL` does)."
            )


def step_problems(plan: Plan, rows: int) -> Iterator[str]:
    """The passes over the data must be enough for all steps."""
    steps, prompts, passes = plan.args.train.max_steps, plan.args.rollout.batch_size, plan.args.train.num_episodes
    rows = used_rows(plan, rows)
    if rows < prompts:
        yield f"{rows} rows of training data do not fill one --rollout.batch_size {prompts}. Give more rows."
    elif rows // prompts * passes < steps:
        yield (
            f"{passes} passes over {rows} rows end after {rows // prompts * passes} steps, not after {steps}. "
            "Leave --train.num_episodes out: it follows from --max-steps."
        )
