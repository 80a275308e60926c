"""One upper estimate of a GPU's memory, and of the disk that a run fills. Standard library only.

The sums are over known tensors. Nobody has compared them with a GPU yet.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from real_openrlhf.algorithm import graph_memory
from real_openrlhf.algorithm.graph_memory import LOGITS_AT_ONCE_ON_GPU, RUNTIME_BYTES, resident_bytes
from real_openrlhf.training.checks.findings import Note

GB = 1e9
BLOCK_BYTES = 14  # per logit: bf16 and fp32 of this block, fp32 of the block before, and the exponentials

# Published shapes, so that a dry run needs no download; a model on disk is read instead.
_QWEN = {"num_hidden_layers": 28, "tie_word_embeddings": False, "model_type": "qwen2"}
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
KNOWN_CONFIGS = {
    f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{name}": {**_QWEN, **dict(zip(_SIZES, sizes, strict=True))}
    for name, sizes in {"1.5B": (1536, 8960, 12, 2, 151936), "7B": (3584, 18944, 28, 4, 152064)}.items()
}


@dataclass(frozen=True)
class Shape:
    """A dense decoder of the Llama and Qwen family."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    attention_width: int
    kv_width: int
    vocabulary: int
    parameters: int

    def adapter_parameters(self, rank: int) -> int:
        """LoRA on every linear layer but the head: rank x (inputs + outputs)."""
        h, a, kv, i = self.hidden, self.attention_width, self.kv_width, self.intermediate
        return self.layers * rank * ((h + a) + 2 * (h + kv) + (a + h) + 3 * (h + i))


