"""Needs of a run, before you rent GPUs: memory of each GPU, disk for checkpoints; and token budgets that fill a GPU.

Standard library only. The sums are over known tensors, and round up where the allocator decides. CUDA, NCCL and
fragmentation have a line of their own. Nobody has compared the sums with a GPU yet.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from real_openrlhf.algorithm import graph_memory
from real_openrlhf.algorithm.graph_memory import LOGITS_AT_ONCE_ON_GPU, RUNTIME_BYTES, resident_bytes
from real_openrlhf.recipes.plan import DERIVED, Plan, Setting
from real_openrlhf.training.checks.findings import Line, Note

GB = 1e9
TRAINING, GENERATION = "training", "generation"
RUNTIME_GB = {TRAINING: RUNTIME_BYTES / GB, GENERATION: 3.0}  # vLLM counts its own within its share
BLOCK_BYTES = 14  # per logit: bf16 and fp32 of this block, fp32 of the block before, and the exponentials
TRAIN, ROLLOUT = "train", "rollout"
ACTIVATIONS = "activations at their largest"

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
    tied: bool
    attention_bias: bool

    @property
    def head(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        attention = self.hidden * 2 * (self.attention_width + self.kv_width)
        bias = self.attention_width + 2 * self.kv_width if self.attention_bias else 0
        layer = attention + 3 * self.hidden * self.intermediate + bias + 2 * self.hidden  # with two norms
        return self.layers * layer + self.head * (1 if self.tied else 2) + self.hidden

    def adapter_parameters(self, rank: int) -> int:
        """LoRA on every linear layer but the head: rank x (inputs + outputs)."""
        h, a, kv, i = self.hidden, self.attention_width, self.kv_width, self.intermediate
        return self.layers * rank * ((h + a) + 2 * (h + kv) + (a + h) + 3 * (h + i))


def shape_of(config: Mapping) -> Shape | None:
    """The shape in a model's config.json; None for what these sums do not describe (experts, other families)."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    sizes = [config.get(name) for name in names]
    if any("expert" in key for key in config) or not all(type(size) is int and size > 0 for size in sizes):
        return None
    heads = config["num_attention_heads"]
    head_width = config.get("head_dim") or config["hidden_size"] // heads
    return Shape(
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        attention_width=heads * head_width,
        kv_width=(config.get("num_key_value_heads") or heads) * head_width,
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        attention_bias=config.get("attention_bias", config.get("model_type") == "qwen2"),
    )


def trained_parameters(shape: Shape, plan: Plan) -> int:
    return shape.adapter_parameters(plan.args.ds.lora.rank) or shape.parameters


def gradient_bytes(plan: Plan) -> int:
    """Bytes of a number in the format that sums up micro-batches."""
    return 4 if plan.args.ds.grad_accum_dtype == "fp32" else 2


def offloads_reference(plan: Plan) -> bool:
    """DeepSpeed moves weights to the host under ZeRO-3 only."""
    return plan.needs_reference and plan.args.ref.offload and plan.args.ds.zero_stage >= 3


def tokens(plan: Plan, when: str) -> int:
    """Tokens of one micro-batch: with gradients (TRAIN), or without (ROLLOUT)."""
    if not plan.args.train.dynamic_batch_enable:
        return getattr(plan.args, when).micro_batch_size * plan.args.data.max_len
    return getattr(plan.args, when).max_tokens_per_gpu or plan.args.train.max_tokens_per_gpu


def rollouts(plan: Plan) -> int:
    return plan.args.rollout.batch_size * plan.args.rollout.n_samples_per_prompt


def states(shape: Shape, plan: Plan) -> dict[str, float]:
    """Bytes on one GPU that stay from step to step while the policy trains."""
    return resident_bytes(
        shape.parameters + shape.adapter_parameters(plan.args.ds.lora.rank),
        trained_parameters(shape, plan),
        gpus=plan.ranks,
        zero_stage=plan.args.ds.zero_stage,
        head=shape.head,
        gradient_bytes=gradient_bytes(plan),
        overlap_comm=plan.args.ds.overlap_comm,
        adam_offload=plan.args.ds.adam_offload,
        reference=shape.parameters if plan.needs_reference and not offloads_reference(plan) else 0,
    )


