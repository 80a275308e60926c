"""The snippets of docs/elsewhere.md in the real TRL, and with verl's real functions.

Neither is among our requirements, and verl wants another transformers than we do. So these tests want a Python that
has one of them, torch, transformers, pytest and hypothesis. `tests/fast/test_page_code.py` tests the arithmetic.
"""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from real_openrlhf import real_policy_loss

ROOT = Path(__file__).parents[2]


def needs(package: str):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed; the page names the release that was tried")


def trl_run(folder: Path, processes: int, **config) -> tuple[list[dict], str]:
    """(what each rank found, what was said); nothing is found by a run that was stopped."""
    folder.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRL_EXPERIMENTAL_SILENCE": "1"}
    words = [*launcher, str(ROOT / "tests/trl_job.py"), str(folder), json.dumps(config)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    return [
        torch.load(path, weights_only=False) for path in sorted(folder.glob("rank*.pt"))
    ], ended.stdout + ended.stderr


@needs("trl")
@pytest.mark.parametrize(
    "config", [{"per_device_train_batch_size": 8}, {"per_device_train_batch_size": 2, "over_ranks": True}]
)
def test_two_processes_of_trl_train_as_one(tmp_path, config):
    """Two updates of each of two batches. Groups are whole on a rank, or each rank has half of one."""
    case = {"num_iterations": 2, "max_steps": 4}
    two, said = trl_run(tmp_path / "two", 2, **case, **config)
    assert len(two) == 2, said[-3000:]
    whole = {"per_device_train_batch_size": 2 * config["per_device_train_batch_size"]}
    (one,), _ = trl_run(tmp_path / "one", 1, **case, **whole)
    assert len(one["losses"]) == len(one["gradients"]) == 4 and one["moved"].norm() > 0
    for step in range(4):
        losses = [rank["losses"][step] for rank in two]
        assert sum(losses) / 2 == pytest.approx(one["losses"][step], rel=1e-5)
        assert losses[0] == losses[1] or "over_ranks" not in config
        error = (two[0]["gradients"][step] - one["gradients"][step]).norm() / one["gradients"][step].norm()
        print(step, one["losses"][step], sum(losses) / 2, float(error))
        assert error < 1e-4
    assert one["losses"][0] != one["losses"][1]
    assert (two[0]["moved"] - one["moved"]).norm() < 1e-4 * one["moved"].norm()


@needs("trl")
@pytest.mark.parametrize(
    "processes, config, said",
    [
        (2, {"per_device_train_batch_size": 2}, r"group 0 is torn over ranks \[0, 1\]"),
        (
            1,
            {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
            r"group \d has \d rollouts on rank 0, not 4",
        ),
    ],
)
def test_torn_groups_stop_trl_at_its_first_step(tmp_path, processes, config, said):
    found, output = trl_run(tmp_path / "torn", processes, max_steps=2, **config)
    assert not found and len(re.findall(f"ValueError: {said}", output)) == processes, output[-3000:]


@needs("trl")
def test_trl_draws_by_itself_and_accumulates(tmp_path):
    """With one update a batch all scores are 0: each group of unequal rewards has a loss of log 4, the others 0."""
    case = {"generate": True, "steps_per_generation": 1, "gradient_accumulation_steps": 2, "max_steps": 3}
    ranks, said = trl_run(tmp_path / "drawn", 2, per_device_train_batch_size=8, **case)
    assert len(ranks) == 2, said[-3000:]
    losses = torch.tensor([rank["losses"] for rank in ranks]).sum(0).view(3, 2).sum(1) / 2  # two calls of two ranks
    logged = [line for line in ranks[0]["log"] if "frac_reward_zero_std" in line]
    for loss, line in zip(losses.tolist(), logged, strict=True):
        assert loss == pytest.approx(math.log(4) * (1 - line["frac_reward_zero_std"]), rel=1e-5)
    assert ranks[0]["moved"].norm() > 0


@needs("verl")
def test_verls_own_loss_has_our_gradient_at_the_first_update():
    """Its advantages, its loss, its means: two ranks with torn groups, each with micro-batches of uneven size."""
    import numpy as np
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
    from verl.workers.config import ActorConfig

    block = re.search(
        r"^```python\n(# verl_groups\.py\n.*?)^```", (ROOT / "docs/elsewhere.md").read_text(), re.S | re.M
    )
    exec(compile(block[1], "docs/elsewhere.md", "exec"), {})
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(6) < torch.randint(1, 7, (16, 1), generator=generator)).long()
    old = torch.randn(16, 6, generator=generator) - 1
    rewards = torch.randint(0, 4, (16,), generator=generator) / 4
    uids = np.array([f"prompt {row % 4}" for row in range(16)], dtype=object)
    last = torch.zeros(16, 6).scatter(1, mask.sum(-1, keepdim=True) - 1, rewards[:, None])
    columns = {"token_level_rewards": last, "response_mask": mask, "index": uids}
    advantages, _ = get_adv_estimator_fn("listwise")(**columns, config=None)  # as its trainers call it

    config = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1)
    config.global_batch_info.update(dp_size=2, batch_num_tokens=int(mask.sum()), global_batch_size=16)
    new = old.clone().requires_grad_()
    for rank in (range(8), range(8, 16)):
        for rows in (rank[:3], rank[3:4], rank[4:]):
            rows = list(rows)
            loss, _ = get_policy_loss_fn("vanilla")(
                old[rows], new[rows], advantages[rows], mask[rows], "seq-mean-token-sum", config
            )
            (loss / 2).backward()  # FSDP averages over two ranks
    expected, _ = real_policy_loss(new, old, mask, rewards, list(uids), objective="listwise")
    (gradient,) = torch.autograd.grad(expected, new)
    torch.testing.assert_close(new.grad, gradient, rtol=1e-5, atol=1e-7)
    assert gradient.norm() > 0
