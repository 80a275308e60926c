"""The rows of a run's data files: what would crash the run late, or train it on something else without a word."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import did_you_mean, number_of
from real_openrlhf.data.problems import GOLD_COLUMNS, PROBLEM_COLUMNS, is_raw
from real_openrlhf.data.sources import SUFFIXES, TRAINING_SETS, read_local
from real_openrlhf.recipes.run import AGENT, REWARD, Run, used_rows
from real_openrlhf.runs.provenance import PACKAGE
from real_openrlhf.training import tiny_task
from real_openrlhf.training.checks import Note
from same_answer.extract import golds_of

COLUMNS = {"--data.input_key": PROBLEM_COLUMNS, "--data.label_key": GOLD_COLUMNS}  # and their usual names
HELD = (*SUFFIXES, *".arrow .gz .zst .bz2 .xz .zip .txt .py".split())  # in a folder that may hold a data set
TRIED = 3  # labels that this package's own reward function is tried on
READ, UNKNOWN = 200, 0.1  # rows whose tokens are counted, and the share of unknown ones that is refused


def check(run: Run, flag: str) -> Iterator[str]:
    for name in run.text(flag).split(","):
        path = Path(name)
        if not path.is_absolute():  # of the hub: a run names its files by absolute paths
            write = f"`real-openrlhf data {name} --out FILE.jsonl` writes a file that is checked"
            yield Note(f"{flag} {name}: its rows on the hub were not checked. {write}", f"rows of {name}")
        elif not path.exists():
            trains = flag == "--data.prompt_dataset"
            near = did_you_mean(path.stem, [tiny_task.NAME, *TRAINING_SETS]) if trains else ""
            others = "OWNER/NAME, or a set of `real-openrlhf data`" if trains else "or OWNER/NAME"
            yield f"{flag} {name} does not exist. {near}Name a file, {others}."
        elif path.is_dir() and not any(file.suffix in HELD for file in path.rglob("*")):
            yield f"{flag} {name} is a folder without a data set. Name a file, or a folder with one."
        elif path.suffix == ".arrow" or (path.is_dir() and not path.suffix):
            yield Note(f"{flag} {name} is no {', '.join(SUFFIXES)} file: its rows were not checked", f"rows of {name}")
        elif path.suffix not in SUFFIXES:
            known = f"by which OpenRLHF knows the format. Rename it to {', '.join(SUFFIXES)}."
            yield f"{flag} {name} has the ending {path.suffix!r}, {known}"
        else:
            yield from _file(path, flag, run)


def _file(path: Path, flag: str, run: Run) -> Iterator[str]:
    columns = {option: run.text(option) for option in COLUMNS if run.text(option)}
    prompt_column, label_column = (columns.get(option, "") for option in COLUMNS)
    tokenizer = _tokenizer(run.args)
    fits, faults = _length_check(run.args, tokenizer), dict[str, list[int]]()
    count, labels, labels_of, prompts = 0, list[Any](), dict[str, set[str]](), list[str]()
    try:
        for count, row in enumerate(read_local(path).rows, 1):
            wrong = [_missing(option, column, row) for option, column in columns.items() if column not in row]
            if prompt_column in row:
                wrong += _of_prompt(row[prompt_column], run.args.data.apply_chat_template, fits)
                prompts += [_text(row[prompt_column])] if len(prompts) < READ and not wrong else []
                labels_of.setdefault(str(row[prompt_column]), set()).add(str(row.get(label_column)))
            for fault in wrong:
                faults.setdefault(fault, []).append(count)
            label = row.get(label_column)
            if label not in (None, "", []) and label == label:  # JSON and pandas have nan for nothing
                labels.append(label)
    except UserError as error:
        yield from (f"{flag} {problem}" for problem in error.problems)
        return
    for fault, rows in faults.items():
        yield f"{flag} {path}, row {rows[0]} {fault}" + f" ({len(rows) - 1} more like it)" * (len(rows) > 1)
    if faults:
        return
    if label_column and not labels:
        yield f"{flag} {path}: no row has a label in {label_column!r}. Name another column with --data.label_key."
    elif label_column and len(labels) < count:
        yield Note(f"{flag} {path}: {count - len(labels)} of {count} rows have no label")
    if repeated := count - len(labels_of) if labels_of else 0:
        differ = sum(len(labels) > 1 for labels in labels_of.values())
        yield Note(
            f"{flag} {path}: {repeated} of {count} rows repeat a prompt; {differ} of {len(labels_of)} prompts have "
            "several labels"
        )
    if unread := _unknown(tokenizer, prompts):
        yield f"{flag} {path}: the model cannot read its prompts, {unread}. {OTHER_MODEL}"
    yield from _of_labels(path, flag, run, labels, tokenizer)


def _missing(option: str, column: str, row: dict) -> str:
    near = next((name for name in COLUMNS[option] if name in row), None)
    hint = f"Is it {option} {near}?" if near else f"Name the right one with {option}."
    return f"has no column {column!r}, it has {', '.join(row) or 'none'}. {hint}"


def _of_prompt(prompt: object, chat: bool, fits: Callable[[str], bool]) -> list[str]:
    if isinstance(prompt, list) and not chat:
        return ["has a chat for a prompt. Add --data.apply_chat_template, or write the prompt as text."]
    messages = prompt if isinstance(prompt, list) else [{"content": prompt}]
    texts = [message.get("content") if isinstance(message, dict) else None for message in messages]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        return ["has a prompt that is no text, or an empty one. Mend the row, or leave it out."]
    if messages[-1].get("role") == "assistant":
        seen = "has a chat that ends with the assistant's message, and the model would see it. Leave that out, as"
        return [f"{seen} `real-openrlhf data FILE --out OUT.jsonl` does."]
    long = "has a prompt that does not fit into --data.max_len less --rollout.max_new_tokens, and OpenRLHF would cut"
    return [] if fits("".join(map(str, texts))) else [f"{long} its beginning. Raise --data.max_len, or leave it out."]


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else "".join(message["content"] for message in prompt)


def _tokenizer(args: SimpleNamespace) -> Any:
    with contextlib.suppress(Exception):  # of a model of the hub, or a broken one
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(Path(args.actor.model_name_or_path).expanduser() / "tokenizer.json"))


def _length_check(args: SimpleNamespace, tokenizer: Any) -> Callable[[str], bool]:
    """Whether a prompt fits. A token has at least one byte, so most prompts need no counting."""
    longest = args.data.max_len - (args.rollout.max_new_tokens or 1)
    if tokenizer is None or longest < 1:  # refusals.py reports the latter
        return lambda text: True
    return lambda text: (
        len(text.encode()) <= longest
        or (len(text) < 500 * longest and len(tokenizer.encode(text, add_special_tokens=False)) <= longest)
    )


OTHER_MODEL = "Name another --model; docs/use/smollm2.md has a small one that reads text."


def _unknown(tokenizer: Any, texts: list[str]) -> str:
    """`87% of their tokens are <unk>: 'What is'`, where that is too many; most tokenizers know every text."""
    token = getattr(tokenizer and tokenizer.model, "unk_token", None)
    if token is None:
        return ""
    tokens = [one for text in texts for one in tokenizer.encode(text, add_special_tokens=False).tokens]
    share = tokens.count(token) / max(len(tokens), 1)
    return f"{share:.0%} of their tokens are {token}: {texts[0][:60]!r}" if share > UNKNOWN else ""


def _of_labels(path: Path, flag: str, run: Run, labels: list, tokenizer: Any) -> Iterator[str]:
    """What the reward function will make of the user's labels."""
    if not run.given(flag) or AGENT in run.flags:
        return
    reward, first = run.text(REWARD), labels[:TRIED]
    ours = PACKAGE in Path(reward).parents
    if ungraded := [*filter(None, map(why_ungradable, first))] if ours else []:
        count = f"{len(ungraded)} of the first {len(first)} labels"
        message = f"{flag} {path}: {reward} cannot grade by {count} ({ungraded[0]}): no response is correct there. "
        message += "Mend the labels, or give --reward.remote_url FILE.py of your own."
        yield message if len(ungraded) == len(first) else Note(message)
    elif first and run.given(REWARD) and type(first[0]) is not str:
        yield Note(f"{flag} {path}: labels are no text but {type(first[0]).__name__}, and {reward} gets them so")
    if not ungraded and (unwritten := _unknown(tokenizer, [*chain(*map(golds_of, labels[:READ]))])):
        message = f"{flag} {path}: the model cannot write its labels, {unwritten}. {OTHER_MODEL}"
        yield message if ours else Note(message)


def why_ungradable(label: Any) -> str:
    """Why this package's verifier cannot grade by a label; an empty text if it can."""
    from same_answer import verify

    golds = golds_of(label)
    if any(map(is_raw, golds)):
        advice = "write the answer alone, as `real-openrlhf data FILE --out OUT.jsonl` does with GSM8K's"
        return f"the label {golds[0][-60:]!r} looks raw: {advice}"
    verdict = verify(f"\\boxed{{{next(iter(golds), '')}}}", label)
    return f"the label {str(label)[:60]!r}: {verdict.reason}" if verdict.ungraded else ""


def step_problems(args: SimpleNamespace, rows: int) -> Iterator[str]:
    """The passes over the data must be enough for all steps."""
    steps, prompts, passes = args.train.max_steps, args.rollout.batch_size, args.train.num_episodes
    rows = used_rows(args, rows)
    if rows < prompts:
        yield f"{number_of(rows, 'row')} of training data cannot fill --rollout.batch_size {prompts}. Give more."
    elif rows // prompts * passes < steps:
        yield (
            f"--train.num_episodes {passes} over {rows} rows ends after {rows // prompts * passes} steps, not after "
            f"{steps}. Give --max-steps 0 to end there, or leave --train.num_episodes out."
        )
