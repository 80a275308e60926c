"""How many tokens' graphs a training rank can keep at once: what its memory leaves beside weights and optimizer.

From sizes alone, not from what happens to be free now: the plan must be the same in a run that is started again, and
while states are offloaded more is free than training leaves.
"""

from types import SimpleNamespace
from typing import Any

import psutil
from deepspeed.accelerator import get_accelerator

from real_openrlhf.algorithm.graph_memory import graph_bytes_per_token, resident_bytes

SHARE = 0.6  # of what is left: the rest is one micro-batch's own work, the allocator's and NCCL's


def kept_tokens(engine: Any, args: SimpleNamespace) -> float:
    """Tokens of one rank; at least 0."""
    config = engine.module.config.get_text_config()
    per_token = graph_bytes_per_token(
        config.hidden_size,
        getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        config.num_hidden_layers,
        config.vocab_size,
        checkpointing=args.actor.gradient_checkpointing_enable,
        logit_free=args.ds.logit_free,
    )
    left = device_bytes(args) - states_bytes(engine, args) - sampler_bytes(args)
    return max(SHARE * left, 0.0) // per_token


def device_bytes(args: SimpleNamespace) -> float:
    """A CPU run's ranks share the machine."""
    if get_accelerator().device_name() == "cpu":
        return psutil.virtual_memory().total / args.actor.num_gpus_per_node
    return float(get_accelerator().total_memory())


def states_bytes(engine: Any, args: SimpleNamespace) -> float:
    """Weights, gradients and Adam's states of this rank while it trains, and what ZeRO-3 gathers for a layer."""
    sizes = [(getattr(one, "ds_numel", one.numel()), one.requires_grad) for one in engine.module.parameters()]
    every = sum(size for size, _ in sizes)
    resident = resident_bytes(
        every,
        sum(size for size, trained in sizes if trained),
        gpus=engine.dp_world_size,
        zero_stage=args.ds.zero_stage,
        adam_offload=args.ds.adam_offload,
        reference=every if args.algo.real.reference and not args.ref.offload else 0,
    )
    return sum(resident.values())


def sampler_bytes(args: SimpleNamespace) -> float:
    """vLLM's share of the device, where it lives there too and does not sleep while we train."""
    stays = args.train.colocate_all and not args.train.async_enable and not args.vllm.enable_sleep
    on_gpu = get_accelerator().device_name() != "cpu"
    return args.vllm.gpu_memory_utilization * device_bytes(args) if stays and on_gpu else 0.0
