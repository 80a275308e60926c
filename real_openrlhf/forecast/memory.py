"""One arithmetic of a training rank's memory: for the forecast before a start, and for the plan of waves in a run. And
the disk that a run fills.

Bytes follow from a model's shape and the run's complete arguments. Standard library only. The sums are over known
tensors; nobody has compared them with a GPU yet.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from real_openrlhf.algorithm.token_blocks import LOGITS_AT_ONCE_ON_GPU
from real_openrlhf.base.files import amount
from real_openrlhf.flags.derived import MicroBatch

GB = 1e9
LOGIT_BYTES = 12  # per logit of a kept graph: fp32 logit, softmax and gradient; measurements gave 9 to 18
BLOCK_BYTES = 14  # per logit: bf16 and fp32 of this block, fp32 of the block before, and the exponentials
HEAD_BYTES = 8  # per entry of a hidden state, with a fused head: the last norm's input in fp32, its two bf16 results
GATHERED_PARAMETERS = 1_000_000_000  # DeepSpeed's stage3_max_live_parameters
BUCKET = 500_000_000  # numbers of a gradient that DeepSpeed collects before ranks exchange them (reduce_bucket_size)
# Of a GPU, a guess: NCCL, graphs, cuBLAS, contexts, fragmentation; the last two took 2.3 to 3.2 GB in tests/paper_gpu,
# where a context is assumed to take 0.5 GB.
RUNTIME_BYTES = 5e9
LIVE_FRACTION = 0.6  # of what states and runtime leave, for kept graphs; the rest is for a micro-batch's temporaries


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


# Published shapes, so that a dry run needs no download; a model on disk is read instead.
_QWEN = {"num_hidden_layers": 28, "tie_word_embeddings": False, "model_type": "qwen2"}
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
KNOWN_CONFIGS = {
    f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{name}": {**_QWEN, **dict(zip(_SIZES, sizes, strict=True))}
    for name, sizes in {"1.5B": (1536, 8960, 12, 2, 151936), "7B": (3584, 18944, 28, 4, 152064)}.items()
}


def shape_of(config: Mapping) -> Shape | None:
    """The shape in a model's config.json; None for what these sums do not describe (experts, other families)."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    sizes: list[Any] = [config.get(name) for name in names]
    described = all(type(size) is int and size > 0 for size in sizes) and not any("expert" in key for key in config)
    return any_shape(config) if described else None


def any_shape(config: Mapping) -> Shape:
    """As if the model were of that family."""
    hidden, layers, vocabulary = (config[name] for name in ("hidden_size", "num_hidden_layers", "vocab_size"))
    intermediate, heads = config.get("intermediate_size") or 4 * hidden, config.get("num_attention_heads") or 1
    head = config.get("head_dim") or hidden // heads
    a, kv = heads * head, (config.get("num_key_value_heads") or heads) * head
    bias = a + 2 * kv if config.get("attention_bias", config.get("model_type") == "qwen2") else 0
    layer = hidden * 2 * (a + kv) + 3 * hidden * intermediate + bias + 2 * hidden  # with two norms
    tables = vocabulary * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    return Shape(hidden, intermediate, layers, heads, a, kv, vocabulary, layers * layer + tables + hidden)


def states(shape: Shape, args: SimpleNamespace, adapters: int) -> dict[str, float]:
    """Bytes on one of the policy's GPUs that stay throughout a micro-batch's backward pass, by part.

    `adapters` are the parameters of LoRA beside the shape's; 0: every weight is trained.
    """
    parameters, head = shape.parameters + adapters, shape.vocabulary * shape.hidden
    ds, gpus, trained = args.ds, args.derived.layout.data_parallel, adapters or parameters
    sharded = gpus if ds.zero_stage >= 3 else 1
    bits = 32 if ds.grad_accum_dtype == "fp32" else 16
    memory = {"weights (bf16)": 2 * parameters / sharded}
    if ds.zero_stage >= 3:
        memory["gathered for use, at most"] = 2 * min(parameters, max(GATHERED_PARAMETERS, head))
    memory[f"gradients, added up in {bits} bits"] = bits // 8 * trained / (gpus if ds.zero_stage >= 2 else 1)
    memory["buckets of gradients (bf16)"] = 2 * BUCKET * (2 if ds.overlap_comm and ds.zero_stage < 3 else 1)
    if ds.zero_stage < 3 and not ds.adam_offload:
        memory["a micro-batch's gradients (bf16)"] = 2 * trained / gpus
    if not ds.adam_offload:
        memory["Adam: fp32 weights and two moments"] = 12 * trained / (gpus if ds.zero_stage >= 1 else 1)
    offloaded = args.ref.offload and ds.zero_stage >= 3  # DeepSpeed moves weights to the host under ZeRO-3 only
    if args.derived.reference and not (offloaded or args.derived.layout.reference_gpus):
        memory["reference model (bf16)"] = 2 * shape.parameters / sharded
    return memory


