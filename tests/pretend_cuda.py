"""Tensors that say they are on cuda, with values on the CPU: the lines for GPUs run, and two faults of them show.

An operator that takes from both devices, and a wait of the host for the device. What an operator's own kernel does
on a GPU does not show, nor does DeepSpeed's engine: `Engine` stands in for it.
"""

import linecache
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import deepspeed
import openrlhf
import peft
import torch
import transformers
import weight_jobs
from deepspeed.accelerator import get_accelerator
from openrlhf.trainer.ray.launcher import ReferenceModelActor
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from varlen_on_cpu import stand_in
from zero_jobs import Case, fill, policy_actor

import real_openrlhf
from real_openrlhf import real_policy_loss
from real_openrlhf.algorithm.metrics import MEMORY_METRICS

CUDA = torch.device("cuda", 0)
HOST, GPU, EITHER = "host", "gpu", "either"  # where a storage is; what an operator makes from nothing fits both
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Beginnings of the files under test: by place, since a clone's own name is in the path of its environment too.
CODE = (
    *(os.path.join(os.path.dirname(one.__file__), "") for one in (real_openrlhf, openrlhf, transformers, peft)),
    *(checkpoint.__file__, os.path.join(ROOT, "tests", "")),
)
READS = (Tensor.tolist, Tensor.numpy, Tensor.cpu)
# What needs a value, or a size that follows from values, on the host.
WAITS = {
    "aten::_local_scalar_dense",  # item(), float(), bool(), an index that is a tensor
    *("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_consecutive"),
    *("aten::repeat_interleave.Tensor", "aten::equal"),
}
# Elsewhere a tensor without dimensions may stay on the host.
STRICT = ("cat", "stack", "gather", "scatter", "index_select", "index_copy", "index_add", "mm", "c10d")


class Rehearsal:
    """Where each storage is, and what was found."""

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.kept: list = []  # a storage's address must not come again
        self.mixes: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def place(self, tensor: Tensor) -> str:
        with torch._C.DisableTorchFunction():
            return self.places.get(tensor.untyped_storage()._cdata, HOST)

    def put(self, tensor: Tensor, place: str) -> Tensor:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            self.places[storage._cdata] = place
            self.kept.append(storage)
        return tensor

    def move(self, module: torch.nn.Module) -> None:
        for one in (*module.parameters(), *module.buffers()):
            self.put(one, GPU)

    def note(self, where: Counter, what: str) -> None:
        """With the innermost line of the code under test."""
        frame = sys._getframe(2)
        while frame and (frame.f_code.co_filename == __file__ or not frame.f_code.co_filename.startswith(CODE)):
            frame = frame.f_back
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("?", 0)
        place = file.removeprefix(ROOT).split("site-packages/")[-1]
        where[f"{what} at {place}:{line} {linecache.getline(file, line).strip()}"] += 1


