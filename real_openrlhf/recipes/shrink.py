"""The one rule by which a run becomes small enough for two CPU cores. Standard library only.

Groups stay whole, several updates of a step stay several, and a budget of N longest samples stays one of N. Whatever
decides a path (packing, budgets, skipping, LoRA, the reference model, ZeRO's stage) stays as it is flagged.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from real_openrlhf.recipes.run import UTILIZATION

STEPS, SAVED = 3, 2  # steps, and the one after which a checkpoint is saved
PROMPTS, UPDATES = 2, 4  # prompts of an update; updates of a step, at most
TOKENS = 32  # of a response, at most
SAMPLES = 2  # responses to a prompt of the validation, at most
FOLLOWS = "follows"  # in place of a value: it is left to what follows from the others

Value = Callable[[str], Any]  # a flag's value, by its name; None where it has none


class Change(NamedTuple):
    """A flag that is not the run's; `after` None: it is taken out."""

    flag: str
    after: str | None
    why: str


def updates(value: Value) -> int:
    rollouts = value("--rollout.batch_size") * value("--rollout.n_samples_per_prompt")
    return min(max(rollouts // value("--train.batch_size"), 1), UPDATES)


def drawn(value: Value) -> int:
    """Prompts that vLLM draws in a step."""
    flagged = value("--rollout.vllm_generate_batch_size") or 0
    return PROMPTS * updates(value) * max(flagged // value("--rollout.batch_size"), 1)


def changes(value: Value, prompt: int, tokens: int = TOKENS) -> Iterator[Change]:
    """`prompt`: tokens of the longest prompt that is trained; `tokens`: of the longest response."""
    ranks = 2 if value("--actor.num_gpus_per_node") == 2 else 1
    group, longest = value("--rollout.n_samples_per_prompt"), value("--data.max_len")
    flagged = value("--rollout.max_new_tokens")
    batch, answer = PROMPTS * group, min(flagged or tokens, tokens)
    sample = min(prompt, longest - (flagged or 1)) + answer
    prompts = PROMPTS * updates(value)
    yield Change("--rollout.batch_size", str(prompts), f"{updates(value)} updates of {PROMPTS} prompts")
    yield Change("--train.batch_size", str(batch), f"{PROMPTS} prompts x {group}: a group stays whole")
    if value("--rollout.vllm_generate_batch_size"):
        yield Change("--rollout.vllm_generate_batch_size", str(drawn(value)), "in its ratio to the batch")
    if flagged:
        yield Change("--rollout.max_new_tokens", str(answer), "a random model has nothing to say")
    if flagged and (overlong := value("--reward.overlong_buffer_len")):
        scaled = max(overlong * answer // flagged, 1)
        yield Change("--reward.overlong_buffer_len", str(scaled), "in its ratio to the response")
    yield Change("--data.max_len", str(sample), f"the longest prompt that is trained has {prompt} tokens")
    for part in ("train", "rollout"):
        if value("--train.dynamic_batch_enable"):
            times = max((value(f"--{part}.max_tokens_per_gpu") or longest) // longest, 1)
            about = f"{times} of the longest samples, as before"
            yield Change(f"--{part}.max_tokens_per_gpu", str(times * sample), about)
        if size := value(f"--{part}.micro_batch_size"):
            yield Change(f"--{part}.micro_batch_size", str(math.gcd(size, batch // ranks)), "at most the batch")
    yield Change("--train.max_steps", str(STEPS), "one to save, one to kill, one to compare")
    yield Change("--ckpt.save_steps", str(SAVED), "the last step is trained again after the kill")
    yield Change("--data.max_samples", None, "all rows are read; those that are trained are chosen")
    yield Change("--train.num_episodes", FOLLOWS, "from the rows")
    if (value("--eval.steps") or -1) > 0:
        yield Change("--eval.steps", str(STEPS), "at the start and at the end, as flagged")
    yield Change("--eval.n_samples_per_prompt", str(min(value("--eval.n_samples_per_prompt") or 1, SAMPLES)), "a few")
    # what a CPU lacks, or two cores have no room for
    layout = f"two cores: {ranks} rank{'s' * (ranks > 1)}"
    yield Change("--actor.num_gpus_per_node", str(ranks), layout)
    for flag in ("--actor.num_nodes", "--vllm.tensor_parallel_size"):
        yield Change(flag, "1", layout)
    for flag in ("--ds.ring_attn_size", "--ds.tensor_parallel_size"):
        yield Change(flag, None, layout)
    for flag in ("--vllm.num_engines", "--ref.num_nodes", "--ref.num_gpus_per_node"):
        yield Change(flag, FOLLOWS, "from the ranks")
    yield Change("--vllm.sync_backend", "gloo", "NCCL needs GPUs")
    yield Change("--vllm.enforce_eager", "", "nothing to compile for three steps")
    yield Change("--vllm.enable_sleep", None, "vLLM's CPU worker has no memory to give back")
    yield Change(UTILIZATION, "0.3", "of a GPU's memory; vLLM's CPU worker takes 1 GB")
    if value("--ds.attn_implementation") in ("flash_attention_2", "flash_attention_3"):
        yield Change("--ds.attn_implementation", "flash_attention_torch", "the same packed paths, of PyTorch")
    for flag in ("--ds.adam_offload", "--ds.load_in_4bit", "--ds.use_liger_kernel", "--ds.deepcompile"):
        yield Change(flag, None, "needs a GPU")
