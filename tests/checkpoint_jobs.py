"""What runs on a rank: OpenRLHF's policy actor that is trained, saved and loaded, on a real DeepSpeed engine."""

import hashlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.runtime.zero.offload_states import offload_adam_states
from zero_jobs import Case, arguments, fill, policy_actor, state

from real_openrlhf.hooks.fixes.deepspeed_optimizers import restore_powers
from real_openrlhf.hooks.run_strategy import CheckpointError


def trained(
    folder: str,
    until: int,
    load: bool = False,
    save: tuple[str, ...] = (),
    max_num: int = 9,
    dropout: float = 0,
    full: bool = False,
    sleep: bool = False,
    **case,
) -> dict:
    """Train from the last checkpoint, or from the beginning, up to a step; save under these tags on the way."""
    case = Case(**case, run_dir=folder)
    args = arguments(case)
    args.ckpt.path, args.ckpt.load_enable, args.ckpt.max_num = str(Path(folder) / "checkpoints"), load, max_num
    args.ds.lora.dropout, args.rollout.seeded_order = dropout, True
    try:
        policy = policy_actor(case, args)
    except CheckpointError as error:
        return {"error": str(error)}
    loaded, optimizer = policy.get_checkpoint_states(), policy.actor.model.basic_optimizer
    in_host_memory = [name for own in optimizer.state.values() for name in own if "offload_buffer" in name]
    for step in range(loaded.get("global_step", 0) + 1, until + 1):
        fill(policy, case)
        policy.fit(0.0)
        if sleep:
            offload_adam_states(optimizer, "cpu")
        for tag in (tag for tag in save if tag.endswith(f"step{step}")):
            metric = {"metric_value": 1.0 / step if tag.startswith("best") else None, "metric_key": "m"}
            try:
                with full_disk(full):
                    policy.save_checkpoint(tag, {"global_step": step}, **metric)
            except CheckpointError as error:
                return {"error": str(error)}
    about = {name: loaded.get(name) for name in ("checkpoint", "damaged")}
    return {"state": digests(policy), "loaded": about, "in host memory": in_host_memory}


def digests(policy) -> dict[str, str]:
    """Of each tensor that decides a later step: weights, optimizer, moving average; and of the learning rate."""
    tensors = dict(state(policy.actor.model))
    if policy.ema_model:
        for number, parameter in enumerate(policy.ema_model.parameters()):
            tensors[f"average {number}"] = getattr(parameter, "ds_tensor", parameter).detach().clone()
    tensors["rate"] = torch.tensor(policy.actor_scheduler.get_last_lr())
    return {name: hashlib.sha256(bytes_of(tensor)).hexdigest() for name, tensor in tensors.items()}


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()


@contextmanager
def full_disk(is_full: bool) -> Iterator[None]:
    """No file of this rank may become longer than 10 kB, as if the disk had no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if is_full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def adams(steps: int, kill: int, restored: bool) -> list[str]:
    """Weights after each step of DeepSpeed's Adam for offloaded states, whose own are loaded into a new one."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(100, generator=generator))
    optimizer, found = DeepSpeedCPUAdam([weights], lr=1e-2), []
    for step in range(1, steps + 1):
        weights.grad = torch.randn(100, generator=generator)
        optimizer.step()
        found.append(hashlib.sha256(bytes_of(weights)).hexdigest())
        if step == kill:
            before, optimizer = optimizer.state_dict(), DeepSpeedCPUAdam([weights], lr=1e-2)
            optimizer.load_state_dict(before)
            if restored:
                restore_powers(optimizer)
    return found
