"""What a run will need before it is rented: memory per GPU, tokens per step, disk for checkpoints.

Standard library only. These are sums over known tensors, rounded up where a choice is the allocator's; what CUDA,
NCCL and fragmentation add is one line of its own. Nobody has held them against a GPU yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from real_openrlhf.algorithm.graph_memory import GATHERED_PARAMETERS, LOGITS_AT_ONCE, resident_bytes
from real_openrlhf.recipes.plan import Plan

GB = 1e9
RUNTIME_GB = 3.0  # CUDA contexts of policy and vLLM, NCCL buffers, fragmentation

# Published shapes, so that a dry run needs no download; a model on disk is read instead.
KNOWN_CONFIGS = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
        "model_type": "qwen2",
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "model_type": "qwen2",
    },
}


@dataclass(frozen=True)
class Shape:
    """A dense decoder of the Llama and Qwen family."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    attention_bias: bool

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def head(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * self.attention_width + 2 * self.hidden * self.kv_width
        bias = self.attention_width + 2 * self.kv_width if self.attention_bias else 0
        layer = attention + bias + 3 * self.hidden * self.intermediate + 2 * self.hidden
        embeddings = self.head * (1 if self.tied else 2)
        return embeddings + self.layers * layer + self.hidden

    def adapter_parameters(self, rank: int) -> int:
        """LoRA on every linear layer but the head: rank x (inputs + outputs)."""
        h, a, kv, i = self.hidden, self.attention_width, self.kv_width, self.intermediate
        return self.layers * rank * ((h + a) + 2 * (h + kv) + (a + h) + 3 * (h + i))


def shape_of(config: Mapping) -> Shape | None:
    """The shape in a model's config.json; None for what these sums do not describe (experts, other families)."""
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if any("expert" in key for key in config) or not all(_is_size(config.get(name)) for name in sizes):
        return None
    heads = config["num_attention_heads"]
    return Shape(
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        attention_bias=config.get("attention_bias", config.get("model_type") == "qwen2"),
    )


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0


@dataclass(frozen=True)
class Layout:
    """What the sums need to know of the flags."""

    ranks: int
    zero_stage: int
    micro_tokens: int  # tokens of one micro-batch with gradients
    rollout_tokens: int  # and of one without
    longest: int
    checkpointing: bool
    flash_attention: bool
    entropy: bool
    logit_free: bool
    lora_rank: int
    adam_offload: bool
    gradient_bytes: int  # of the format in which micro-batches are added up
    reference: bool
    reference_offload: bool
    colocated: bool
    vllm_sleeps: bool
    policy_sleeps: bool
    vllm_share: float
    rollouts: int
    new_tokens: int
    updates: int
    steps: int
    save_steps: int
    kept: int
    save_hf: bool


def layout_of(plan: Plan) -> Layout:
    """Read the flags, with OpenRLHF's defaults where the plan has none."""

    def number(flag: str, default: float) -> float:
        return float(plan.text(flag, str(default)))

    def count(flag: str, default: int) -> int:
        return int(number(flag, default))

    longest = count("--data.max_len", 2048)
    dynamic = "--train.dynamic_batch_enable" in plan.flags
    micro_tokens, rollout_tokens = (
        count(f"--{when}.max_tokens_per_gpu", 16192) if dynamic else count(f"--{when}.micro_batch_size", 1) * longest
        for when in ("train", "rollout")
    )
    rollouts = count("--rollout.batch_size", 1024) * count("--rollout.n_samples_per_prompt", 1)
    batch = count("--train.batch_size", 128)
    return Layout(
        ranks=count("--actor.num_nodes", 1) * count("--actor.num_gpus_per_node", 8),
        zero_stage=count("--ds.zero_stage", 2),
        micro_tokens=micro_tokens,
        rollout_tokens=rollout_tokens,
        longest=longest,
        checkpointing="--actor.gradient_checkpointing_enable" in plan.flags,
        flash_attention="flash" in plan.text("--ds.attn_implementation", "flash_attention_2"),
        entropy="--actor.entropy_coef" in plan.flags,
        logit_free="--ds.logit_free" in plan.flags,
        lora_rank=count("--ds.lora.rank", 0),
        adam_offload="--ds.adam_offload" in plan.flags,
        gradient_bytes=4 if plan.text("--ds.grad_accum_dtype") == "fp32" else 2,
        reference=plan.needs_reference,
        reference_offload="--ref.offload" in plan.flags and count("--ds.zero_stage", 2) >= 3,
        colocated="--train.colocate_all" in plan.flags,
        vllm_sleeps="--vllm.enable_sleep" in plan.flags,
        policy_sleeps="--ds.enable_sleep" in plan.flags,
        vllm_share=number("--vllm.gpu_memory_utilization", 0.95),
        rollouts=rollouts,
        new_tokens=count("--rollout.max_new_tokens", longest),
        updates=max(rollouts // batch, 1) * count("--train.max_epochs", 1),
        steps=count("--train.max_steps", 0),
        save_steps=count("--ckpt.save_steps", -1),
        kept=count("--ckpt.max_num", 3),
        save_hf="--ckpt.save_hf" in plan.flags,
    )


def states(shape: Shape, layout: Layout) -> dict[str, float]:
    """Bytes on one GPU that stay from step to step while the policy trains."""
    adapters, sharded = shape.adapter_parameters(layout.lora_rank), layout.zero_stage >= 3
    weights, gradients, adam = resident_bytes(
        shape.parameters + adapters,
        adapters or shape.parameters,
        ranks=layout.ranks,
        zero_stage=layout.zero_stage,
        gradient_bytes=layout.gradient_bytes,
        adam_offload=layout.adam_offload,
    )
    memory = {"weights (bf16)": weights}
    if sharded:  # what is gathered at a time, the head's whole weight among it
        gathered = min(shape.parameters, max(GATHERED_PARAMETERS, shape.head))
        memory["gathered for use: the head's weight"] = 2 * shape.head
        memory["gathered for use: other weights, at most"] = 2 * (gathered - shape.head)
    memory[f"gradients, added up in {8 * layout.gradient_bytes} bits"] = gradients
    if adam:
        memory["Adam: fp32 weights and two moments"] = adam
    if layout.reference and not layout.reference_offload:
        memory["reference model (bf16)"] = 2 * shape.parameters / (layout.ranks if sharded else 1)
    return memory


def moments(shape: Shape, layout: Layout) -> dict[str, float]:
    """Bytes on one GPU that come and go within a step; they never meet, so the largest one counts."""
    trained = shape.adapter_parameters(layout.lora_rank) or shape.parameters
    a, kv, h, i = shape.attention_width, shape.kv_width, shape.hidden, shape.intermediate
    # bf16: both norms' and blocks' outputs and residuals, q k v before and after rotation, attention's output,
    # gate, up, activation, product; fp32: both norms upcast their input and output
    layer = 2 * (6 * h + 2 * (a + 2 * kv) + a + 4 * i) + 4 * 4 * h
    if not layout.flash_attention:
        layer += shape.heads * layout.longest * 6  # scores in fp32 and bf16
    kept = 2 * h * shape.layers if layout.checkpointing else layer * shape.layers
    trains_head = 0 if layout.lora_rank else 2 * shape.head
    return {
        f"activations at their largest: {'the head' if layout.logit_free else 'the logits'}": (
            layout.micro_tokens * kept + head_work(shape, layout) + trains_head
        ),
        "activations at their largest: one layer": layout.micro_tokens * (kept + layer),
        "log-probabilities of rollouts": rollout_work(shape, layout),
        "gradients in fp32 during the update": 0 if layout.adam_offload else 4 * trained / layout.ranks,
    }


def head_work(shape: Shape, layout: Layout) -> float:
    """There and back, without the weight and its gradient."""
    if not layout.logit_free:
        # bf16 logits, their fp32 copy and its gradient; logging the entropy holds two tables more
        return layout.micro_tokens * shape.vocabulary * (2 + 4 + 4 + (8 if layout.entropy else 0))
    # A token: what is kept, 8 bytes per hidden number; its gradient in fp32, a block's part of it, and in bf16.
    # A block: logits and their powers in fp32, the bf16 copy of these for the tensor cores, and its rows of the
    # weight's gradient in fp32. The weight itself is read as it is: fp32 sums need no fp32 copy of it on a GPU.
    return layout.micro_tokens * (8 + 4 + 4 + 2) * shape.hidden + LOGITS_AT_ONCE * (4 + 4 + 2 + 2)


def rollout_work(shape: Shape, layout: Layout) -> float:
    """A forward without gradients: a layer's residual, norm, gate, up and product, or the head, whichever is more."""
    layer = layout.rollout_tokens * 2 * (2 * shape.hidden + 3 * shape.intermediate)
    if layout.logit_free:
        return max(layer, layout.rollout_tokens * 4 * shape.hidden + LOGITS_AT_ONCE * (4 + 4))
    return max(layer, layout.rollout_tokens * shape.vocabulary * (2 + 4))


def training_memory(shape: Shape, layout: Layout) -> dict[str, float]:
    """Bytes on one GPU at the peak of a training step."""
    name, largest = max(moments(shape, layout).items(), key=lambda item: item[1])
    return {**states(shape, layout), name: largest}


def generation_memory(shape: Shape, layout: Layout, gpu_bytes: float) -> dict[str, float]:
    """Bytes on one GPU while vLLM generates; only colocated roles share it."""
    memory = {f"vLLM, {layout.vllm_share:.0%} of the GPU": layout.vllm_share * gpu_bytes}
    if layout.colocated:
        stays = ("weights (bf16)", "reference model (bf16)")
        for name, size in states(shape, layout).items():
            if name in stays or not layout.policy_sleeps:
                memory[f"resident: {name}"] = size
    return memory


def checkpoint_bytes(shape: Shape, layout: Layout) -> float:
    """One DeepSpeed checkpoint: fp32 weights and moments of what is trained, and the bf16 weights."""
    adapters = shape.adapter_parameters(layout.lora_rank)
    return 12 * (adapters or shape.parameters) + 2 * (shape.parameters + adapters)


def disk(shape: Shape, layout: Layout) -> dict[str, float]:
    """The most bytes under the run folder: an old checkpoint goes when the new one is whole."""
    saves = layout.steps // layout.save_steps if layout.save_steps > 0 else 0
    kept = min(layout.kept + 1, saves)
    sizes = {}
    if kept:
        sizes[f"{kept} DeepSpeed checkpoints"] = kept * checkpoint_bytes(shape, layout)
    if layout.save_hf and saves:
        sizes[f"{saves} HF models beside them (never rotated)"] = saves * 2.0 * shape.parameters
    adapters = shape.adapter_parameters(layout.lora_rank)
    sizes["final adapter" if adapters else "final HF model"] = 4.0 * adapters if adapters else 2.0 * shape.parameters
    return sizes


def disk_bytes(shape: Shape, plan: Plan) -> float:
    return sum(disk(shape, layout_of(plan)).values())


def report(shape: Shape, plan: Plan, gpu_gb: float, measured: bool) -> tuple[list[str], list[str]]:
    """(lines to print, warnings); `measured` says that the GPU's size was read, not assumed."""
    layout = layout_of(plan)
    training, generation = training_memory(shape, layout), generation_memory(shape, layout, gpu_gb * GB)
    if layout.colocated and not layout.vllm_sleeps:
        training |= {name: size for name, size in generation.items() if name.startswith("vLLM")}
    lines, warnings = [f"model: {shape.parameters / 1e9:.2f} B parameters"], []
    phases = {"training": training}
    if layout.colocated:
        phases["generation"] = generation
    for phase, memory in phases.items():
        total = sum(memory.values()) / GB + RUNTIME_GB
        lines.append(f"memory per GPU, {phase}: {total:.1f} GB (upper estimate)")
        lines += [f"    {size / GB:6.1f}  {name}" for name, size in memory.items()]
        lines.append(f"    {RUNTIME_GB:6.1f}  CUDA, NCCL, fragmentation")
        if phase == "training":
            lines.append("    at other moments of a step, in place of the largest:")
            others = {name: size for name, size in moments(shape, layout).items() if name not in memory}
            lines += [f"    {size / GB:6.1f}  {name}" for name, size in others.items()]
        if total > gpu_gb:
            kind = "these GPUs have" if measured else "is assumed for each GPU"
            warnings.append(
                f"{phase} may need {total:.0f} GB a GPU, {gpu_gb:.0f} GB {kind}: more GPUs, --ds.zero_stage 3, "
                "--ds.adam_offload, --ref.offload, a smaller --train.max_tokens_per_gpu or "
                "--vllm.gpu_memory_utilization"
            )
    most = layout.rollouts * layout.new_tokens
    lines.append(
        f"per step: {layout.rollouts:,} rollouts, at most {most:,} generated tokens, {layout.updates} updates"
    )
    sizes = disk(shape, layout)
    lines.append(f"disk in the run folder: {sum(sizes.values()) / GB:.1f} GB")
    lines += [f"    {size / GB:6.1f}  {name}" for name, size in sizes.items()]
    return lines, warnings
