"""Number of tokens whose graphs fit in a training rank's memory, beside weights, gradients, optimizer and vLLM.

The estimate uses sizes only, not the memory that is free now: a restarted run must make the same plan, and while
states are offloaded more memory is free than during training.
"""

from types import SimpleNamespace
from typing import Any

import psutil
from deepspeed.accelerator import get_accelerator

from real_openrlhf.algorithm import graph_memory
from real_openrlhf.algorithm.graph_memory import RUNTIME_BYTES, graph_bytes_per_token, resident_bytes


def kept_tokens(engine: Any, args: SimpleNamespace) -> float:
    """Number of tokens whose graphs fit in one rank's memory; at least 0."""
    config = engine.module.config.get_text_config()
    per_token = graph_bytes_per_token(
        config.hidden_size,
        getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        config.num_hidden_layers,
        config.vocab_size,
        checkpointing=args.actor.gradient_checkpointing_enable,
        logit_free=args.ds.logit_free,
    )
    if get_accelerator().device_name() == "cpu":  # an equal part of the machine's memory
        left = psutil.virtual_memory().total / args.actor.num_gpus_per_node
    else:
        left = get_accelerator().total_memory() - RUNTIME_BYTES
        if args.train.colocate_all and not args.train.async_enable and not args.vllm.enable_sleep:
            left -= args.vllm.gpu_memory_utilization * get_accelerator().total_memory()  # vLLM stays beside it
    return graph_memory.kept_tokens(left - states_bytes(engine, args), per_token)


def states_bytes(engine: Any, args: SimpleNamespace) -> float:
    """Bytes of weights, gradients, Adam's states and reference of this rank in training, and of ZeRO-3's gathers."""
    sizes = [(getattr(one, "ds_numel", one.numel()), one.requires_grad) for one in engine.module.parameters()]
    every = sum(size for size, _ in sizes)
    offloaded = args.ref.offload and args.ds.zero_stage == 3  # DeepSpeed moves weights under ZeRO-3 only
    resident = resident_bytes(
        every,
        sum(size for size, trained in sizes if trained),
        gpus=engine.dp_world_size,
        zero_stage=args.ds.zero_stage,
        overlap_comm=args.ds.overlap_comm,
        adam_offload=args.ds.adam_offload,
        reference=every if args.derived.reference and not offloaded else 0,
    )
    return sum(resident.values())
