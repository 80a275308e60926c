"""The forecast of a GPU's memory, and of the disk that a run fills. Standard library only."""

import math
from collections.abc import Iterator
from types import SimpleNamespace

from real_openrlhf.flags.memory import Shape, peak
from real_openrlhf.training.checks import Note

GB = 1e9

# Published shapes, so that a dry run needs no download; a model on disk is read instead.
_QWEN = {"num_hidden_layers": 28, "tie_word_embeddings": False, "model_type": "qwen2"}
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
KNOWN_CONFIGS = {
    f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{name}": {**_QWEN, **dict(zip(_SIZES, sizes, strict=True))}
    for name, sizes in {"1.5B": (1536, 8960, 12, 2, 151936), "7B": (3584, 18944, 28, 4, 152064)}.items()
}


def disk(shape: Shape, args: SimpleNamespace) -> float:
    """The most bytes under the run folder: an old checkpoint goes when the new one is whole."""
    ckpt, adapters = args.ckpt, shape.adapter_parameters(args.ds.lora.rank)
    saves = math.ceil(args.train.max_steps / ckpt.save_steps) if ckpt.save_steps > 0 else 0  # the last step too
    # fp32 weights and moments of trained parameters, and all bf16 weights
    checkpoint = 12.0 * (adapters or shape.parameters) + 2 * (shape.parameters + adapters)
    models = saves * 2.0 * shape.parameters if ckpt.save_hf else 0.0  # never rotated
    return min(ckpt.max_num + 1, saves) * checkpoint + models + (4.0 * adapters or 2.0 * shape.parameters)


def check(shape: Shape, args: SimpleNamespace, gpu_gb: float) -> Iterator[str]:
    need, most = (size / GB for size in peak(shape, args, gpu_gb * GB))
    less = "more GPUs, --ds.zero_stage 3, --ds.adam_offload, --ref.offload or a smaller --train.max_tokens_per_gpu"
    size, why = f"{need:.1f}", ""
    if most > need:
        size, why = f"{need:.1f} to {most:.1f}", "; what is free saves forward passes"
    estimate = f"memory per GPU: {size} of {gpu_gb:.0f} GB (upper estimate, not compared with a GPU yet{why})"
    yield Note(f"{estimate}. It may not fit: {less}" if need > gpu_gb else estimate)