class Watch(TorchDispatchMode):
    """Sees every operator: reports mixes and waits, and notes where results are."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        super().__init__()
        self.on = rehearsal

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            tensors = tensors_of((args, kwargs))
            self.look(function.name(), tensors, args)
            places = {self.on.place(one) for one in tensors} or {EITHER}
            before = {one.untyped_storage()._cdata for one in tensors}
        result = function(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            for one in tensors_of(result):
                if one.untyped_storage()._cdata not in before:
                    self.on.put(one, next(place for place in (GPU, HOST, EITHER) if place in places))
        return result

    def look(self, name: str, tensors: list[Tensor], args: tuple) -> None:
        if name.startswith("aten::index") and args[1:] and isinstance(args[1], (list, tuple)):
            indices = [one for one in args[1] if one is not None]
            if self.on.place(args[0]) == GPU:  # whose indices may be on the host
                if any(one.dtype == torch.bool and self.on.place(one) == GPU for one in indices):
                    self.on.note(self.on.waits, "a mask as index")
                tensors = [one for one in tensors if all(one is not index for index in indices)]
        places = {self.on.place(one) for one in tensors if one.dim() or any(word in name for word in STRICT)}
        onto_host = name == "aten::copy_" and self.on.place(args[0]) != GPU
        if "c10d" in name:  # NCCL takes nothing from the host; torch itself moves what objects are sent as
            places = {GPU} | {self.on.place(one) for one in tensors if one.is_floating_point()}
        if {GPU, HOST} <= places and name != "aten::copy_":
            self.on.note(self.on.mixes, name)
        if GPU in map(self.on.place, tensors) and (name in WAITS or onto_host):
            self.on.note(self.on.waits, name)


class Pretend(TorchFunctionMode):
    """Answers what Python asks a tensor about its device, and moves tensors between the two."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        super().__init__()
        self.on = rehearsal

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return function(*args, **kwargs)
        if function == Tensor.device.__get__:
            return CUDA if self.on.place(args[0]) == GPU else torch.device("cpu")
        if function in (Tensor.is_cuda.__get__, Tensor.is_cpu.__get__):
            return (self.on.place(args[0]) == GPU) == (function == Tensor.is_cuda.__get__)
        if function is Tensor.backward:
            one = torch.ones_like(args[0])
            with self:  # Python that runs in there asks too; torch.autograd.backward would take this mode off
                engine = torch.autograd.Variable._execution_engine
                return engine.run_backward((args[0],), (one,), False, False, (), True, accumulate_grad=True)
        if function is torch.mm and "out_dtype" in kwargs:  # with sums in fp32: no kernel on CPU
            left, right = args
            assert left.dtype == right.dtype in (torch.bfloat16, torch.float16)
            return left.to(kwargs["out_dtype"]) @ right.to(kwargs["out_dtype"])
        if function is torch.addmm and "out_dtype" in kwargs:
            total, left, right = args
            assert left.dtype == right.dtype in (torch.bfloat16, torch.float16) and kwargs["out"] is total
            return total.addmm_(left.to(kwargs["out_dtype"]), right.to(kwargs["out_dtype"]))
        if function in READS and self.on.place(args[0]) == GPU:
            self.on.note(self.on.waits, function.__name__)
        if function in (Tensor.to, Tensor.cpu, Tensor.cuda):
            return self.moved(function, args, kwargs)
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = "cpu"
        result = function(*args, **kwargs)
        if wanted is not None or not tensors_of((args, kwargs)):
            for one in tensors_of(result):
                if wanted is not None or self.on.place(one) == EITHER:
                    self.on.put(one, GPU if "cuda" in str(wanted) else HOST)
        return result

    def moved(self, function, args: tuple, kwargs: dict) -> Tensor:
        tensor, rest, wanted = args[0], list(args[1:]), kwargs.pop("device", None)
        if function in (Tensor.cpu, Tensor.cuda):
            rest, wanted = [], "cpu" if function is Tensor.cpu else "cuda"
        for number, one in enumerate(rest):
            if isinstance(one, (torch.device, str, int)) and not isinstance(one, bool):
                rest[number], wanted = torch.device("cpu"), one
            elif isinstance(one, Tensor):
                rest[number], wanted = one.dtype, "cuda" if self.on.place(one) == GPU else "cpu"
        result = (
            tensor.to(*(one for one in rest if one != torch.device("cpu")), **kwargs) if rest or kwargs else tensor
        )
        here = self.on.place(tensor)
        there = here if wanted is None else GPU if "cuda" in str(wanted) or isinstance(wanted, int) else HOST
        if here == there:
            return result
        if here == GPU and function is not Tensor.cpu:
            self.on.note(self.on.waits, "to the host")
        return self.on.put(result.clone(), there)


