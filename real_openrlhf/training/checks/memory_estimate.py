"""Needs of a run, before you rent GPUs: memory of GPUs and machines, tokens per step, disk for checkpoints.

Standard library only. The sums are over known tensors, and round up where the allocator decides. CUDA, NCCL and
fragmentation have a line of their own. Nobody has compared the sums with a GPU yet.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from real_openrlhf.algorithm import graph_memory
from real_openrlhf.algorithm.graph_memory import LOGITS_AT_ONCE_ON_GPU, RUNTIME_BYTES, resident_bytes
from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks.findings import Line, Note

GB = 1e9
TRAINING, GENERATION = "training", "generation"
RUNTIME_GB = {TRAINING: RUNTIME_BYTES / GB, GENERATION: 3.0}  # vLLM counts its own within its share
PROCESS_GB = 4.0  # of a policy's or an engine's process: libraries, CUDA's own tables, Ray's store
BLOCK_BYTES = 14  # per logit: bf16 and fp32 of this block, fp32 of the block before, and the exponentials
SUB_GROUP = 1_000_000_000  # parameters of a rank that DeepSpeed keeps in one buffer under ZeRO-3, at most
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
    def matrices(self) -> list[int]:
        """Parameters of each weight as vLLM joins them: q k v, attention's output, gate and up, down; embeddings."""
        attention = [self.hidden * (self.attention_width + 2 * self.kv_width), self.attention_width * self.hidden]
        mlp = [2 * self.hidden * self.intermediate, self.hidden * self.intermediate]
        return self.layers * (attention + mlp) + [self.head] * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        bias = self.attention_width + 2 * self.kv_width if self.attention_bias else 0
        norms = 2 * self.hidden
        return sum(self.matrices) + self.layers * (bias + norms) + self.hidden

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


def step_wide(plan: Plan) -> bool:
    """Whether a wave is a whole update, however deep, because the objective has a constraint over all of it."""
    return plan.objective is not None and plan.objective.needs_step_kl


def kept_graphs(shape: Shape, plan: Plan, gpu_bytes: float) -> float:
    """Bytes of a wave's graphs beside those of one micro-batch, at most (hooks/actor/kept_graphs.py)."""
    depth = "auto" if step_wide(plan) else plan.args.algo.real.wave_depth
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


def disk(shape: Shape, plan: Plan) -> dict[str, float]:
    """The most bytes under the run folder: an old checkpoint goes when the new one is whole."""
    every = plan.args.ckpt.save_steps
    saves = math.ceil(plan.args.train.max_steps / every) if every > 0 else 0  # the last step is saved too
    kept = min(plan.args.ckpt.max_num + 1, saves)
    adapters = shape.adapter_parameters(plan.args.ds.lora.rank)
    # fp32 weights and moments of trained parameters, and all bf16 weights
    checkpoint = 12.0 * (adapters or shape.parameters) + 2 * (shape.parameters + adapters)
    sizes = {f"{kept} DeepSpeed checkpoints": kept * checkpoint} if kept else {}
    if plan.args.ckpt.save_hf and saves:
        sizes[f"{saves} HF models beside them (never rotated)"] = saves * 2.0 * shape.parameters
    sizes["final adapter" if adapters else "final HF model"] = 4.0 * adapters if adapters else 2.0 * shape.parameters
    return sizes


def pinned(size: float) -> int:
    """Bytes that PyTorch takes for a pinned block of this size: a power of two (CachingHostAllocator.h)."""
    return 1 << max(math.ceil(size) - 1, 0).bit_length()


def policy_bytes(shape: Shape, plan: Plan) -> float:
    """A sleeping rank's fp32 weights and two moments, and its gradients."""
    held = trained_parameters(shape, plan) / plan.ranks
    largest = SUB_GROUP if plan.args.ds.zero_stage >= 3 else held
    groups = [min(largest, held - largest * index) for index in range(math.ceil(held / largest))]
    return 3 * sum(pinned(4 * group) for group in groups) + pinned(gradient_bytes(plan) * held)


def host_memory(shape: Shape, plan: Plan) -> dict[str, float]:
    """Bytes of host memory on each machine, while everything that can sleep sleeps."""
    nodes, gpus = plan.nodes, plan.ranks
    engines, tensor_parallel = plan.args.vllm.num_engines or 0, plan.args.vllm.tensor_parallel_size
    memory = {"processes, a guess": (gpus + engines * tensor_parallel) * PROCESS_GB * GB / nodes}
    if plan.args.vllm.enable_sleep:
        # each weight is a block of its own on each of an engine's GPUs; norms and biases are left out
        blocks = sum(pinned(2 * size / tensor_parallel) for size in shape.matrices)
        memory["weights of sleeping vLLM engines, pinned"] = tensor_parallel * blocks * engines / nodes
    if plan.args.ds.adam_offload:
        memory["Adam and gradients in fp32"] = 16 * trained_parameters(shape, plan) / nodes
    elif plan.args.ds.enable_sleep:
        memory["the sleeping policy's Adam and gradients, pinned"] = policy_bytes(shape, plan) * gpus / nodes
    if offloads_reference(plan):
        shards = sum(pinned(2 * size / gpus) for size in shape.matrices)
        memory["reference model (bf16), pinned"] = shards * gpus / nodes
    return memory


def check(
    shape: Shape, plan: Plan, gpu_gb: float, measured: bool, host_bytes: float | None, on_cpu: bool = False
) -> Iterator[str]:
    """Lines, and notes on what may not fit. `measured`: `gpu_gb` was read. `host_bytes`: None if unknown."""
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
        if phase == TRAINING:
            others = {name: size for name, size in moments(shape, plan).items() if name not in memory}
            yield from sized("    at other moments of a step, in place of the largest:", others)
        if total > gpu_gb:
            kind = "these GPUs have" if measured else "is assumed for each GPU"
            yield Note(
                f"{phase} may need {total:.0f} GB a GPU, {gpu_gb:.0f} GB {kind}: more GPUs, --ds.zero_stage 3, "
                "--ds.adam_offload, --ref.offload, a smaller --train.max_tokens_per_gpu or "
                "--vllm.gpu_memory_utilization"
            )
    most = rollouts(plan) * (plan.args.rollout.max_new_tokens or plan.args.data.max_len)
    updates = max(rollouts(plan) // plan.args.train.batch_size, 1) * plan.args.train.max_epochs
    yield Line(f"per step: {rollouts(plan):,} rollouts, at most {most:,} generated tokens, {updates} updates")
    sizes = disk(shape, plan)
    yield from sized(f"disk in the run folder: {sum(sizes.values()) / GB:.1f} GB", sizes)
    memory = host_memory(shape, plan)
    total = sum(memory.values())
    yield from sized(f"host memory, a machine: {total / GB:.0f} GB", memory)
    if host_bytes is not None and total > host_bytes:
        yield Note(
            f"the run may need {total / GB:.0f} GB of host memory, this machine has {host_bytes / GB:.0f} GB: leave "
            "out --vllm.enable_sleep or --ds.enable_sleep where the GPUs have room, or take more machines"
        )


def sized(title: str, sizes: Mapping[str, float]) -> Iterator[Line]:
    yield Line(title)
    for name, size in sizes.items():
        yield Line(f"    {size / GB:6.1f}  {name}")
