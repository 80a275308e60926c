"""What runs on a rank for the weights of a policy: loading, hand-over to vLLM, checkpoints."""

import hashlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.zero.offload_states import offload_adam_states
from openrlhf.models import Actor
from openrlhf.trainer.ray import ppo_actor
from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
from openrlhf.utils import utils
from safetensors.torch import load_file
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder
from zero_jobs import Case, arguments, fill, parameters, policy_actor, state, whole

from real_openrlhf.hooks.run_strategy import CheckpointError

# A hand-over: OpenRLHF's sender, its vLLM worker's receiver, and between them no Ray.


class Worker(WorkerWrap):
    """An engine whose calls are made when their result is waited for, as vLLM's engine process gets them."""

    def __init__(self, sender, loaded: dict[str, torch.Tensor]) -> None:
        self.device, self._model_update_with_ray = torch.device(get_accelerator().current_device_name()), False
        self.model_config = SimpleNamespace(dtype=torch.bfloat16)
        model = SimpleNamespace(load_weights=lambda weights: self.load(weights))
        self.model_runner = SimpleNamespace(
            model=model,
            get_model=torch.nn.Module,
            reload_weights=lambda weights_iterator: self.load(weights_iterator),
        )
        self._model_update_group = SimpleNamespace(broadcast=lambda weight, **_: weight.copy_(sender.sent))
        self.loaded, self.calls = loaded, 0

    def load(self, weights) -> None:
        self.loaded |= {name: weight.clone() for name, weight in weights}

    def __getattribute__(self, name: str):
        own = super().__getattribute__(name)
        return (
            SimpleNamespace(remote=lambda *given, **named: lambda: self.call(own, given, named))
            if name.startswith("update_weight")
            else own
        )

    def call(self, method, given: tuple, named: dict) -> None:
        self.calls += 1
        (parts,) = MsgpackDecoder().decode(MsgpackEncoder().encode(given))
        method(parts, **named)


def handed_over(ipc: bool, **case) -> dict:
    """Whether the engine has all weights, bit for bit, and how often it was called."""
    policy = policy_actor(Case(**case, dtype="bf16"))
    trainer, sender, loaded = policy.trainer, SimpleNamespace(sent=None), {}
    engine = Worker(sender, loaded)
    trainer.vllm_engines, trainer.use_cuda_ipc = [engine], ipc
    trainer._model_update_group = SimpleNamespace(
        broadcast=lambda data, src, stream: setattr(sender, "sent", data.clone())
    )
    with (
        mock.patch.object(ppo_actor.ray, "get", lambda calls: [call() for call in calls]),
        mock.patch.object(ppo_actor, "get_physical_gpu_id", lambda: "GPU-1"),
        mock.patch("openrlhf.trainer.ray.utils.get_physical_gpu_id", lambda: "GPU-1"),
        mock.patch("torch.multiprocessing.reductions.reduce_tensor", lambda weight: (first, (weight, *range(6)))),
        mock.patch("torch.cuda.synchronize"),
        mock.patch.dict("os.environ", VLLM_ALLOW_INSECURE_SERIALIZATION="1"),
    ):
        trainer.broadcast_to_vllm()
    expected = {name: whole(one) for name, one in parameters(policy.actor.model).items()}
    right = loaded.keys() == expected.keys() and all(loaded[name].equal(one) for name, one in expected.items())
    return {"right": right, "tensors": len(expected), "calls": engine.calls}


def first(weight: torch.Tensor, *_: int) -> torch.Tensor:
    """Stands for CUDA's opening of a handle, whose seventh argument is the device."""
    return weight.to(get_accelerator().current_device_name())


# Loading.


def load_with_late_gathers(model: str, fixed: bool) -> list[str]:
    """Load the model as OpenRLHF's Actor does for ZeRO-3; parameters that then differ from the file."""
    config = strategy_of(model).get_ds_train_config()
    if not fixed:
        config["zero_optimization"].pop("stage3_allgather_sequential", None)
    expected = load_file(f"{model}/model.safetensors")
    with late_gathers():
        loaded = Actor(model, attn_implementation="eager", param_dtype="bf16", ds_config=config).model
    found = {name: whole(parameter) for name, parameter in loaded.named_parameters()}
    return [name for name, value in expected.items() if not found[name].equal(value.to(torch.bfloat16))]


def reference_forwards(model: str, count: int) -> list[float]:
    """What a ZeRO-3 engine without gradients, whose every weight is sharded, makes of one batch again and again."""
    config = strategy_of(model).get_ds_eval_config()
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    actor = Actor(model, attn_implementation="eager", param_dtype="bf16", ds_config=config)
    engine, *_ = deepspeed.initialize(model=actor.model.eval(), config=config)
    tokens = torch.arange(3, 13)[None]
    with torch.no_grad():
        return [float(engine(tokens).logits.float().logsumexp(-1).sum()) for _ in range(count)]


def strategy_of(model: str):
    strategy = utils.get_strategy(arguments(Case(model=model, dtype="bf16")))
    strategy.setup_distributed()
    return strategy


@contextmanager
def late_gathers():
    """A gather that nobody waits for ends just before the next broadcast begins: late, and always equally late."""
    gather, broadcast = deepspeed.comm.all_gather_into_tensor, deepspeed.comm.broadcast
    running = []

    class LateGather:
        def __init__(self, output, result) -> None:
            self.output, self.result = output, result

        def wait(self) -> None:
            if self.result is not None:
                self.output.copy_(self.result)
            self.result = None

    def all_gather_into_tensor(output, *args, async_op=False, **kwargs):
        if not async_op:
            return gather(output, *args, **kwargs)
        # what is gathered before loading is whatever lay in memory: nan, so that it is not an earlier load's weights
        running.append(LateGather(output, torch.full_like(output, torch.nan)))
        return running[-1]

    def broadcast_after(*args, **kwargs):
        while running:
            running.pop(0).wait()
        return broadcast(*args, **kwargs)

    with (
        mock.patch.object(deepspeed.comm, "all_gather_into_tensor", all_gather_into_tensor),
        mock.patch.object(deepspeed.comm, "broadcast", broadcast_after),
    ):
        yield


# A policy that is trained, saved and loaded.


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
    before = digests(policy)
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
    return {"before": before, "state": digests(policy), "loaded": about, "in host memory": in_host_memory}


def saved_twice(folder: str, place: str, **case) -> list[str]:
    """Save a checkpoint and the model, twice, with OpenRLHF's paths below this place of the folder."""
    case = Case(**case, run_dir=f"{folder}/run")
    args, output = arguments(case), Path(folder) / place
    args.ckpt.path, args.ckpt.output_dir, args.ckpt.load_enable = (
        str(output / "checkpoints_ppo_ray"),
        str(output),
        False,
    )
    policy = policy_actor(case, args)
    for step in (1, 2):
        policy.save_checkpoint(f"global_step{step}", {"global_step": step})
        policy.save_model()
    return sorted(path.name for path in output.rglob("*"))


def digests(policy) -> dict[str, str]:
    """Of each tensor that decides a later step: weights, optimizer; and of the learning rate."""
    tensors = dict(state(policy.actor.model))
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
