"""All rows of a run's data, read with its tokenizer and chat template; and those that a rehearsal trains."""

import statistics
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_jsonl
from real_openrlhf.base.user_files import raised
from real_openrlhf.data.sources import read_local
from real_openrlhf.training.checks.data_check import why_ungradable

LOST = 0.9  # a tokenizer that gives back fewer of a text's characters has not read it
FEW = 0.01  # a share of rows that is no finding


class Finding(NamedTuple):
    share: float  # of the run that it spoils
    text: str
    stops: bool = False  # training on would try nothing
    cost: str = ""  # where it is not that share of the run


class Row(NamedTuple):
    number: int
    question: str
    prompt: str  # as the model reads it
    label: Any
    tokens: int
    lost: bool  # whether the tokenizer cannot give it back
    source: dict


def read(files: list[str], data: SimpleNamespace, tokenizer: Any) -> list[Row]:
    from real_openrlhf.hooks.engine.requests import prompt_of

    rows = []
    for number, row in enumerate((row for file in files for row in read_local(Path(file)).rows), 1):
        try:
            prompt, label = prompt_of(row, data, tokenizer)
        except Exception as error:  # of the template, or a column that is missing
            raise UserError(f"row {number} becomes no prompt: {raised(error)}") from error
        asks = row[data.input_key]  # of a chat the last message
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        kept = len("".join(tokenizer.decode(ids).split())) >= LOST * len("".join(prompt.split()))
        question = asks if isinstance(asks, str) else str(asks[-1]["content"])
        rows.append(Row(number, question, prompt, label, len(ids), tokenizer.unk_token_id in ids or not kept, row))
    return rows


def about(rows: list[Row], room: int) -> str:
    tokens = [row.tokens for row in rows]
    lengths = f"{min(tokens):,} to {max(tokens):,} tokens of {room:,}, median {statistics.median(tokens):,.0f}"
    return f"all {len(rows):,}: {lengths}; {sum(each > room for each in tokens):,} too long"


def findings(rows: list[Row], room: int, verifier: bool) -> Iterator[Finding]:
    """`verifier`: the reward is this package's."""

    def of(some: list[Row], text: str, why: str = "", few: float = FEW, stops: bool = False) -> Iterator[Finding]:
        if len(some) > few * len(rows):
            share, why = len(some) / len(rows), why or f"which becomes {some[0].prompt[:80]!r}"
            told = f"{share:.0%} ({len(some):,} of {len(rows):,}) of the {text}, first row {some[0].number}, {why}"
            yield Finding(share, told, stops)

    long = [row for row in rows if row.tokens > room]
    longest = f"at most {max(row.tokens for row in rows):,}"
    # a run refuses the first of them
    yield from of(long, f"prompts have more than {room:,} tokens and lose their beginning", longest, few=0)
    dropped = [row for row in rows if row.question.strip() not in row.prompt]
    yield from of(dropped, "prompts have lost their question to the chat template", stops=True)
    yield from of([row for row in rows if row.lost], "prompts have signs that the tokenizer does not know")
    if verifier:
        unread = {text: why_ungradable(label) for text, label in {str(row.label): row.label for row in rows}.items()}
        wrong = [row for row in rows if unread[str(row.label)]]
        why = unread[str(wrong[0].label)] if wrong else ""
        yield from of(wrong, "rows have a label that the verifier cannot grade by", why)


def trained(rows: list[Row], count: int, room: int, data: SimpleNamespace, file: Path) -> int:
    """Write those near the median, again if there are too few; return the tokens of the longest."""
    middle = statistics.median(row.tokens for row in rows)
    fit = [row for row in rows if row.tokens <= room] or rows
    near = sorted(fit, key=lambda row: abs(row.tokens - middle))[:count]
    keys = {data.input_key, data.label_key, "datasource"}
    written = [{key: value for key, value in row.source.items() if key in keys} for row in near]
    write_jsonl(file, (written * -(-count // len(written)))[:count])
    return max(min(row.tokens, room) for row in near)
