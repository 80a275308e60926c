"""TRL's own step: `GRPOTrainer.train()` at learning rate 0; responses, rewards and old log-probabilities are ours."""

import tempfile

import batch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback

SIZE = 4  # TRL takes whole groups only: the two incomplete ones are one here


def gradient(loss, size=16, width=0, per_generation=None, accumulate=None, rank=0, world=1, **more):
    """The gradients of a generation's optimizer steps, averaged."""
    accumulate = accumulate or 16 // size // world
    per_generation = per_generation or accumulate
    steps = max(1, per_generation // accumulate)
    rows, kept = batch.rows(), []
    by_response = {tuple(row["response"]): row for row in rows}

    def rollout(prompts, trainer):
        # the sampler deals each prompt SIZE times in a row, over the ranks' shares
        first = trainer.accelerator.process_index * len(prompts)
        picked = [rows[int(word[1:]) * SIZE + (first + i) % SIZE] for i, word in enumerate(prompts)]
        prompts = [rows[row["n"] // SIZE * SIZE]["prompt"] for row in picked]
        return dict(prompt_ids=prompts, completion_ids=[row["response"] for row in picked], logprobs=None)

    class Trainer(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            made = super()._generate_and_score_completions(inputs)
            mask = made["completion_mask"]
            responses = [ids[m.bool()].tolist() for ids, m in zip(made["completion_ids"], mask, strict=True)]
            part = [by_response[tuple(response)] for response in responses]
            return made | {"old_per_token_logps": batch.column(part, "old", mask)}

    class Keep(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **_):
            kept.append(batch.gradient(model).clone())

    words = {"<pad>": 0, "<eos>": 1, **{f"w{n}": n + 2 for n in range(batch.VOCAB - 2)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    settings = dict(
        output_dir=tempfile.mkdtemp(), loss_type=loss, per_device_train_batch_size=size, num_generations=SIZE,
        gradient_accumulation_steps=accumulate, steps_per_generation=per_generation, max_completion_length=24,
        max_steps=steps, learning_rate=0.0, optim="sgd", max_grad_norm=0.0, use_cpu=True, bf16=False, report_to="none",
        save_strategy="no", logging_strategy="no", shuffle_dataset=False, gradient_checkpointing=False,
        disable_tqdm=True, seed=1, beta=0.0, **({"pad_to_multiple_of": width} if width else {}), **more,
    )  # fmt: skip
    trainer = Trainer(
        model=batch.model(),
        reward_funcs=lambda completion_ids, **_: [by_response[tuple(ids)]["reward"] for ids in completion_ids],
        args=trl.GRPOConfig(**settings),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
        # longer than one window of accumulation: a short last window hides a wrong divisor
        train_dataset=Dataset.from_dict({"prompt": [f"w{group}" for group in range(16 // SIZE)] * 4}),
        rollout_func=rollout,
        callbacks=[Keep()],
    )
    trainer.train()
    assert len(kept) == steps, kept
    return sum(kept) / steps
