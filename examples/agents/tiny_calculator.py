"""A tiny model that uses the tool of calculator.py badly, and its questions: FOLDER/model, train.jsonl, eval.jsonl.

    python examples/agents/tiny_calculator.py FOLDER

The model writes a wrong digit into half of its calls, and copies a wrong digit of the result into half of its answers.
Making it takes a minute of a core.
"""

import argparse
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tiny_task import EOS, TinyTask, make_tokenizer, pretrain, write_data

CALL, END = '<tool_call>{"name": "calculate", "arguments": {"expression": "', '"}}</tool_call>'
ROLES = ("<user>", "<assistant>", "<tool>")
TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@dataclass(frozen=True)
class CalculatorTask(TinyTask):
    skill: float = 0.3  # how often a trajectory has no wrong digit
    seed: int = 0
    train_prompts: int = 4000
    eval_prompts: int = 64
    sure_steps: int = 500
    unsure_steps: int = 120
    batch_size: int = 48
    learning_rate: float = 3e-3

    name = "calculator"
    tokens = (*"0123456789+", CALL, END, *ROLES)
    split = r'<tool_call>\{.*?expression": "|"\}\}</tool_call>|<\w+>|.'
    positions = 64

    def rows(self) -> tuple[list[dict], list[dict]]:
        rng = random.Random(self.seed)
        every: dict[str, int] = {}
        while len(every) < self.train_prompts + self.eval_prompts:
            one, other = (rng.randint(10, 99) for _ in range(2))
            every[f"{one}+{other}"] = one + other
        rows = [{"prompt": asked, "label": str(right), "datasource": "calculator"} for asked, right in every.items()]
        return rows[: self.train_prompts], rows[self.train_prompts :]

    def line(self, rng: random.Random, skill: float) -> tuple[str, str]:
        """A whole trajectory, with the tool's result. Call and answer are right with the same probability."""
        one, other = (rng.randint(10, 99) for _ in range(2))
        sure = skill**0.5
        asked = self.copied(f"{one}+{other}", rng, sure)
        result = str(sum(map(int, asked.split("+"))))
        answer = self.copied(result, rng, sure)
        return f"<user>{one}+{other}<assistant>", f"{CALL}{asked}{END}{EOS}<tool>{result}<assistant>{answer}"

    def copied(self, text: str, rng: random.Random, sure: float) -> str:
        if rng.random() < sure:
            return text
        at = rng.choice([at for at, letter in enumerate(text) if letter.isdigit()])
        return text[:at] + rng.choice("123456789".replace(text[at], "")) + text[at + 1 :]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, help="of pre-training, in place of all")
    args = parser.parse_args()
    task = replace(CalculatorTask(), sure_steps=args.steps, unsure_steps=0) if args.steps else CalculatorTask()
    (args.folder / "model").mkdir(parents=True, exist_ok=True)
    write_data(task, args.folder)
    pretrain(task, args.folder / "model", progress=True)
    tokenizer = make_tokenizer(task)
    tokenizer.add_tokens([CALL, END, *ROLES])  # found in a text also by the class that transformers loads for a Qwen2
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(args.folder / "model")
    print(f"{args.folder}: model, train.jsonl, eval.jsonl")