def moments(shape: Shape, plan: Plan) -> dict[str, float]:
    """Bytes on one GPU at different moments of a step. They never coincide, so only the largest counts."""
    a, kv, h, i = shape.attention_width, shape.kv_width, shape.hidden, shape.intermediate
    # A layer keeps for its backward: of both norms the input in fp32, and the output in bf16 with and without weight;
    # in bf16: q and k rotated, v, attention's output; gate, up, activation, product.
    layer = 2 * 8 * h + 2 * (2 * a + 2 * kv) + 2 * 4 * i
    if "flash" not in plan.args.ds.attn_implementation:
        layer += shape.heads * plan.args.data.max_len * 6  # scores in fp32 and bf16
    again = plan.args.actor.gradient_checkpointing_enable
    kept = (2 * h if again else layer) * shape.layers
    working = (layer if again else 0) + 2 * h + 2 * 2 * i  # gradients of the output, and of two of the MLP's
    trains_head = 0 if plan.args.ds.lora.rank else 2 * shape.head
    head = "the head" if plan.args.ds.logit_free else "the logits"
    offloaded, gpus = plan.args.ds.adam_offload, plan.ranks
    return {
        f"{ACTIVATIONS}: {head}": (tokens(plan, TRAIN) * kept + head_work(shape, plan) + trains_head),
        f"{ACTIVATIONS}: one layer": tokens(plan, TRAIN) * (kept + working),
        "log-probabilities of rollouts": rollout_work(shape, plan),
        "gradients in fp32 during the update": 0 if offloaded else 4 * trained_parameters(shape, plan) / gpus,
    }


def head_work(shape: Shape, plan: Plan) -> float:
    """Bytes of the head's forward and backward, without its weight and that weight's gradient."""
    if not plan.args.ds.logit_free:
        # bf16 logits, their fp32 copy and its gradient; logging the entropy holds two tables more
        tables = 2 + 4 + 4 + (8 if plan.args.actor.entropy_coef is not None else 0)
        return tokens(plan, TRAIN) * shape.vocabulary * tables
    # Per token: 8 bytes per hidden number are kept, and its gradient in fp32. A block takes 14 bytes per logit when it
    # is made (BLOCK_BYTES), later 10, and then the block's part of the hidden states' gradient in fp32.
    made = BLOCK_BYTES * LOGITS_AT_ONCE_ON_GPU
    later = 10 * LOGITS_AT_ONCE_ON_GPU + tokens(plan, TRAIN) * 4 * shape.hidden
    return tokens(plan, TRAIN) * (8 + 4) * shape.hidden + max(made, later)


def rollout_work(shape: Shape, plan: Plan) -> float:
    """A forward without gradients: a layer with the embeddings, or the head, whichever is more."""
    count = tokens(plan, ROLLOUT)
    # two residuals, norm; gate, up, product; an adapter's output for one of them
    layer = count * 2 * (4 * shape.hidden + (4 if plan.args.ds.lora.rank else 3) * shape.intermediate)
    if plan.args.ds.logit_free:
        return max(layer, count * 4 * shape.hidden + LOGITS_AT_ONCE_ON_GPU * BLOCK_BYTES)
    return max(layer, count * shape.vocabulary * (2 + 4))


def kept_graphs(shape: Shape, plan: Plan, gpu_bytes: float) -> float:
    """Bytes of a wave's graphs beside those of one micro-batch, at most (hooks/actor/kept_graphs.py)."""
    depth = plan.args.algo.real.wave_depth
    if not plan.in_waves:
        return 0.0
    sizes = shape.hidden, shape.intermediate, shape.layers, shape.vocabulary
    again, logit_free = plan.args.actor.gradient_checkpointing_enable, plan.args.ds.logit_free
    per_token = graph_memory.graph_bytes_per_token(*sizes, checkpointing=again, logit_free=logit_free)
    left = gpu_bytes - RUNTIME_BYTES - sum(states(shape, plan).values())
    if plan.colocated and not plan.args.vllm.enable_sleep:
        left -= plan.args.vllm.gpu_memory_utilization * gpu_bytes
    further = graph_memory.kept_tokens(left, per_token) - tokens(plan, TRAIN)
    if depth.isdecimal():
        further = min(further, (int(depth) - 1) * tokens(plan, TRAIN))
    return max(further, 0.0) * per_token


