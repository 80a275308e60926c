"""A tiny real model and task for machines without a GPU: a character-level Qwen2 that knows, but answers unreliably.

The task is to read a number backwards, `3758=` -> `8573`, after a few dots of "thinking". The model is pre-trained in
under a minute: first on right answers, then on answers whose digits are often wrong, so that a whole answer is right
with probability `skill`. So the right answer is within reach of sampling and RL has something to sharpen; `skill` sets
how many groups are mixed. Everything is a pure function of the configuration.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from real_openrlhf.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
DIGIT_SET = "0123456789"
ALPHABET = DIGIT_SET + "=."
DIGITS = 4
MAX_DOTS = 6
PROMPT_LENGTH = DIGITS + 1
RESPONSE_LENGTH = MAX_DOTS + DIGITS + 1  # with the end token


@dataclass(frozen=True)
class TinyConfig:
    skill: float = 0.15  # share of right answers in the second phase; the model's pass rate ends at about two thirds
    seed: int = 0
    train_prompts: int = 8000
    eval_prompts: int = 128
    sure_steps: int = 150  # pre-training steps on right answers
    unsure_steps: int = 200  # then on answers that are right with probability `skill`
    batch_size: int = 128
    learning_rate: float = 2e-3

    @property
    def key(self) -> str:
        """Names the cache folder; the source is part of it, so that a changed task is a new model."""
        source = Path(__file__).read_bytes()
        return hashlib.sha256(source + json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


def answer(prompt: str) -> str:
    """`3758=` -> `8573`."""
    return prompt.rstrip("=")[::-1]


def prompts(config: TinyConfig) -> tuple[list[str], list[str]]:
    """Disjoint training and held-out prompts out of the 10,000 there are."""
    every = [f"{number:0{DIGITS}d}=" for number in range(10**DIGITS)]
    random.Random(config.seed).shuffle(every)
    return every[: config.train_prompts], every[-config.eval_prompts :]


def write_data(config: TinyConfig, folder: Path) -> None:
    for name, rows in zip(("train", "eval"), prompts(config), strict=True):
        lines = (json.dumps({"prompt": p, "label": answer(p), "datasource": "reverse"}) for p in rows)
        (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))


def make_tokenizer() -> "PreTrainedTokenizerBase":
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([PAD, EOS, UNK, *ALPHABET])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",  # the prompt as it is
    )


def make_model(tokenizer: "PreTrainedTokenizerBase", seed: int) -> "PreTrainedModel":
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
            max_position_embeddings=64,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def text(rng: random.Random, skill: float) -> str:
    """One pre-training line: prompt, dots, an answer whose four digits are all right with probability `skill`."""
    prompt = f"{rng.randrange(10**DIGITS):0{DIGITS}d}="
    digit_skill = skill ** (1 / DIGITS)
    digits = "".join(d if rng.random() < digit_skill else rng.choice(DIGIT_SET.replace(d, "")) for d in answer(prompt))
    return prompt + "." * min(int(rng.expovariate(0.5)), MAX_DOTS) + digits


def pretrain(config: TinyConfig, folder: Path, progress: bool) -> None:
    import torch
    from tqdm import tqdm
    from transformers import get_scheduler

    torch.set_num_threads(1)  # the same numbers on any machine, and no waiting for a core that is busy
    rng = random.Random(config.seed + 1)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, config.seed)
    steps = config.sure_steps + config.unsure_steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.01)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)
    rarely = 0.1 if sys.stderr.isatty() else 15  # seconds; a log needs no hundred lines of it
    bar = tqdm(range(steps), "pre-training the tiny model", disable=not progress, file=sys.stderr, mininterval=rarely)
    for step in bar:
        skill = 1.0 if step < config.sure_steps else config.skill
        batch = [text(rng, skill) + EOS for _ in range(config.batch_size)]
        encoded = tokenizer(
            batch, padding="max_length", max_length=PROMPT_LENGTH + RESPONSE_LENGTH, return_tensors="pt"
        )
        labels = encoded.input_ids.masked_fill(encoded.attention_mask == 0, -100)
        labels[:, :PROMPT_LENGTH] = -100
        loss = model(input_ids=encoded.input_ids, attention_mask=encoded.attention_mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def folder_of(config: TinyConfig = TinyConfig(), cache: Path | None = None) -> Path:
    return (
        cache or Path(os.environ.get("REAL_CACHE", Path.home() / ".cache" / "real_openrlhf"))
    ) / f"tiny-{config.key}"


def prepare(config: TinyConfig = TinyConfig(), cache: Path | None = None, progress: bool = True) -> Path:
    """The folder with `model/`, `train.jsonl` and `eval.jsonl`: from the cache, or made now."""
    folder = folder_of(config, cache)
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}.making-{os.getpid()}")
    try:
        (draft / "model").mkdir(parents=True)
        write_data(config, draft)
        pretrain(config, draft / "model", progress)
        (draft / "config.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
        draft.rename(folder)
    except OSError as error:
        if not folder.exists():  # another process may have finished the same model first
            raise UserError(
                f"cannot write the tiny model to {folder.parent}: {error}. Set REAL_CACHE to a folder with space"
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the tiny model and its data; prints the folder.")
    parser.add_argument(
        "--skill", type=float, default=TinyConfig.skill, help="pass rate to start from (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=TinyConfig.seed)
    args = parser.parse_args(argv)
    started = time.time()
    try:
        folder = prepare(TinyConfig(skill=args.skill, seed=args.seed))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{time.time() - started:.0f} s", file=sys.stderr)
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
