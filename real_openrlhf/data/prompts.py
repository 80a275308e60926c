"""Prompts: the boxed template, and token ids."""

from typing import TYPE_CHECKING

from real_openrlhf.base.errors import UserError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BOXED = "{} Let's think step by step and output the final answer within \\boxed{{}}."  # DeepScaleR, DisCO

# Instructions that data sets bake into their prompts; each is taken off whole, never character by character.
_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem."
)
_SUFFIXES = (  # the first one also stands on a paragraph of its own in some sets
    "Let's think step by step and output the final answer within \\boxed{}.",
    "Please reason step by step, and put your final answer within \\boxed{}.",
    'Remember to put your answer on its own line after "Answer:".',
)


def bare_problem(text: str) -> str:
    """The problem without the instructions around it; not a space of it is changed otherwise."""
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
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:  # transformers and the hub raise OSError, ValueError, TypeError and more for one cause
        raise UserError(
            f"cannot load a tokenizer from {name} ({first_line(error)}). Give a model folder or a hub id"
        ) from error


def token_ids(tokenizer: "PreTrainedTokenizerBase", prompt: str | list[dict]) -> list[int]:
    """A chat goes through the model's template, which brings its own BOS; a text goes as it is."""
    if isinstance(prompt, str):
        return tokenizer(prompt)["input_ids"]
    if tokenizer.chat_template is None:
        return tokenizer("\n\n".join(message["content"] for message in prompt))["input_ids"]
    return tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=False)
