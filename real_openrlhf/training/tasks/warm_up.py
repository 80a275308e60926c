"""A short supervised training on worked examples, before a run: it teaches a model the form of an answer.

Each example is seen once, in the order in which it comes. Only the answer's tokens are trained. Numbers are the same
on every machine of one kind: threads, order and rounding do not follow from the machine's cores or load.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THREADS = 2
NO_LABEL = -100


@dataclass(frozen=True)
class WarmUp:
    steps: int
    batch_size: int
    learning_rate: float  # of the first step; it falls to 0 in a straight line

    @property
    def examples(self) -> int:
        return self.steps * self.batch_size


def warm_up(base: Path, examples: Sequence[tuple[Any, str]], settings: WarmUp, place: Path, progress: bool) -> float:
    """Train the model in `base` on (prompt, answer) pairs and save it; the last step's loss."""
    import torch
    from tqdm import tqdm
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(THREADS)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / settings.steps)
    loss = torch.zeros(())
    bar = tqdm(range(settings.steps), "warming the model up", disable=not progress, file=sys.stderr)
    for step in bar:
        few = examples[step * settings.batch_size : (step + 1) * settings.batch_size]
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**_batch(tokenizer, few)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.to(torch.bfloat16).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return loss.item()


def _batch(tokenizer: Any, few: Sequence[tuple[Any, str]]) -> dict:
    """Padded on the right; prompts as a run asks them."""
    import torch

    ids, labels = [], []
    for prompt, answer in few:
        asked = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        before, said = (
            tokenizer(text, add_special_tokens=False).input_ids for text in (asked, answer + tokenizer.eos_token)
        )
        ids.append(torch.tensor(before + said))
        labels.append(torch.tensor([NO_LABEL] * len(before) + said))
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones_like(one) for one in ids], batch_first=True)
    padded = pad(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
    return {
        "input_ids": padded,
        "attention_mask": mask,
        "labels": pad(labels, batch_first=True, padding_value=NO_LABEL),
    }