def shape_of(config: Mapping) -> Shape | None:
    """The shape in a model's config.json; None for what these sums do not describe (experts, other families)."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    sizes: list[Any] = [config.get(name) for name in names]
    if any("expert" in key for key in config) or not all(type(size) is int and size > 0 for size in sizes):
        return None
    hidden, intermediate, layers, heads, vocabulary = sizes
    head = config.get("head_dim") or hidden // heads
    a, kv = heads * head, (config.get("num_key_value_heads") or heads) * head
    bias = a + 2 * kv if config.get("attention_bias", config.get("model_type") == "qwen2") else 0
    layer = hidden * 2 * (a + kv) + 3 * hidden * intermediate + bias + 2 * hidden  # with two norms
    tables = vocabulary * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    return Shape(hidden, intermediate, layers, heads, a, kv, vocabulary, layers * layer + tables + hidden)


def states(shape: Shape, args: SimpleNamespace) -> float:
    """Bytes on one GPU that stay from step to step while the policy trains."""
    ds, adapters = args.ds, shape.adapter_parameters(args.ds.lora.rank)
    offloaded = args.ref.offload and ds.zero_stage >= 3  # DeepSpeed moves weights to the host under ZeRO-3 only
    how: dict[str, Any] = {name: getattr(ds, name) for name in ("zero_stage", "overlap_comm", "adam_offload")}
    how |= {"gpus": args.derived.layout.ranks, "gradient_bytes": 4 if ds.grad_accum_dtype == "fp32" else 2}
    how |= {"head": shape.vocabulary * shape.hidden}
    how |= {"reference": shape.parameters if args.derived.reference and not offloaded else 0}
    return sum(resident_bytes(shape.parameters + adapters, adapters or shape.parameters, **how).values())


def tokens(args: SimpleNamespace, when: str) -> int:
    """Tokens of one micro-batch: with gradients (`train`), or without (`rollout`)."""
    part, train = getattr(args, when), args.train
    samples = part.micro_batch_size * args.data.max_len
    return (part.max_tokens_per_gpu or train.max_tokens_per_gpu) if train.dynamic_batch_enable else samples


def moments(shape: Shape, args: SimpleNamespace) -> tuple[float, float, float]:
    """Bytes beside the states in the head, in one layer, and while rollouts are scored. They never coincide."""
    a, kv, h, i = shape.attention_width, shape.kv_width, shape.hidden, shape.intermediate
    train, rollout = tokens(args, "train"), tokens(args, "rollout")
    # A layer keeps for its backward: of both norms the input in fp32, and the output in bf16 with and without weight;
    # in bf16: q and k rotated, v, attention's output; gate, up, activation, product.
    layer = 2 * 8 * h + 2 * (2 * a + 2 * kv) + 2 * 4 * i
    if "flash" not in args.ds.attn_implementation:
        layer += shape.heads * args.data.max_len * 6  # scores in fp32 and bf16
    again = args.actor.gradient_checkpointing_enable
    kept = (2 * h if again else layer) * shape.layers
    working = (layer if again else 0) + 2 * h + 2 * 2 * i  # gradients of the output, and of two of the MLP's
    # two residuals, norm; gate, up, product; an adapter's output for one of them
    scoring = rollout * 2 * (4 * h + (4 if args.ds.lora.rank else 3) * i)
    if args.ds.fused_logprobs:  # a block of logits, or what is left of it beside the hidden states' gradient in fp32
        blocks = max(BLOCK_BYTES * LOGITS_AT_ONCE_ON_GPU, 10 * LOGITS_AT_ONCE_ON_GPU + train * 4 * h)
        head = train * (8 + 4) * h + blocks
        scoring = max(scoring, rollout * 4 * h + LOGITS_AT_ONCE_ON_GPU * BLOCK_BYTES)
    else:  # bf16 logits, their fp32 copy and its gradient; logging the entropy holds two tables more
        head = train * shape.vocabulary * (2 + 4 + 4 + (8 if args.actor.entropy_coef is not None else 0))
        scoring = max(scoring, rollout * shape.vocabulary * (2 + 4))
    head += 0 if args.ds.lora.rank else 2 * shape.vocabulary * h
    return train * kept + head, train * (kept + working), scoring


def peak(shape: Shape, args: SimpleNamespace, gpu_bytes: float) -> float:
    """Bytes on one GPU at the peak of a training step, at most."""
    vllm, fixed = args.vllm, states(shape, args) + RUNTIME_BYTES
    if args.derived.layout.colocated and not vllm.enable_sleep:
        fixed += vllm.gpu_memory_utilization * gpu_bytes
    head, layer, scoring = moments(shape, args)
    graphs = 0.0  # kept while ranks exchange scores, beside those of one micro-batch (hooks/policy_trainer.py)
    if args.derived.in_waves:
        sizes, ds = (shape.hidden, shape.intermediate, shape.layers, shape.vocabulary), args.ds
        again = args.actor.gradient_checkpointing_enable
        each = graph_memory.graph_bytes_per_token(*sizes, checkpointing=again, fused_logprobs=ds.fused_logprobs)
        graphs = max(graph_memory.live_tokens(gpu_bytes - fixed, each) - tokens(args, "train"), 0.0) * each
    return fixed + max(head + graphs, layer + graphs, scoring)


def disk(shape: Shape, args: SimpleNamespace) -> float:
    """The most bytes under the run folder: an old checkpoint goes when the new one is whole."""
    ckpt, adapters = args.ckpt, shape.adapter_parameters(args.ds.lora.rank)
    saves = math.ceil(args.train.max_steps / ckpt.save_steps) if ckpt.save_steps > 0 else 0  # the last step too
    # fp32 weights and moments of trained parameters, and all bf16 weights
    checkpoint = 12.0 * (adapters or shape.parameters) + 2 * (shape.parameters + adapters)
    models = saves * 2.0 * shape.parameters if ckpt.save_hf else 0.0  # never rotated
    return min(ckpt.max_num + 1, saves) * checkpoint + models + (4.0 * adapters or 2.0 * shape.parameters)


def check(shape: Shape, args: SimpleNamespace, gpu_gb: float) -> Iterator[str]:
    memory = peak(shape, args, gpu_gb * GB) / GB
    less = "more GPUs, --ds.zero_stage 3, --ds.adam_offload, --ref.offload or a smaller --train.max_tokens_per_gpu"
    estimate = f"memory per GPU: {memory:.1f} of {gpu_gb:.0f} GB (upper estimate, not compared with a GPU yet)"
    yield Note(f"{estimate}. It may not fit: {less}" if memory > gpu_gb else estimate)
