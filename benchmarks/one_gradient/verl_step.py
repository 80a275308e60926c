"""verl's engine: `FSDPEngine.forward_backward_batch` cuts, loops and calls `ppo_loss`. The model's forward is ours."""

import contextlib
import functools
import os

os.environ.update(VERL_LOGGING_LEVEL="ERROR", VERL_DISABLE_FLASH_ATTN_CE="1")

import batch
import torch
import torch.distributed as dist
import verl.utils.seqlen_balancing as balancing
import verl.workers.engine.fsdp.transformer_impl as impl
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding

impl.get_device_id = balancing.get_device_name = lambda: "cpu"
impl.postprocess_batch_func = lambda **_: None  # metrics


class Engine(impl.FSDPEngine):
    def __init__(self, net):
        self.module, self.ulysses_device_mesh, self.ulysses_sequence_parallel_size, self.scaler = net, None, 1, None

    get_data_parallel_group = staticmethod(lambda: dist.group.WORLD)
    get_data_parallel_size, get_data_parallel_rank = staticmethod(dist.get_world_size), staticmethod(dist.get_rank)
    _gradient_sync_context = staticmethod(lambda is_last_micro_batch: contextlib.nullcontext())

    def forward_step(self, micro_batch, loss_function, forward_only):
        ids, flat = micro_batch["input_ids"], []
        for row in ids.unbind():  # one row after another: no padding at all
            logits = self.module(input_ids=row[None]).logits[0]
            flat.append(logits.log_softmax(-1).gather(-1, row.roll(-1)[:, None])[:, 0])
        out = {"log_probs": torch.nested.nested_tensor_from_jagged(torch.cat(flat), ids.offsets())}
        loss, metrics = loss_function(model_output=out, data=micro_batch, dp_group=self.get_data_parallel_group())
        return loss, {"model_output": {}, "loss": loss.item(), "metrics": metrics}


def columns(part, width, nested):  # nested as in its present trainer, dense as in the one before
    ids, attention, mask = batch.padded(part, width)
    old, advantages = batch.column(part, "old", mask), batch.column(part, "advantage", mask)
    data = dict(responses=ids[:, -mask.shape[1] :], response_mask=mask, old_log_probs=old, advantages=advantages)
    if not nested:
        position = (attention.cumsum(1) - 1).clamp(min=0)
        data |= dict(input_ids=ids, attention_mask=attention, position_ids=position, prompts=ids[:, : -mask.shape[1]])
        return left_right_2_no_padding(TensorDict(data, batch_size=[len(part)]))
    data = {key: [values[m.bool()] for values, m in zip(value, mask, strict=True)] for key, value in data.items()}
    data["prompts"] = [torch.tensor(row["prompt"]) for row in part]
    data["input_ids"] = [torch.tensor(row["prompt"] + row["response"]) for row in part]
    data = {key: torch.nested.as_nested_tensor(values, layout=torch.jagged) for key, values in data.items()}
    return TensorDict({**data, "loss_mask": data["response_mask"]}, batch_size=[len(part)])


def gradient(loss, mode="token-mean", factor=None, size=16, width=0, nested=True, tokens=None, rank=0, world=1, **kw):
    if world == 1 and not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mean = dict(loss_agg_mode=mode, loss_scale_factor=factor, policy_loss=PolicyLossConfig(loss_mode=loss, **kw))
    config = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1, **mean)
    torch.manual_seed(0)
    net, data = batch.model(), columns(batch.rows(rank, world), width, nested)
    cut = dict(use_dynamic_bsz=True, max_token_len_per_gpu=tokens) if tokens else dict(use_dynamic_bsz=False)
    tensordict_utils.assign_non_tensor(data, micro_batch_size_per_gpu=size, global_batch_size=16, **cut)
    Engine(net).forward_backward_batch(data, functools.partial(ppo_loss, config))
    return batch.over_ranks(batch.gradient(net), world)
