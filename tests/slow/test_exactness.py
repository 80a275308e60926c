"""Weighted losses in any cut, and the maths without the stack."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from every import every

# CISPO and REINFORCE through OpenRLHF's own means: in its trainer's place, in any cut, as loops say.


NAMES = ("cispo", "reinforce")
LENGTHS = (3, 1, 4, 0, 2, 4)


@pytest.fixture(scope="module")
def columns():
    """New, old, advantages and mask of ragged rollouts, in float64."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(len(LENGTHS), 4, dtype=torch.float64, generator=generator) - 2
    new = old + torch.randn(len(LENGTHS), 4, dtype=torch.float64, generator=generator)
    advantages = torch.randn(len(LENGTHS), 1, dtype=torch.float64, generator=generator).expand_as(old)
    return new, old, advantages, (torch.arange(4) < torch.tensor(LENGTHS)[:, None]).double()


def loss_in_place_of(name: str, **settings):
    from openrlhf.models.loss import PolicyLoss

    from real_openrlhf.hooks.actor.token_losses import loss_of

    return loss_of(PolicyLoss(policy_loss_type=name, clip_eps_low=0.3, clip_eps_high=0.5, **settings))


def in_loops(name, columns, token_level: bool) -> torch.Tensor:
    """The mean over all tokens, or over rollouts of their token means, weight by weight."""
    new, old, advantages, _ = columns
    gradient, rollouts = torch.zeros_like(new), sum(length > 0 for length in LENGTHS)
    for row, length in enumerate(LENGTHS):
        for t in range(length):
            weight = math.exp(new[row, t] - old[row, t])
            if name == "cispo":
                weight = max(0.7, min(1.5, weight))
            share = 1 / sum(LENGTHS) if token_level else 1 / length / rollouts
            gradient[row, t] = -weight * advantages[row, t] * share
    return gradient


@pytest.mark.parametrize("token_level", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_that_of_loops_in_any_micro_batches(columns, name, token_level):
    loss_fn = loss_in_place_of(name, token_level_loss=token_level)
    counts = {"batch_num_tokens": float(sum(LENGTHS)), "global_batch_size": float(sum(map(bool, LENGTHS)))}
    expected = in_loops(name, columns, token_level)
    for cut in ([6], [1, 2, 3], [1] * 6):
        new = columns[0].clone().requires_grad_()
        for parts in zip(*(column.split(cut) for column in (new, *columns[1:])), strict=True):
            loss_fn(*parts[:3], action_mask=parts[3], dp_size=1, **counts)[0].backward()
        # upstream's mean over a rollout's tokens adds 1e-8 to their number
        torch.testing.assert_close(new.grad, expected, rtol=1e-12 if token_level else 2e-8, atol=1e-14)


def test_without_counts_and_with_ranks_it_is_scaled_as_upstreams_is(columns):
    """REINFORCE beside PPO's surrogate without clipping: another value, one gradient."""
    from openrlhf.models.loss import PolicyLoss

    new, old, advantages, mask = columns
    upstreams = PolicyLoss(clip_eps_low=1.0, clip_eps_high=1e9)
    found = []
    for loss_fn in (upstreams, loss_in_place_of("reinforce")):
        for counts in ({}, {"dp_size": 4, "batch_num_tokens": 100.0}):
            leaf = new.clone().requires_grad_()
            loss, _, kl, *_ = loss_fn(leaf, old, advantages, action_mask=mask, **counts)
            found.append((torch.autograd.grad(loss, leaf)[0], kl))
    for one, two in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=0)


def test_the_share_of_clipped_tokens_is_told(columns):
    new, old, advantages, mask = columns
    _, share, *_ = loss_in_place_of("cispo")(new, old, advantages, action_mask=mask)
    ratios = [math.exp(new[row, t] - old[row, t]) for row, length in enumerate(LENGTHS) for t in range(length)]
    assert share == pytest.approx(sum(not 0.7 <= ratio <= 1.5 for ratio in ratios) / len(ratios))
    assert loss_in_place_of("reinforce")(new, old, advantages, action_mask=mask)[1] == 0


# The formulas need PyTorch and nothing else, and are tested with little more: `tests/run.sh maths`.


REPOSITORY = Path(__file__).parents[2]
# Nothing else that the project needs somewhere is found, as where it is not installed.
ONLY_WHAT_THE_MATHS_NEEDS = """
import sys
ABSENT = "openrlhf vllm ray deepspeed transformers pyarrow matplotlib math_verify tqdm numpy".split()
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *where):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, *where)
sys.meta_path[:] = map(Without, sys.meta_path)
"""


def maths(tmp_path, python3: str, *options: str) -> subprocess.CompletedProcess:
    """`tests/run.sh maths` where `python3` is this script."""
    for name in ("python3", "python"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{python3}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "REAL_VENV": str(tmp_path / "none")}
    words = ["bash", str(REPOSITORY / "tests/run.sh"), "maths", *options]
    return subprocess.run(words, env=environment, capture_output=True, text=True)


@every
def test_the_maths_is_tested_with_torch_pytest_and_hypothesis_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ONLY_WHAT_THE_MATHS_NEEDS)
    python3 = f'PYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"'
    options = "-p no:cacheprovider -p no:xdist -k proposition_5_1_closed"
    done = maths(tmp_path, python3, *options.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert not (tmp_path / "none").exists()  # nothing is set up


def test_what_the_maths_needs_is_named_where_it_is_missing(tmp_path):
    done = maths(tmp_path, "exit 1")
    assert done.returncode == 1
    assert done.stderr == (
        "tests/run.sh: error: no Python here has what these tests need: pip install torch pytest hypothesis\n"
    )
