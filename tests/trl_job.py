"""A rank of the real GRPOTrainer with the subclass of docs/elsewhere.md, on CPU: `trl_job.py OUT JSON`.

Unless the tiny model is asked to `generate`, completions are a function of prompt, place in the group and step, so
that one process and two see the same.
"""

import json
import os
import random
import re
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.reverse_task import ReverseTask

PAGE = Path(__file__).parents[1] / "docs/elsewhere.md"
GROUP = 4


def rollouts(prompts: list[str], trainer) -> dict[str, list]:
    first = trainer.accelerator.process_index * len(prompts)
    prompt_ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
    completion_ids = []
    for place, prompt in enumerate(prompts, first):
        chosen = random.Random(f"{prompt} {place % GROUP} {trainer.state.global_step}")
        completion_ids.append([chosen.randrange(3, 15) for _ in range(chosen.randint(1, 6))])
    logprobs = [[0.0] * len(ids) for ids in completion_ids]
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs}


def fractions(completion_ids: list[list[int]], **_) -> list[float]:
    return [sum(ids) % 4 / 4 for ids in completion_ids]


def fractions_of_some(completion_ids: list[list[int]], **_) -> list[float | None]:
    """Of some answers there is no telling."""
    return [
        None if sum(ids) % 11 == 0 else reward
        for ids, reward in zip(completion_ids, fractions(completion_ids), strict=True)
    ]


def main(out: Path, over_ranks: bool = False, generate: bool = False, **config) -> None:
    block = re.search(r"^```python\n(# trl_groups\.py\n.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict = {"__name__": "trl_groups"}
    exec(compile(block[1], str(PAGE), "exec"), names)
    losses, gradients = [], []

    class Recorded(names["GroupLossTrainer"]):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            losses.append(float(loss.detach()))
            return loss

    class Gradients(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **_):
            gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))

    tokenizer = tiny_model.make_tokenizer(ReverseTask)
    trainer = Recorded(
        model=tiny_model.make_model(ReverseTask, tokenizer, seed=0),
        processing_class=tokenizer,
        reward_funcs=fractions if generate else fractions_of_some,
        train_dataset=Dataset.from_list([{"prompt": f"{number}="} for number in range(1234, 1298)]),
        rollout_func=None if generate else rollouts,
        callbacks=[Gradients()],
        args=GRPOConfig(
            output_dir=str(out),
            use_cpu=True,
            bf16=False,
            optim="sgd",
            learning_rate=0.3,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            num_generations=GROUP,
            max_completion_length=8,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
            **config,
        ),
    )
    trainer.over_ranks = over_ranks
    start = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    moved = [after.detach() - before for after, before in zip(trainer.model.parameters(), start, strict=True)]
    found = {"losses": losses, "gradients": gradients, "moved": torch.cat([one.flatten() for one in moved])}
    torch.save(found | {"log": trainer.state.log_history}, out / f"rank{os.environ.get('RANK', '0')}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