def tensors_of(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


class Engine(torch.nn.Module):
    """Stands in for DeepSpeed's engine on one rank: adds up gradients, and steps plainly."""

    dp_world_size = 1

    def __init__(self, module: torch.nn.Module, parameters: Any) -> None:
        super().__init__()
        self.module, self.device, self.global_steps, self.last, self.norm = module, CUDA, 0, True, None
        self.optimizer: Any = torch.optim.SGD(parameters, lr=0.1, foreach=False)
        self.optimizer.clear_backward_seen_flag = lambda: None

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def backward(self, loss: Tensor, **_) -> None:
        loss.backward()

    def set_gradient_accumulation_boundary(self, last: bool) -> None:
        self.last = last

    def step(self) -> None:
        gradients = [one.grad.norm() for one in self.module.parameters() if one.grad is not None]
        self.norm = torch.stack(gradients).norm()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.global_steps += 1

    def get_global_grad_norm(self) -> Tensor:
        return self.norm

    def gradient_accumulation_steps(self) -> int:
        return 1

    def zero_optimization_stage(self) -> int:
        return 1

    def zero_optimization(self) -> bool:
        return True

    def fp16_enabled(self) -> bool:
        return False


@contextmanager
def machine(rehearsal: Rehearsal) -> Iterator[None]:
    """Models that are loaded in it are on the GPU."""

    def initialize(model, model_parameters=None, lr_scheduler=None, **_):
        rehearsal.move(model)
        engine = Engine(model, model_parameters or model.parameters())
        return engine, engine.optimizer, None, lr_scheduler and lr_scheduler(engine.optimizer)

    here = mock.patch.object(type(get_accelerator()), "current_device_name", lambda *_: "cuda:0")
    with here, mock.patch.object(deepspeed, "initialize", initialize):
        yield


@contextmanager
def watched(rehearsal: Rehearsal) -> Iterator[None]:
    """Where recomputation compares a tensor's device it asks now with the pretence, now without: not here."""
    checks = {"default": lambda one: (one.shape, one.dtype)}
    with mock.patch.dict(checkpoint._allowed_determinism_checks_to_fns, checks), Watch(rehearsal), Pretend(rehearsal):
        yield


def found_by(rehearsal: Rehearsal, **more) -> dict:
    return {"mixes": dict(rehearsal.mixes), "waits": dict(rehearsal.waits), **more}


@contextmanager
def memory() -> Iterator[None]:
    """What PyTorch's allocator for CUDA says; its peak only after it was reset."""
    stats = {"reserved_bytes.all.peak": 53e9, "reserved_bytes.all.current": 50e9, "num_alloc_retries": 2}
    peak = {"allocated_bytes.all.peak": 44e9}
    with (
        mock.patch.object(type(get_accelerator()), "device_name", lambda *_: "cuda"),
        mock.patch("torch.cuda.reset_peak_memory_stats", lambda: stats.update(peak)),
        mock.patch("torch.cuda.memory_stats", lambda: stats),
        mock.patch("torch.cuda.mem_get_info", lambda: (27e9, 80e9)),
    ):
        yield


def trained(spoil: str = "", reference: bool = False, **case) -> dict:
    """All updates of a batch, and before that its old log-probabilities, and a reference model's if asked."""
    rehearsal, case = Rehearsal(), Case(**case, dtype="bf16", zero_stage=2)
    with machine(rehearsal), stand_in() as calls:
        policy = policy_actor(case)
        with watched(rehearsal):
            fill(policy, case)
        if reference:
            add_reference(policy, case, rehearsal)
        before, forwards = len(calls), []
        rehearsal.waits.clear()
        if spoil:
            spoil_trainer(policy.trainer, spoil)
        policy.actor.register_forward_hook(lambda *_: forwards.append(1))
        with watched(rehearsal), memory():
            status = policy.trainer.ppo_train(0.1)
    assert all(map(math.isfinite, status.values()))
    assert [status[name] for name in MEMORY_METRICS] == [44, 53, 2, 3]
    return found_by(rehearsal, forwards=len(forwards), by_kernel=before > 0)


def add_reference(policy, case: Case, rehearsal: Rehearsal) -> None:
    cls = ReferenceModelActor.__ray_metadata__.modified_class
    model = cls.__new__(cls)
    model.init_model_from_pretrained(policy.strategy, case.model)
    with watched(rehearsal):
        (joined,) = policy.trainer.replay_buffer
        rows = (joined.sequences, joined.action_mask, joined.attention_mask)
        joined.base_action_log_probs = model.forward(*rows)


def spoil_trainer(trainer, how: str) -> None:
    """A tensor that stays on the host, or one more question to the device in each micro-batch."""
    forward, backward = trainer.forward, trainer.backward

    def forward_half(*args, **kwargs):
        now = forward(*args, **kwargs)
        assert now.scores.is_cuda  # made before; so only the log's numbers mix
        now.sampler = now.sampler.cpu()
        return now

    if how == "host":
        trainer.forward = forward_half
    else:
        trainer.backward = lambda loss, *rest: (loss.item(), backward(loss, *rest))


def handed_over(ipc: bool, **case) -> dict:
    """The weights' way to vLLM, as `weight_jobs` checks it, with the sender's on the GPU."""
    rehearsal = Rehearsal()
    with ExitStack() as stack, machine(rehearsal):

        def begin(case: Case):
            policy = policy_actor(case)
            stack.enter_context(watched(rehearsal))
            return policy

        with mock.patch.object(weight_jobs, "policy_actor", begin), mock.patch("torch.cuda.current_stream"):
            found = weight_jobs.handed_over(ipc, zero_stage=2, **case)
    return found_by(rehearsal, right=found["right"])


def loss_alone(over_ranks: bool) -> dict:
    """`real_policy_loss` in somebody else's trainer."""
    rehearsal = Rehearsal()
    with watched(rehearsal):
        new = torch.randn(6, 5, device="cuda").requires_grad_()
        mask = torch.ones(6, 5, device="cuda", dtype=torch.long)
        rewards = torch.tensor([1.0, 0, 1, 0, 0, 1], device="cuda")
        loss, _ = real_policy_loss(new, new.detach() - 0.1, mask, rewards, list("aaabbb"), over_ranks=over_ranks)
        loss.backward()
        assert new.grad.is_cuda and new.grad.device == CUDA
    return found_by(rehearsal)
