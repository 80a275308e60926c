"""The tests' own stand-in for flash-attn."""

import os
import subprocess
import sys

from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training import stand_in

PACKED = """
import torch
from flash_attn import flash_attn_varlen_func
torch.manual_seed(0)
lengths = [3, 1, 5]
q, k, v = torch.randn(9, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)
ends = torch.tensor([0, 3, 4, 9], dtype=torch.int32)
packed = flash_attn_varlen_func(q, k, v, ends, ends, 5, 5, causal=True)
k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
sequence = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
seen = (sequence[:, None] == sequence) & torch.tril(torch.ones(9, 9, dtype=torch.bool))
scores = torch.einsum("qhd,khd->hqk", q, k) / 8 ** 0.5
expected = torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)
torch.testing.assert_close(packed, expected)
"""


def test_packed_sequences_attend_to_themselves_alone():
    environment = {**os.environ, **stand_in.environment(RECIPES["cpu-like-gpu"], {})}
    done = subprocess.run([sys.executable, "-c", PACKED], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "place is taken by plain torch" in done.stderr
