"""How often a block of logits passes memory, counted: a ratchet. And what runs if the functions cannot be compiled."""

import functools
import warnings

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from real_openrlhf.algorithm import logit_blocks
from real_openrlhf.algorithm.token_log_probs import factored_log_probs

TOKENS, WORDS, WIDTH = 1024, 8192, 64
LAYOUT = ("aten::view", "aten::t", "aten::detach", "aten::alias", "aten::slice", "aten::split", "aten::unsqueeze")


class Passed(TorchDispatchMode):
    """Bytes a logit of every tensor that an operator reads or writes, but for those that stay in a CPU's cache."""

    total = 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        name = function.name()
        if not name.startswith(LAYOUT) and "gather" not in name and "scatter" not in name:
            product = name.startswith(("aten::mm", "aten::addmm"))  # reads hidden states and weights besides
            ones = {id(one): one for one in tree_leaves(found if product else (args, kwargs, found))}
            for one in ones.values():
                if isinstance(one, torch.Tensor) and one.untyped_storage().size() > 4 * logit_blocks.CPU_LOGITS:
                    twice = name.startswith("aten::addmm") + 1
                    self.total += twice * one.numel() * one.element_size() / (TOKENS * WORDS)
        return found


@pytest.mark.parametrize("trained, most", [("log-probabilities", 45), ("entropies too", 50)])
def test_bytes_a_logit(trained, most):
    """117 before, in bf16 with entropies logged: each operator then passed over the whole block."""
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16, generator=draw).requires_grad_()
    weight = torch.randn(WORDS, WIDTH, dtype=torch.bfloat16, generator=draw).requires_grad_()
    labels = torch.randint(0, WORDS, (TOKENS,), generator=draw)
    with Passed() as passed:
        log_probs, entropies = factored_log_probs(
            [(hidden, weight)], labels, 0.6, True, rounded=True, logits_at_once=TOKENS * 2048
        )
        (log_probs if trained == "log-probabilities" else log_probs + entropies).sum().backward()
    assert passed.total < most, passed.total
