"""A tiny model that plays guess_number.py badly, and its games: FOLDER/model, FOLDER/train.jsonl, FOLDER/eval.jsonl.

    python examples/agents/tiny_guesser.py FOLDER

`8:` asks for a digit up to 8. The model forgets the hints in half of its guesses, and never halves what is left: both
can be learned. Making it takes 20 s of a core.
"""

import argparse
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tiny_task import EOS, TinyTask, pretrain, write_data

GUESSES = 3  # as in guess_number.py
LOWEST, HIGHEST = 5, 9  # last digits of a game; three guesses that halve what is left find one of seven


@dataclass(frozen=True)
class GuessTask(TinyTask):
    skill: float = 0.5  # how often a guess heeds the hints
    seed: int = 0
    train_prompts: int = 4000
    eval_prompts: int = 128
    sure_steps: int = 250
    unsure_steps: int = 100
    batch_size: int = 48
    learning_rate: float = 2e-3

    name = "guess"
    tokens = (*"0123456789", ":", "<", ">", "?")
    positions = 64

    def rows(self) -> tuple[list[dict], list[dict]]:
        """Other games of the same few prompts: what is to be learned is no answer, but how to find one."""
        rng = random.Random(self.seed)
        every = [self.game(rng) for _ in range(self.train_prompts + self.eval_prompts)]
        rows = [{"prompt": f"{last}:", "label": str(secret), "datasource": "guess"} for last, secret in every]
        return rows[: self.train_prompts], rows[self.train_prompts :]

    def game(self, rng: random.Random) -> tuple[int, int]:
        last = rng.randint(LOWEST, HIGHEST)
        return last, rng.randint(0, last)

    def line(self, rng: random.Random, skill: float) -> tuple[str, str]:
        """A whole trajectory, hints and all."""
        last, secret = self.game(rng)
        low, high, text = 0, last, ""
        for turn in range(GUESSES):
            guess = rng.randint(low, high) if rng.random() < skill else rng.randint(0, last)
            text += str(guess)
            if guess == secret or turn == GUESSES - 1:
                break
            text += EOS + ("<" if secret < guess else ">")
            low, high = (low, min(high, guess - 1)) if secret < guess else (max(low, guess + 1), high)
        return f"{last}:", text


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, help="of pre-training, in place of all")
    args = parser.parse_args()
    task = replace(GuessTask(), sure_steps=args.steps, unsure_steps=0) if args.steps else GuessTask()
    (args.folder / "model").mkdir(parents=True, exist_ok=True)
    write_data(task, args.folder)
    pretrain(task, args.folder / "model", progress=True)
    print(f"{args.folder}: model, train.jsonl, eval.jsonl")
