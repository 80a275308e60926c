"""A hand-over of weights on this rank: OpenRLHF's sender, its vLLM worker's receiver, and between them no Ray."""

from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from openrlhf.trainer.ray import ppo_actor
from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder
from zero_jobs import Case, parameters, policy_actor, whole

from real_openrlhf.hooks.engine import weight_buckets


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


def handed_over(bucket_bytes: int, ipc: bool, **case) -> dict:
    """Whether the engine has all weights, bit for bit; how often it, and all ranks together, were called."""
    policy = policy_actor(Case(**case, dtype="bf16"))
    trainer, sender, loaded = policy.trainer, SimpleNamespace(sent=None), {}
    engine = Worker(sender, loaded)
    trainer.vllm_engines, trainer.use_cuda_ipc = [engine], ipc
    trainer._model_update_group = SimpleNamespace(
        broadcast=lambda data, src, stream: setattr(sender, "sent", data.clone())
    )
    gather = mock.Mock(wraps=dist.all_gather_object)
    with (
        mock.patch.object(weight_buckets, "BUCKET_BYTES", bucket_bytes),
        mock.patch.object(ppo_actor.ray, "get", lambda calls: [call() for call in calls]),
        mock.patch.object(ppo_actor, "get_physical_gpu_id", lambda: "GPU-1"),
        mock.patch("openrlhf.trainer.ray.utils.get_physical_gpu_id", lambda: "GPU-1"),
        mock.patch("torch.multiprocessing.reductions.reduce_tensor", lambda weight: (first, (weight, *range(6)))),
        mock.patch("torch.cuda.synchronize"),
        mock.patch("torch.distributed.all_gather_object", gather),
        mock.patch.dict("os.environ", VLLM_ALLOW_INSECURE_SERIALIZATION="1"),
    ):
        trainer.broadcast_to_vllm()
    expected = {name: whole(one) for name, one in parameters(policy.actor.model).items()}
    right = loaded.keys() == expected.keys() and all(loaded[name].equal(one) for name, one in expected.items())
    return {"right": right, "tensors": len(expected), "calls": engine.calls, "gathers": gather.call_count}


def first(weight: torch.Tensor, *_: int) -> torch.Tensor:
    """Stands for CUDA's opening of a handle, whose seventh argument is the device."""
    return weight.to(get_accelerator().current_device_name())
