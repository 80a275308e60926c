"""Weighted losses in any cut, and the maths without the stack."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from every import every

from real_openrlhf.algorithm.formulas import TOKEN_WEIGHTS
from real_openrlhf.algorithm.groups import Table
from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.algorithm.schedule import Limit
from real_openrlhf.algorithm.step_plan import PlanSettings, plan_rollouts, rank_plans
from real_openrlhf.algorithm.update import Coefficients, Forward, WeightedTokens

# CISPO and REINFORCE in any cut, as loops say.


LENGTHS = (3, 1, 4, 0, 2, 4)


@pytest.fixture(scope="module")
def columns():
    """New, old, advantages and mask of ragged rollouts, in float64."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(len(LENGTHS), 4, dtype=torch.float64, generator=generator) - 2
    new = old + torch.randn(len(LENGTHS), 4, dtype=torch.float64, generator=generator)
    advantages = torch.randn(len(LENGTHS), 1, dtype=torch.float64, generator=generator).expand_as(old)
    return new, old, advantages, (torch.arange(4) < torch.tensor(LENGTHS)[:, None]).double()


def update_of(name: str, columns, size: int = 6, mean: str = "token-mean"):
    """(gradient, update) of the rollouts in micro-batches of this size, as the trainer's."""
    loss = TOKEN_WEIGHTS[name]
    return update_with(ObjectiveSettings(replace(loss, mean=mean), own={"low": 0.3, "high": 0.5}), columns, size)


def update_with(choices: ObjectiveSettings, columns, size: int):
    new, old, advantages, mask = columns
    labels, nothing = (advantages[:, 0] > 0).long(), torch.zeros(len(LENGTHS), dtype=torch.long)
    rollouts = Table(labels, nothing, None, torch.tensor(LENGTHS), torch.tensor(LENGTHS) + 1)
    settings = PlanSettings(groups_per_step=1, num_ranks=1, limit=Limit(size), seed=0, whole_groups=False)
    step = rank_plans(plan_rollouts(rollouts, settings), rollouts, 1, [])[1][0].steps[0]
    update, leaf = WeightedTokens(choices, step, Coefficients()), new.clone().requires_grad_()
    for rows in (batch.rows for wave in step.waves for batch in wave.micro_batches):
        now = Forward("", rows, mask[rows], leaf[rows], old[rows], sampler=old[rows] - 0.5 * old[rows].sin())
        now.advantages = advantages[rows]
        update.loss(now).backward()
    return leaf.grad, update


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
@pytest.mark.parametrize("name", TOKEN_WEIGHTS)
def test_the_gradient_is_that_of_loops_in_any_micro_batches(columns, name, token_level):
    expected = in_loops(name, columns, token_level)
    for size in (6, 2, 1):
        gradient, _ = update_of(name, columns, size, "token-mean" if token_level else "seq-mean-token-mean")
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["sapo:sapo", "gmpo:gmpo", "nft:nft", "icepop:icepop", "ratios:ratio_wrong"])
def test_a_loss_of_tokens_by_a_file_has_one_gradient_in_any_micro_batches(columns, name):
    choices = ObjectiveSettings(f"{REPOSITORY}/examples/objectives/{name.replace(':', '.py:')}")
    whole, *cut = (update_with(choices, columns, size)[0] for size in (6, 2, 1))
    assert whole.count_nonzero() > 5
    for gradient in cut:
        torch.testing.assert_close(gradient, whole, rtol=1e-6, atol=1e-9)


def test_reinforce_has_the_gradient_of_ppo_without_clipping(columns):
    from openrlhf.models.loss import PolicyLoss

    leaf = columns[0].clone().requires_grad_()
    loss, *_ = PolicyLoss(clip_eps_low=1.0, clip_eps_high=1e9)(leaf, *columns[1:3], action_mask=columns[3])
    torch.testing.assert_close(update_of("reinforce", columns)[0], torch.autograd.grad(loss, leaf)[0])


def test_the_share_of_clipped_tokens_is_told(columns):
    new, old, *_ = columns
    ratios = [math.exp(new[row, t] - old[row, t]) for row, length in enumerate(LENGTHS) for t in range(length)]
    clipped = {name: update_of(name, columns, 2)[1].meter.sums["ppo_clip_ratio"] for name in TOKEN_WEIGHTS}
    assert clipped == {"cispo": sum(not 0.7 <= ratio <= 1.5 for ratio in ratios), "reinforce": 0}


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