def left_on(args: SimpleNamespace, gpu_bytes: float) -> float:
    """What CUDA, NCCL and an awake vLLM leave of a GPU."""
    awake = args.derived.layout.colocated and not args.vllm.enable_sleep
    return gpu_bytes - RUNTIME_BYTES - (args.vllm.gpu_memory_utilization * gpu_bytes if awake else 0)


def layer_bytes(shape: Shape, args: SimpleNamespace) -> int:
    """What a layer keeps of a token for its backward: of both norms the input in fp32, and the output in bf16 with and
    without weight; in bf16 q and k rotated, v, attention's output; gate, up, activation, product."""
    layer = 2 * 8 * shape.hidden + 2 * (2 * shape.attention_width + 2 * shape.kv_width) + 2 * 4 * shape.intermediate
    if "flash" not in args.ds.attn_implementation:
        layer += shape.heads * args.data.max_len * 6  # scores in fp32 and bf16
    return layer


def kept_bytes(shape: Shape, args: SimpleNamespace) -> int:
    """What all layers keep of a token: with checkpointing each layer's input only."""
    again = args.actor.gradient_checkpointing_enable
    return shape.layers * (2 * shape.hidden if again else layer_bytes(shape, args))


def graph_bytes(shape: Shape, args: SimpleNamespace) -> int:
    """A token's graph that waits for the exchange of scores."""
    head = HEAD_BYTES * shape.hidden if args.ds.fused_logprobs else LOGIT_BYTES * shape.vocabulary
    return kept_bytes(shape, args) + head


def live_tokens(shape: Shape, args: SimpleNamespace, adapters: int, free: float) -> float:
    """Tokens whose graphs are kept at once, at most, in this many bytes that states share with them."""
    left = free - sum(states(shape, args, adapters).values())
    return max(LIVE_FRACTION * left, 0.0) // graph_bytes(shape, args)


def tokens(args: SimpleNamespace, when: Literal["train", "rollout"]) -> int:
    """Of one micro-batch, at most."""
    limit = MicroBatch.of(args, when)
    return limit.tokens or (limit.rollouts or 1) * args.data.max_len


def moments(shape: Shape, args: SimpleNamespace) -> tuple[float, float, float]:
    """Bytes beside the states in the head, in one layer, and while rollouts are scored. They never coincide."""
    h, i = shape.hidden, shape.intermediate
    train, rollout = tokens(args, "train"), tokens(args, "rollout")
    layer, kept, again = layer_bytes(shape, args), kept_bytes(shape, args), args.actor.gradient_checkpointing_enable
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


