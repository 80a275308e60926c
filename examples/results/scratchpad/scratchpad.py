r"""The task `reverse` with a scratchpad, and one tiny model for responses of 7, 32 and 127 tokens, its end included.

    python examples/results/scratchpad/scratchpad.py FOLDER [--rounds 24]

`3758(5)=` asks for five rounds: each has its number and the answer, digit by digit, and then the answer is boxed:
`(1)8573(2)i573(3)85hd(4)8f7d(5)8573\boxed{8573}`. A round also writes digits as letters (`i` is 8), as it comes:
so most tokens of a long response are a choice, as wording is, and only the first round decides whether it is right.
FOLDER/ROUNDS has the rows of 0, 5 and 24 rounds, or of those that are named, FOLDER/model the model of all.
"""

import argparse
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tiny_task import BOX, DIGIT_SET, DIGITS, NUMBERS, TinyTask, pretrain, write_data

ROUNDS = (0, 5, 24)
LETTERS = "abcdefghij"


@dataclass(frozen=True)
class ScratchpadTask(TinyTask):
    sure_steps: int = 500
    unsure_steps: int = 500
    rounds: tuple[int, ...] = ROUNDS

    name = "reverse"
    tokens = (*DIGIT_SET, *LETTERS, "=", *(f"({n})" for n in range(max(ROUNDS) + 1)), BOX, "}")
    split = r"\\boxed\{|\(\d+\)|."
    positions = 160

    def rows(self) -> tuple[list[dict], list[dict]]:
        """Numbers as of `reverse`, each with one of the task's rounds."""
        numbers = [f"{number:0{DIGITS}d}" for number in NUMBERS]
        rng = random.Random(self.seed)
        rng.shuffle(numbers)
        rows = [
            {"prompt": f"{digits}({rng.choice(self.rounds)})=", "label": digits[::-1], "datasource": self.name}
            for digits in numbers
        ]
        return rows[: self.train_prompts], rows[-self.eval_prompts :]

    def line(self, rng: random.Random, skill: float) -> tuple[str, str]:
        """Each digit of the first round is right with the same probability; the others repeat it."""
        number, rounds = f"{rng.choice(NUMBERS):0{DIGITS}d}", rng.choice(self.rounds)
        sure = skill ** (1 / DIGITS)
        digits = [d if rng.random() < sure else rng.choice(DIGIT_SET.replace(d, "")) for d in number[::-1]]
        response = ""
        for n in range(1, rounds + 1):  # letters after the sure steps: a model that guesses less learns sooner
            written = (rng.choice((digit, LETTERS[int(digit)])) if skill < 1 else digit for digit in digits)
            response += f"({n})" + "".join(written)
        return f"{number}({rounds})=", response + BOX + "".join(digits) + "}"

    def lines(self, rng: random.Random, skill: float) -> list[tuple[str, str]]:
        """Of one length, so that nothing is padded; fewer where they are long."""
        rounds = rng.choice(self.rounds)
        of_one = replace(self, rounds=(rounds,), batch_size={0: 128, 5: 64, 24: 24}[rounds])
        return super(ScratchpadTask, of_one).lines(rng, skill)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, nargs="+", choices=ROUNDS, default=ROUNDS)
    args = parser.parse_args()
    for rounds in args.rounds:
        (args.folder / str(rounds)).mkdir(parents=True, exist_ok=True)
        write_data(ScratchpadTask(rounds=(rounds,)), args.folder / str(rounds))
    pretrain(ScratchpadTask(rounds=tuple(args.rounds)), args.folder / "model", progress=True)
