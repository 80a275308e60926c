"""OpenRLHF's `PolicyLoss` and `iter_grad_accum_global_norm`; its trainer's loop and DeepSpeed's division repeated."""

import types

import batch
from openrlhf.models.loss import PolicyLoss
from openrlhf.utils.loss_utils import iter_grad_accum_global_norm


def gradient(size=16, width=0, rank=0, world=1, **options):
    net, loss_fn, rows, data = batch.model(), PolicyLoss(**options), batch.rows(rank, world), []
    for part in (rows[start : start + size] for start in range(0, len(rows), size)):
        mask = batch.padded(part, width)[2].clone()
        mask[[row["n"] == batch.UNGRADED for row in part]] = 0  # it has no token that trains
        data.append((part, mask))
    windows = iter_grad_accum_global_norm(iter(data), types.SimpleNamespace(), len(data), lambda each: each[1])
    for (part, mask), info in windows:
        logp = batch.logprobs(net, *batch.padded(part, width))
        old, advantage, rollout = (batch.column(part, key, mask) for key in ("old", "advantage", "rollout"))
        loss = loss_fn(logp, old, advantage, action_mask=mask, rollout_log_probs=rollout, **info)[0]
        (loss / len(data)).backward()
    return batch.over_ranks(batch.gradient(net), world)
