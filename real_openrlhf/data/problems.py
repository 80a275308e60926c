"""Read rows of known data sets as problems with gold answers; turn problems into prompts and token ids."""

import json
import math
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.rewards.verifier.extract import json_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Looked up in this order; a dot goes into a nested object, as in verl's `reward_model.ground_truth`.
PROBLEM_COLUMNS = ("problem", "question", "Problem", "prompt")
GOLD_COLUMNS = ("reward_model.ground_truth", "answer", "label", "final_answer", "Answer", "ground_truth")


@dataclass(frozen=True)
class Problem:
    row: int  # its row number in the source, from 0
    text: str
    golds: tuple[str, ...]

    @property
    def key(self) -> str:
        """Equal for texts that differ in spacing or in unicode composition only."""
        return " ".join(unicodedata.normalize("NFC", self.text).split())

    @property
    def label(self) -> str:
        """All golds as one JSON text, because a column of a data set has one type."""
        return json.dumps(self.golds, ensure_ascii=False)

    def record(self, datasource: str) -> dict:
        """The line that OpenRLHF and the evaluation read."""
        return {
            "prompt": chat(self.text),
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
            problem = Problem(number, bare_problem(_text(text)), _golds(gold))
            f"{problem.text}{problem.label}".encode()
            yield problem
        except UnicodeEncodeError:
            raise UserError(f"row {number}: half a character (a surrogate alone). Write whole characters") from None
        except TypeError as error:
            raise UserError(f"row {number}: {error}") from error


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


def _text(value: object) -> str:
    """A plain text, or the one user message of a chat."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(message, dict) for message in value):
        contents = [message.get("content") for message in value if message.get("role") == "user"]
        if len(contents) == 1 and isinstance(contents[0], str):
            return contents[0]
        raise TypeError(f"the prompt has {len(contents)} user messages, expected one with text")
    raise TypeError(f"the problem is a {type(value).__name__}, expected text or a chat")


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
        return tuple(json_texts(value) or filter(None, [value.strip()]))  # `["7", "7.0"]` is two, `[0, 1]` one
    if isinstance(value, list):
        return tuple(dict.fromkeys(gold for item in value for gold in _golds(item)))
    raise TypeError(f"the gold answer is a {type(value).__name__}, expected text, a number or a list")


# Prompts: the boxed template, and token ids

BOXED = "{} Let's think step by step and output the final answer within \\boxed{{}}."  # DeepScaleR, DisCO

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


def chat(problem: str) -> list[dict]:
    return [{"role": "user", "content": BOXED.format(problem)}]


def load_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)  # else it would ask on the terminal
    except Exception as error:  # transformers and the hub raise OSError, ValueError, TypeError and more for one cause
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{name} brings Python code of its own (auto_map), which is not run here. Take a model that "
                "transformers knows"
            ) from error
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
