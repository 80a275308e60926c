"""Make a tiny task: FOLDER/model, train.jsonl, eval.jsonl. The one of the recipe `cpu` comes with the package.

    python examples/tiny_task.py FOLDER

A small Qwen2 is pre-trained in a minute or two: first on correct responses, then on responses that are correct with
probability `skill` only. So a correct response is within reach of sampling and RL has something to sharpen; `skill`
sets how many groups are mixed. Everything is a pure function of the configuration. sums/ and agents/ have other tasks.
"""

import argparse
import hashlib
import json
import logging
import random
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
VERSION = 1  # raise it when this module or a task makes another model of the same configuration
BOX = r"\boxed{"  # one token; the verifier for mathematics reads what is in it


@dataclass(frozen=True)
class TinyTask(ABC):
    """A task's configuration, of which everything follows; the defaults are those of the task `reverse`."""

    skill: float = 0.15  # share of right answers in the second phase; the pass rate ends at about two thirds of it
    seed: int = 0
    train_prompts: int = 8000
    eval_prompts: int = 128
    sure_steps: int = 150  # pre-training steps on right answers
    unsure_steps: int = 200  # then on answers that are right with probability `skill`
    batch_size: int = 128
    learning_rate: float = 2e-3

    name: ClassVar[str]
    tokens: ClassVar[tuple[str, ...]]  # beside those for padding and ends
    split: ClassVar[str] = "."  # what one token is, as a regular expression
    positions: ClassVar[int]  # the model's longest text

    @abstractmethod
    def rows(self) -> tuple[list[dict], list[dict]]:
        """Training and held-out rows: prompt, label, datasource. No prompt is in both."""

    @abstractmethod
    def line(self, rng: random.Random, skill: float) -> tuple[str, str]:
        """A line to pre-train on: a prompt, and a response that is right with this probability."""

    def lines(self, rng: random.Random, skill: float) -> list[tuple[str, str]]:
        return [self.line(rng, skill) for _ in range(self.batch_size)]

    @property
    def key(self) -> str:
        """Of the name of the package's archive: another configuration is another model."""
        return hashlib.sha256(json.dumps([VERSION, asdict(self)], sort_keys=True).encode()).hexdigest()[:12]


def write_data(task: TinyTask, folder: Path) -> None:
    for name, rows in zip(("train", "eval"), task.rows(), strict=True):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_tokenizer(task: type[TinyTask] | TinyTask) -> "PreTrainedTokenizerBase":
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([PAD, EOS, UNK, *task.tokens])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(task.split), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",  # the prompt as it is
    )


def make_model(task: type[TinyTask] | TinyTask, tokenizer: "PreTrainedTokenizerBase", seed: int) -> "PreTrainedModel":
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=task.positions,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def pretrain(task: TinyTask, folder: Path, progress: bool) -> None:
    # transformers imports bitsandbytes where that is installed, which warns that `kernels` is not: for 4-bit weights
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    import torch
    from tqdm import tqdm
    from transformers import get_scheduler

    torch.set_num_threads(1)  # the same numbers on any machine, and no waiting for a core that is busy
    rng = random.Random(task.seed + 1)
    tokenizer = make_tokenizer(task)
    model = make_model(task, tokenizer, task.seed)
    steps = task.sure_steps + task.unsure_steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate, weight_decay=0.01)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)
    rarely = 0.1 if sys.stderr.isatty() else 15  # seconds; a log needs no hundred lines of it
    bar = tqdm(range(steps), "pre-training the tiny model", disable=not progress, file=sys.stderr, mininterval=rarely)
    for step in bar:
        skill = 1.0 if step < task.sure_steps else task.skill
        lines = task.lines(rng, skill)
        encoded = tokenizer([prompt + response + EOS for prompt, response in lines], padding=True, return_tensors="pt")
        asked = torch.tensor([len(tokenizer(prompt).input_ids) for prompt, _ in lines])
        positions = torch.arange(encoded.input_ids.shape[1])
        labels = encoded.input_ids.masked_fill(encoded.attention_mask == 0, -100).masked_fill(
            positions < asked[:, None], -100
        )
        loss = model(input_ids=encoded.input_ids, attention_mask=encoded.attention_mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make(task: TinyTask, folder: Path, progress: bool) -> None:
    (folder / "model").mkdir(parents=True)
    write_data(task, folder)
    pretrain(task, folder / "model", progress)
    (folder / "config.json").write_text(json.dumps(asdict(task), indent=2) + "\n")


# The task `reverse`: read a number backwards, `3758=` -> `..\\boxed{8573}`, after a few dots of "thinking"

DIGIT_SET = "0123456789"
DIGITS = 4
NUMBERS = [number for number in range(10**DIGITS) if number % 10]  # no answer begins with 0
MAX_DOTS = 6


@dataclass(frozen=True)
class ReverseTask(TinyTask):
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
        boxed = BOX + "".join(digits) + "}"  # drawn before the dots
        return prompt, "." * min(int(rng.expovariate(0.5)), MAX_DOTS) + boxed


def answer(prompt: str) -> str:
    """`3758=` -> `8573`."""
    return prompt.rstrip("=")[::-1]


TASK = ReverseTask()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    make(TASK, parser.parse_args().folder, progress=True)