def most_live(args: SimpleNamespace) -> int:
    """Tokens of a rank whose graphs the plan keeps at once, were there memory: an update's, or those asked for."""
    ranks, size, asked = args.derived.layout.data_parallel, args.data.max_len, args.algo.real.max_live_micro_batches
    update, group = (-(-n // ranks) * size for n in (args.train.batch_size, args.rollout.n_samples_per_prompt))
    return update if asked == "auto" else min(update, max(int(asked) * tokens(args, "train"), group))


def peak(shape: Shape, args: SimpleNamespace, gpu_bytes: float) -> tuple[float, float]:
    """Bytes on one GPU at the peak of a training step, at most: needed, and used to save forward passes."""
    adapters, free = shape.adapter_parameters(args.ds.lora.rank), left_on(args, gpu_bytes)
    head, layer, scoring = moments(shape, args)
    graphs = 0.0  # kept while ranks exchange scores, beside those of one micro-batch
    if args.derived.in_waves:
        live = min(live_tokens(shape, args, adapters, free), most_live(args))
        graphs = max(live - tokens(args, "train"), 0.0) * graph_bytes(shape, args)
    resident = gpu_bytes - free + sum(states(shape, args, adapters).values())
    return resident + max(head, layer, scoring), resident + max(head + graphs, layer + graphs, scoring)


def forecast(shape: Shape, args: SimpleNamespace, gpu_gb: float) -> str:
    """A line for a dry run."""
    need, most = (size / GB for size in peak(shape, args, gpu_gb * GB))
    less = "more GPUs, --ds.zero_stage 3, --ds.adam_offload, --ref.offload or a smaller --train.max_tokens_per_gpu"
    size, why = f"{need:.1f}", ""
    if most > need:
        size, why = f"{need:.1f} to {most:.1f}", "; what is free saves forward passes"
    about = f"upper estimate, not compared with a GPU yet{why}; nvidia-smi also shows cached memory"
    estimate = f"memory per GPU: {size} of {gpu_gb:.0f} GB allocated ({about})"
    return f"{estimate}. It may not fit: {less}" if need > gpu_gb else estimate


def engine_problems(shape: Shape, args: SimpleNamespace, gpu_gb: float) -> Iterator[str]:
    """No estimate: vLLM does not start where its share of the card, counted in GiB, is below the weights alone."""
    share, width = args.vllm.gpu_memory_utilization, args.vllm.tensor_parallel_size
    weights = 2 * shape.parameters / width
    if args.vllm.num_engines and weights > share * gpu_gb * 2**30:
        yield (
            f"vLLM cannot start: weights of {amount(weights)} per GPU, and --vllm.gpu_memory_utilization {share:g} of "
            f"{gpu_gb:.0f} GB. Give more, a smaller model, a recipe for a larger GPU, or --vllm.tensor_parallel_size"
        )


def disk(shape: Shape, args: SimpleNamespace) -> float:
    """The most bytes under the run folder: an old checkpoint goes when the new one is whole."""
    ckpt, adapters = args.ckpt, shape.adapter_parameters(args.ds.lora.rank)
    saves = math.ceil(args.train.max_steps / ckpt.save_steps) if ckpt.save_steps > 0 else 0  # the last step too
    models = saves * 2.0 * shape.parameters if ckpt.save_hf else 0.0  # never rotated
    return min(ckpt.max_num + 1, saves) * checkpoint(shape, args) + models + (4.0 * adapters or 2.0 * shape.parameters)


def checkpoint(shape: Shape, args: SimpleNamespace) -> float:
    """Bytes: fp32 weights and moments of trained parameters, and all bf16 weights."""
    adapters = shape.adapter_parameters(args.ds.lora.rank)
    return 12.0 * (adapters or shape.parameters) + 2 * (shape.parameters + adapters)


def pinned(shape: Shape, args: SimpleNamespace) -> tuple[float, float]:
    """Bytes of a node's memory for what sleeps, Adam's states and vLLM's weights by turns: exactly, and with each
    block rounded up to a power of two, as PyTorch pins it."""
    layout, h, a = args.derived.layout, shape.hidden, shape.attention_width
    trained, width = shape.adapter_parameters(args.ds.lora.rank) or shape.parameters, args.vllm.tensor_parallel_size
    blocks: list[float] = []  # that vLLM and DeepSpeed copy each for itself
    if args.ds.enable_sleep or args.ds.adam_offload:  # fp32 weights and two moments
        blocks += 3 * layout.ranks * [4 * trained / (layout.data_parallel if args.ds.zero_stage >= 1 else 1)]
    if args.vllm.enable_sleep:
        layer = (h * (a + 2 * shape.kv_width), a * h, 2 * h * shape.intermediate, h * shape.intermediate)
        tables = [shape.vocabulary * h] * round((shape.parameters - shape.layers * sum(layer)) / shape.vocabulary / h)
        weights = [2 * block / width for block in (*shape.layers * layer, *tables)]
        blocks += weights * (args.vllm.num_engines or 0) * width
    rounded = sum(2.0 ** math.ceil(math.log2(block)) for block in blocks)
    return sum(blocks) / layout.policy_nodes, rounded / layout.policy_nodes