def training_memory(shape: Shape, plan: Plan, gpu_bytes: float) -> dict[str, float]:
    """Bytes on one GPU at the peak of a training step."""
    kept = kept_graphs(shape, plan, gpu_bytes)
    beside = {name: kept if name.startswith(ACTIVATIONS) else 0.0 for name in moments(shape, plan)}
    name, largest = max(moments(shape, plan).items(), key=lambda item: item[1] + beside[item[0]])
    further = {"graphs of further micro-batches, at most": kept} if beside[name] else {}
    return {**states(shape, plan), name: largest, **further}


def generation_memory(shape: Shape, plan: Plan, gpu_bytes: float) -> dict[str, float]:
    """Bytes on one GPU while vLLM generates; only colocated roles share it."""
    share = plan.args.vllm.gpu_memory_utilization
    memory = {f"vLLM, {share:.0%} of the GPU": share * gpu_bytes}
    if plan.colocated:
        stays = ("weights (bf16)", "reference model (bf16)")
        for name, size in states(shape, plan).items():
            if name in stays or not plan.args.ds.enable_sleep:
                memory[f"resident: {name}"] = size
    return memory


def engine_needs(shape: Shape, plan: Plan) -> float:
    """Bytes on one of an engine's GPUs without which vLLM does not start: weights, keys and values of one answer."""
    cache = 2 * 2 * shape.layers * shape.kv_width * plan.args.data.max_len
    return (2 * shape.parameters + cache) / plan.args.vllm.tensor_parallel_size


def disk(shape: Shape, plan: Plan, ended: bool = False) -> dict[str, float]:
    """The most bytes under the run folder, or those at its end: an old checkpoint goes when the new one is whole."""
    every = plan.args.ckpt.save_steps
    saves = math.ceil(plan.args.train.max_steps / every) if every > 0 else 0  # the last step is saved too
    kept = min(plan.args.ckpt.max_num + (not ended), saves)
    adapters = shape.adapter_parameters(plan.args.ds.lora.rank)
    # fp32 weights and moments of trained parameters, and all bf16 weights
    checkpoint = 12.0 * (adapters or shape.parameters) + 2 * (shape.parameters + adapters)
    sizes = {f"{kept} DeepSpeed checkpoints": kept * checkpoint} if kept else {}
    if plan.args.ckpt.save_hf and saves:
        sizes[f"{saves} HF models beside them (never rotated)"] = saves * 2.0 * shape.parameters
    sizes["final adapter" if adapters else "final HF model"] = 4.0 * adapters if adapters else 2.0 * shape.parameters
    return sizes


