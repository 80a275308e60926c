r"""The task `sums` and a tiny model for it: FOLDER/model, train.jsonl, eval.jsonl. It takes a minute or two of a core.

    python examples/sums/sums.py sums

Train on it with --model, --data and --eval.dataset of these files, --rollout.max_new_tokens 80 and --data.max_len 128.
The task is to add several two-digit numbers with every step written out, as one thinks aloud.

`a37b58c24=` asks for 37 + 58 + 24. A response takes number after number: how many units that makes, how many tens with
what is carried, and the sum so far. Then it boxes the last sum: `a37b58:(15)(9)95c24:(9)(11)119\boxed{119}`. Now and
then it writes a step once more, so that there is length to lose; more numbers are more steps. Counts in brackets are
one token each, since each number alone says something about a count, and nothing about a sum's last digit: without
them a minute is too short to learn to add. The verifier for mathematics reads the box.
"""

import argparse
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tiny_task import BOX, TinyTask, make

NAMES = "abcdefgh"  # of the numbers, so that it is clear which is next
AGAIN = 0.15  # how often a step is written once more
COUNTS = 80  # of tens, all that eight numbers can have


@dataclass(frozen=True)
class SumsTask(TinyTask):
    skill: float = 0.15  # of the most likely answers more than two thirds are right, of sampled ones a quarter
    seed: int = 0
    train_prompts: int = 8000
    eval_prompts: int = 128
    sure_steps: int = 1000
    unsure_steps: int = 80
    batch_size: int = 24
    learning_rate: float = 4e-3
    fewest: int = 3
    most: int = 4  # numbers to add

    name = "sums"
    tokens = (*"0123456789", *NAMES, "=", ":", *(f"({count})" for count in range(COUNTS)), BOX, "}")
    split = r"\\boxed\{|\(\d+\)|."
    positions = 160

    def rows(self) -> tuple[list[dict], list[dict]]:
        rng = random.Random(self.seed)
        every: dict[str, int] = {}
        while len(every) < self.train_prompts + self.eval_prompts:
            numbers = self._numbers(rng)
            every[prompt(numbers)] = sum(numbers)
        rows = [{"prompt": asked, "label": str(total), "datasource": "sums"} for asked, total in every.items()]
        return rows[: self.train_prompts], rows[self.train_prompts :]

    def line(self, rng: random.Random, skill: float) -> tuple[str, str]:
        """Each step is right with the same probability; what follows a wrong one goes on from it."""
        numbers = self._numbers(rng)
        return prompt(numbers), response(numbers, rng, skill ** (1 / (len(numbers) - 1)))

    def _numbers(self, rng: random.Random) -> list[int]:
        return [rng.randrange(10, 100) for _ in range(rng.randint(self.fewest, self.most))]


def prompt(numbers: list[int]) -> str:
    return "".join(f"{name}{number}" for name, number in zip(NAMES, numbers, strict=False)) + "="


def response(numbers: list[int], rng: random.Random, sure: float) -> str:
    total, steps = numbers[0], [f"{NAMES[0]}{numbers[0]}"]
    for name, number in zip(NAMES[1:], numbers[1:], strict=False):
        units = total % 10 + number % 10
        tens = total // 10 + number // 10 + units // 10
        if rng.random() >= sure:  # one count too many or too few, of either
            units, tens = rng.choice([(units + 1, tens), (units - 1, tens), (units, tens + 1), (units, tens - 1)])
        units = max(units, 0)
        total = 10 * tens + units % 10
        step = f"{name}{number}:({units})({tens}){total}"
        steps += [step] * (2 if rng.random() < AGAIN else 1)
    return "".join(steps) + f"{BOX}{total}}}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, help="of pre-training, in place of all")
    args = parser.parse_args()
    task = replace(SumsTask(), sure_steps=args.steps, unsure_steps=0) if args.steps else SumsTask()
    make(task, args.folder, progress=True)
    print(f"{args.folder}: model, train.jsonl, eval.jsonl")
