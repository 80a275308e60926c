"""Ours: weights over the update, `RealPolicyLoss` of each micro-batch; uncut and over ranks `real_policy_loss`."""

import math

import batch
import torch

from real_openrlhf.algorithm.groups import RolloutBatch
from real_openrlhf.algorithm.objective import rollout_scores, score_weights
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, labels_from_rewards, real_policy_loss
from real_openrlhf.algorithm.settings import ObjectiveSettings


def gradient(objective, size=16, width=0, rank=0, world=1):
    net, rows, settings = batch.model(), batch.rows(rank, world), ObjectiveSettings(objective)
    rewards = [math.nan if row["reward"] is None else row["reward"] for row in rows]
    groups = [row["group"] for row in rows]
    if size >= len(rows):
        mask = batch.padded(rows, width)[2]
        logp, old = batch.logprobs(net, *batch.padded(rows, width)), batch.column(rows, "old", mask)
        same = dict(ref_log_probs=old, rollout_log_probs=old, objective=objective, over_ranks=world > 1)
        real_policy_loss(logp, old, mask, rewards, groups, **same)[0].backward()
        return batch.over_ranks(batch.gradient(net), world)

    def scores():
        for part in (rows[start : start + size] for start in range(0, len(rows), size)):
            mask = batch.padded(part, width)[2]
            logp, old = batch.logprobs(net, *batch.padded(part, width)), batch.column(part, "old", mask)
            yield rollout_scores(settings.score, logp, old, old, mask, old)

    lengths, values = torch.tensor([len(row["response"]) for row in rows]), torch.tensor(rewards, dtype=torch.float64)
    labels = labels_from_rewards(rewards, settings.objective.graded)
    table = RolloutBatch(labels, torch.tensor(groups), values, lengths)
    with torch.no_grad():
        weights = score_weights(settings, torch.cat([*scores()]), table).weights
    for part, weight in zip(scores(), weights.split(size), strict=True):
        RealPolicyLoss()(part, weight).backward()
    return batch.gradient(net)
