r"""The task `reverse`: read a number backwards, `3758=` -> `..\boxed{8573}`, after a few dots of "thinking"."""

import random
from dataclasses import dataclass

from real_openrlhf.training.tasks.tiny_model import BOX, TinyTask

DIGIT_SET = "0123456789"
DIGITS = 4
NUMBERS = [number for number in range(10**DIGITS) if number % 10]  # no answer begins with 0
MAX_DOTS = 6
RESPONSE_LENGTH = MAX_DOTS + DIGITS + 3  # with the box, which is two tokens, and the end token


@dataclass(frozen=True)
class ReverseTask(TinyTask):
    skill: float = 0.15  # the model's pass rate ends at about two thirds of it
    seed: int = 0
    train_prompts: int = 8000
    eval_prompts: int = 128
    sure_steps: int = 150
    unsure_steps: int = 200
    batch_size: int = 128
    learning_rate: float = 2e-3

    name = "reverse"
    tokens = (*DIGIT_SET, "=", ".", BOX, "}")
    split = r"\\boxed\{|."
    positions = 64

    def rows(self) -> tuple[list[dict], list[dict]]:
        """Out of the 9,000 prompts that there are."""
        every = [f"{number:0{DIGITS}d}=" for number in NUMBERS]
        random.Random(self.seed).shuffle(every)
        rows = [{"prompt": prompt, "label": answer(prompt), "datasource": "reverse"} for prompt in every]
        return rows[: self.train_prompts], rows[-self.eval_prompts :]

    def line(self, rng: random.Random, skill: float) -> tuple[str, str]:
        """Each of the four digits is right with the same probability."""
        prompt = f"{rng.choice(NUMBERS):0{DIGITS}d}="
        sure = skill ** (1 / DIGITS)
        digits = (d if rng.random() < sure else rng.choice(DIGIT_SET.replace(d, "")) for d in answer(prompt))
        said = "".join(digits)
        return prompt, "." * min(int(rng.expovariate(0.5)), MAX_DOTS) + BOX + said + "}"


def answer(prompt: str) -> str:
    """`3758=` -> `8573`."""
    return prompt.rstrip("=")[::-1]


TASK = ReverseTask()
