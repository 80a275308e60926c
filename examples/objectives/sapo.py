"""SAPO (arXiv 2511.20347), a soft gate in place of GRPO's clip:

    real-openrlhf train --algo examples/objectives/sapo.py:sapo

mean of A f(r) over a rollout's tokens, f(r) = 4 / tau * sigmoid(tau (r - 1)), tau of the advantage's sign. A token's
weight is f'(r) r A: 1 at r = 1, and falling smoothly on both sides.
"""

import torch

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def soft_gate(log_ratio, advantage, mask, group):
    ratio = log_ratio.clamp(-20, 20).exp()
    tau = torch.full_like(advantage, group["tau_right"]).where(advantage > 0, group["tau_wrong"])
    gate = torch.sigmoid(tau * (ratio - 1))
    return 4 * gate * (1 - gate) * ratio * advantage


sapo = TokenLoss(
    soft_gate,
    about="policy gradient with a soft gate of each token's ratio",
    settings={
        "tau_right": Constant(1.0, "temperature of the gate, advantages above 0", above=0),
        "tau_wrong": Constant(1.05, "temperature of the gate, advantages of 0 and below", above=0),
    },
)