def check(shape: Shape, plan: Plan, gpu_gb: float, measured: bool, on_cpu: bool = False) -> Iterator[str]:
    """Lines, and notes on what may not fit. `measured`: `gpu_gb` was read."""
    training, generation = training_memory(shape, plan, gpu_gb * GB), generation_memory(shape, plan, gpu_gb * GB)
    if plan.colocated and not plan.args.vllm.enable_sleep:
        training |= {name: size for name, size in generation.items() if name.startswith("vLLM")}
    count = shape.parameters
    yield Line(f"model: {count / 1e9:.2f} B parameters" if count > 1e8 else f"model: {count:,} parameters")
    phases = {TRAINING: training, **({GENERATION: generation} if plan.colocated else {})}
    for phase, memory in () if on_cpu else tuple(phases.items()):
        total = sum(memory.values()) / GB + RUNTIME_GB[phase]
        yield from sized(f"memory per GPU, {phase}: {total:.1f} GB (upper estimate)", memory)
        yield Line(f"    {RUNTIME_GB[phase]:6.1f}  CUDA, NCCL, fragmentation")
        if total > gpu_gb:
            kind = "these GPUs have" if measured else "is assumed for each GPU"
            yield Note(
                f"{phase} may need {total:.0f} GB a GPU, {gpu_gb:.0f} GB {kind}: more GPUs, --ds.zero_stage 3, "
                "--ds.adam_offload, --ref.offload, a smaller --train.max_tokens_per_gpu or "
                "--vllm.gpu_memory_utilization"
            )
    share, needed = plan.args.vllm.gpu_memory_utilization, engine_needs(shape, plan) / GB
    if needed > share * gpu_gb and not on_cpu:
        yield Note(
            f"vLLM's weights and one answer take {needed:.0f} GB a GPU, and it gets {share * gpu_gb:.0f} GB: a larger "
            "--vllm.tensor_parallel_size or --vllm.gpu_memory_utilization"
        )
    most = rollouts(plan) * (plan.args.rollout.max_new_tokens or plan.args.data.max_len)
    updates = max(rollouts(plan) // plan.args.train.batch_size, 1) * plan.args.train.max_epochs
    yield Line(f"per step: {rollouts(plan):,} rollouts, at most {most:,} generated tokens, {updates} updates")
    sizes = disk(shape, plan)
    yield from sized(f"disk in the run folder: {sum(sizes.values()) / GB:.1f} GB", sizes)


def sized(title: str, sizes: Mapping[str, float]) -> Iterator[Line]:
    yield Line(title)
    for name, size in sizes.items():
        yield Line(f"    {size / GB:6.1f}  {name}")


# Token budgets that fill a GPU: the largest micro-batches whose estimated memory stays within a share of it

SHARE = 0.85  # of a GPU; the rest is for errors of the estimate, which nobody has compared with a GPU yet
# Of a wave: with 55,296 tokens on eight ranks it costs no micro-batch, with 73,728 on one 2.6 % (packing.py)
DEPTH = "2"
LARGEST = 2**31  # numbers of a tensor, from which on kernels take slower ways
TRAIN_TOKENS, ROLLOUT_TOKENS = "--train.max_tokens_per_gpu", "--rollout.max_tokens_per_gpu"
WAVE_DEPTH = "--algo.real.wave_depth"


def filling(shape: Shape, plan: Plan, gpu_bytes: float, share: float = SHARE) -> dict[str, str]:
    """{flag: value} of budgets in multiples of the longest sample; empty if none fits, or budgets are not read."""
    longest, ranks = plan.args.data.max_len, plan.ranks
    if not plan.args.train.dynamic_batch_enable or not longest:
        return {}
    depth = {WAVE_DEPTH: DEPTH} if plan.in_waves and WAVE_DEPTH not in plan.flags else {}

    def fits(train: int, rollout: int) -> bool:
        flags = {**depth, **_tokens(train * longest, rollout * longest)}
        given = plan.flags | {flag: Setting.of(DERIVED, value) for flag, value in flags.items()}
        memory = training_memory(shape, replace(plan, flags=given), gpu_bytes)
        return sum(memory.values()) + RUNTIME_GB[TRAINING] * GB <= share * gpu_bytes

    widest = max(shape.intermediate, shape.hidden)
    most = min(-(-plan.args.train.batch_size // ranks), (LARGEST - 1) // (longest * widest))
    train = next((count for count in range(most, 0, -1) if fits(count, 1)), 0)
    rollout = next((count for count in range(2 * train, 0, -1) if fits(train, count)), 0)
    return {**_tokens(train * longest, rollout * longest), **depth} if train else {}


def _tokens(train: int, rollout: int) -> dict[str, str]:
    return {TRAIN_TOKENS: str(train), ROLLOUT_TOKENS: str(rollout)}


def fill_line(shape: Shape, plan: Plan, gpu_gb: float) -> Iterator[str]:
    """What --fill would change."""
    flags = filling(shape, plan, gpu_gb * GB)
    if flags and (tokens := int(flags[TRAIN_TOKENS])) > plan.number(TRAIN_TOKENS):
        deep = f", waves {flags[WAVE_DEPTH]} deep" if WAVE_DEPTH in flags else ""
        yield Line(f"--fill uses {SHARE:.0%} of {gpu_gb:.0f} GB: micro-batches of {tokens:,} tokens{deep}")
