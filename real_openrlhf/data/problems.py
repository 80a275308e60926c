"""Read rows of known data sets as problems with gold answers; turn problems into prompts and token ids."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from real_openrlhf.base import model_tokenizer
from real_openrlhf.base.errors import UserError, first_line
from same_answer.extract import json_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Looked up in this order; a dot goes into a nested object, as in verl's `reward_model.ground_truth`.
PROBLEM_COLUMNS = ("problem", "question", "Problem", "prompt", "messages")
GOLD_COLUMNS = ("reward_model.ground_truth", "answer", "label", "final_answer", "Answer", "ground_truth")


@dataclass(frozen=True)
class Problem:
    row: int  # its row number in the source, from 0
    text: str
    golds: tuple[str, ...]
    system: str = ""  # the message before it
    raw: str = field(default="", compare=False)  # the text with the instructions that the source has around it

    @property
    def key(self) -> str:
        """Equal for texts that differ in spacing or in unicode composition only."""
        return " ".join(unicodedata.normalize("NFC", f"{self.system} {self.text}" if self.text else "").split())

    @property
    def label(self) -> str:
        """All golds as one JSON text, because a column of a data set has one type."""
        return json.dumps(self.golds, ensure_ascii=False)

    def chat(self, template: str | None = None) -> list[dict]:
        """The prompt as messages: the problem in a template, by default BOXED, or with LEFT as the source has it."""
        content = (
            (self.raw or self.text)
            if template == LEFT
            else (BOXED.format(self.text) if template is None else template.replace(PLACE, self.text))
        )
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": content}]

    def record(self, datasource: str, template: str | None = None) -> dict:
        """The line that OpenRLHF and the evaluation read."""
        return {
            "prompt": self.chat(template),
            "label": self.label,
            "datasource": datasource,
            "id": f"{datasource}-{self.row}",
        }


def read_problems(
    rows: Iterable[dict], problem_column: str | None = None, gold_column: str | None = None
) -> Iterator[Problem]:
    """A problem for each row. The first row decides the columns for all rows."""
    columns = None
    for number, row in enumerate(rows):
        if columns is None:
            columns = (
                _choose(row, [problem_column] if problem_column else PROBLEM_COLUMNS, "problem"),
                _choose(row, [gold_column] if gold_column else GOLD_COLUMNS, "gold answer"),
            )
        text, gold = (_lookup(row, column) for column in columns)
        try:
            system, raw = _messages(text)
            bare = bare_problem(raw)
            yield Problem(number, bare, _golds(gold), system, raw if raw != bare else "")
        except TypeError as error:
            raise UserError(f"row {number + 1}: {error}") from error


def _choose(row: dict, candidates: Iterable[str], what: str) -> str:
    for column in candidates:
        if _lookup(row, column, missing=...) is not ...:
            return column
    option = "--problem-column" if what == "problem" else "--gold-column"
    raise UserError(
        f"no column with the {what}: looked for {', '.join(candidates)}, found {', '.join(row) or 'nothing'}. "
        f"Name it with {option}"
    )


def _lookup(row: dict, column: str, missing: object = None) -> object:
    value: object = row
    for part in column.split("."):
        if not isinstance(value, dict) or part not in value:
            return missing
        value = value[part]
    return value


def _messages(value: object) -> tuple[str, str]:
    """(system message, problem) of a plain text, or of a chat with one user message; what follows it is left out."""
    if value is None or isinstance(value, str):
        return "", value or ""
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise TypeError(f"the problem is a {type(value).__name__}, expected text or a chat")
    roles = [message.get("role") for message in value]
    if roles.count("user") != 1:
        raise TypeError(f"the prompt has {roles.count('user')} user messages, expected one with text")
    at = roles.index("user")
    if roles[:at] not in ([], ["system"]):
        raise TypeError(f"the prompt begins with messages of {', '.join(map(str, roles[:at]))}, expected system")
    system, text = (value[0].get("content") if at else ""), value[at].get("content")
    if not isinstance(system, str) or not isinstance(text, str):
        raise TypeError("the prompt has a message whose content is no text. Write texts")
    return system, text


def _golds(value: object) -> tuple[str, ...]:
    """Every gold as text: `142.0` is 142, a list or its JSON is several golds, an empty text is no gold."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ()
    if isinstance(value, bool):
        raise TypeError("the gold answer is true or false, expected text, a number or a list")
    if isinstance(value, float) and value.is_integer():
        return (str(int(value)),)
    if isinstance(value, int | float):
        return (str(value),)
    if isinstance(value, str):
        value = value.rpartition(FINAL)[2]
        return tuple(json_texts(value) or filter(None, [value.strip()]))  # `["7", "7.0"]` is two, `[0, 1]` one
    if isinstance(value, list):
        return tuple(dict.fromkeys(gold for item in value for gold in _golds(item)))
    raise TypeError(f"the gold answer is a {type(value).__name__}, expected text, a number or a list")


# Prompts: the boxed template, and token ids

PLACE, LEFT = "{}", "none"  # in a template: where the problem stands; no template
BOXED = "{} Let's think step by step and output the final answer within \\boxed{{}}."  # DeepScaleR, DisCO
FINAL = "\n#### "  # before the answer of a solution in GSM8K

# Instructions that data sets bake into their prompts; each is taken off whole, never character by character.
_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem."
)
_SUFFIXES = (  # in some data sets the first suffix is a paragraph of its own
    "Let's think step by step and output the final answer within \\boxed{}.",
    "Please reason step by step, and put your final answer within \\boxed{}.",
    'Remember to put your answer on its own line after "Answer:".',
)


def bare_problem(text: str) -> str:
    """The problem without the instructions around it; the rest keeps every space."""
    if text.endswith(BOXED.format("")):
        return text.removesuffix(BOXED.format(""))
    if text.startswith(_PREFIX):
        text = text.removeprefix(_PREFIX).lstrip()
    for instruction in _SUFFIXES:
        if text.endswith(instruction):
            text = text.removesuffix(instruction).rstrip()
    return text


def load_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    try:
        return model_tokenizer.load_tokenizer(name, trust_remote_code=False)  # else it would ask on the terminal
    except Exception as error:  # transformers and the hub raise OSError, ValueError, TypeError and more for one cause
        raise UserError(
            f"cannot load a tokenizer from {name} ({first_line(error)}). Give a model folder or a hub id"
        ) from error


def token_ids(tokenizer: "PreTrainedTokenizerBase", prompt: str | list[dict]) -> list[int]:
    """Token ids of a prompt: of a chat by the model's template, which adds BOS; of a text by the tokenizer."""
    if isinstance(prompt, str):
        return tokenizer(prompt)["input_ids"]
    if tokenizer.chat_template is None:
        return tokenizer("\n\n".join(message["content"] for message in prompt))["input_ids"]
    return tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=False)


def is_raw(gold: str) -> bool:
    """Whether a gold has the form of its data set: GSM8K's solution with `#### 18`, or a list as Python prints it."""
    return "####" in gold or re.fullmatch(r"\[\s*'.*'\s*\]", gold, re.DOTALL) is not None
