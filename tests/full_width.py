"""A training step of a true model at its true width, without its memory: numbers with fractions have no values.

They are tensors on torch's meta device, which have shapes and formats only. Tokens, masks and bounds are real. All of
them say that they are on cuda (`pretend_cuda.py`), so the lines for GPUs run.
"""

import weakref
from types import SimpleNamespace

import torch
from openrlhf.models import Actor
from peft import LoraConfig, get_peft_model
from pretend_cuda import GPU, Rehearsal, Watch, found_by, tensors_of, watched
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import AutoModelForCausalLM, Qwen2Config

from real_openrlhf.hooks.model import flash_attention_torch
from real_openrlhf.hooks.model.logit_free_head import attach


class Memory:
    """Bytes of the tensors without values that are alive, as their operators make them and Python lets them go."""

    def __init__(self) -> None:
        self.live = self.peak = 0
        self.known: set[int] = set()

    def see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if tensor.is_meta and key not in self.known:
            self.known.add(key)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


class Wide(Watch):
    """Takes what is real into an operator that has no values."""

    memory: Memory
    calls: list[tuple]  # of operators on packed sequences and of products: name, first two shapes, formats

    def run(self, function, args: tuple, kwargs: dict):
        with torch._C.DisableTorchFunction():
            given = tensors_of((args, kwargs))
            if any(one.is_meta for one in given):
                args, kwargs = tree_map_only(Tensor, lambda one: one.to("meta"), (args, kwargs))
            if "varlen_attn" in function.name() or function.name() == "aten::mm":
                self.calls.append(
                    (function.name(), [tuple(one.shape) for one in given[:2]], {one.dtype for one in given})
                )
            result = function(*args, **kwargs)
            for one in tensors_of(result):
                self.memory.see(one)
        return result


def actor_of(config: dict, checkpointing: bool, lora_rank: int) -> Actor:
    """As OpenRLHF's constructor makes it of a folder, with the head that the recipes ask for."""
    flash_attention_torch.register()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen2Config(**config, dtype="bfloat16"), dtype=torch.bfloat16)
        model.config._attn_implementation = flash_attention_torch.NAME
        if lora_rank:
            model.enable_input_require_grads()
            model = get_peft_model(model, LoraConfig(r=lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"))
            for one in model.parameters():  # as DeepSpeed's engine
                one.data = one.data.bfloat16()
    model.config.use_cache = False
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    actor = Actor(model.train(), temperature=0.6)
    actor.packing_samples = True
    ds = SimpleNamespace(logit_free=True, share_prompts=False, packing_samples=True, attn_implementation="sdpa")
    args = SimpleNamespace(ds=ds, actor=SimpleNamespace(entropy_coef=0.0))
    attach(actor, SimpleNamespace(args=args, print=print))
    actor.logit_free.checked = True  # it compares values
    return actor


def step(config: dict, tokens: int, checkpointing: bool, gradients: bool = True, lora_rank: int = 0) -> dict:
    """A micro-batch of three rollouts there and back. Bytes: that autograd saves in the last layer, that are alive
    after the forward, and the most that are in the forward, in the head's backward and in the last layer's."""
    actor, rehearsal, memory, phase = (
        actor_of(config, checkpointing, lora_rank),
        Rehearsal(False),
        Memory(),
        ["forward"],
    )
    weights = {one.untyped_storage()._cdata for one in actor.parameters()}
    memory.known |= weights
    Wide.memory, Wide.calls = memory, []
    sequences, mask = rollouts(tokens)
    for one in (sequences, mask):
        rehearsal.put(one, GPU)
    peaks, saved = {}, {}

    def pack(tensor: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            if phase[0] == "layer" and tensor.is_meta and storage._cdata not in weights:
                saved[storage._cdata] = storage.nbytes(), tensor
        return tensor

    def enter(name: str):
        peaks[phase[0]] = max(peaks.get(phase[0], 0), memory.peak)
        memory.peak, phase[0] = memory.live, name

    layers = actor.model.get_base_model().model.layers if lora_rank else actor.model.model.layers
    layers[-1].register_forward_pre_hook(lambda *_: None if phase[0] == "backward" else enter("layer"))
    layers[-1].register_forward_hook(lambda *_: None if phase[0] == "backward" else enter("forward"))
    layers[-1].register_full_backward_pre_hook(lambda *_: enter("backward"))
    for one in filter(lambda one: one.requires_grad, actor.parameters()):
        one.register_post_accumulate_grad_hook(lambda one: setattr(one, "grad", None))  # DeepSpeed takes it away
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with watched(rehearsal, Wide), torch.set_grad_enabled(gradients), hooks:
        log_probs, _ = actor(sequences, mask[:, 1:], attention_mask=mask, return_output=True, return_entropy=gradients)
        enter("head")
        kept = memory.live
        if gradients:
            log_probs.sum().backward()
        enter("end")
    found = {
        "saved": sum(size for size, _ in saved.values()),
        "kept": kept,
        "forward": max(peaks["forward"], peaks["layer"]),
    }
    return found_by(rehearsal, **found, head=peaks["head"], backward=peaks.get("backward", 0), calls=Wide.calls)


def rollouts(tokens: int) -> tuple[Tensor, Tensor]:
    """A long one, a middle one and a short one, padded."""
    lengths = torch.tensor([tokens // 2, tokens // 3, tokens - tokens // 2 - tokens // 3])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return torch.randint(3, 1000, mask.shape) * mask, mask
