"""Whether a prompt leaves room for its answer: OpenRLHF cuts off the beginning of one that does not."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from real_openrlhf.recipes.plan import Plan

HUGE = 500  # bytes a token: more than any token has, so that what is longer needs no counting


class TooLong(ValueError):
    pass


@dataclass
class PromptLengths:
    tokenizer_file: Path | None  # none: prompts are not counted
    longest: int
    why: str

    @classmethod
    def of(cls, plan: Plan) -> "PromptLengths":
        total, answer = plan.number("--data.max_len"), plan.text("--rollout.max_new_tokens")
        why = f"--data.max_len {total}" + (f" less --rollout.max_new_tokens {answer}" if answer else "")
        file = Path(plan.text("--actor.model_name_or_path")).expanduser() / "tokenizer.json"
        # an answer without a limit of its own has one token at least
        return cls(file if file.is_file() else None, total - (plan.number("--rollout.max_new_tokens") or 1), why)

    @cached_property
    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_file(str(self.tokenizer_file))
        except Exception:  # one that is broken is told with the model
            return None

    def check(self, texts: list[str]) -> None:
        """A token is a byte at least, so that most prompts need no counting."""
        size = sum(len(text.encode()) for text in texts)
        if size > HUGE * self.longest:
            said = f"{size} bytes"
        elif self.tokenizer_file is None or size <= self.longest or self.tokenizer is None:
            return
        else:
            count = sum(len(self.tokenizer.encode(text, add_special_tokens=False)) for text in texts)
            said = f"{count} tokens" if count > self.longest else ""
        if said:
            raise TooLong(
                f"has a prompt of {said}, and {self.why} leaves {self.longest}. Raise --data.max_len, or "
                "leave the row out (`real-openrlhf data FILE --tokenizer MODEL` does)."
            )
