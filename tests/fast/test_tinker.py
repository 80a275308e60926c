"""examples/tinker/train.py on a service with real gradients (tinker_stub.py); with the published client: `every`."""

import json
import math
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import tinker_stub
import torch
from every import every
from naive import naive_losses, naive_score

from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.report.read_runs import read_run
from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.tasks import default

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples/tinker/train.py"
PINNED = "tinker==0.38.0"


@pytest.fixture
def example(monkeypatch, tmp_path):
    """The names of the example, run with a stand-in for the client; its runs go into a folder of the test's."""
    module = tinker_stub.stand_in()
    monkeypatch.setitem(sys.modules, "tinker", module)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    monkeypatch.setitem(sys.modules, "example", Namespace(__dict__=names))  # dataclasses look themselves up
    exec(compile(FILE.read_text(), FILE, "exec"), names)
    return Namespace(**names)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """The tiny task of the CPU recipe, with few questions held out."""
    folder, few = tiny_model.prepare(default("reverse")), tmp_path_factory.mktemp("questions") / "few.jsonl"
    few.write_text("".join(open(folder / "eval.jsonl").readlines()[:16]))
    return folder, few


def words(task, *more):
    folder, few = task
    files = ["--model", str(folder / "model"), "--data", str(folder / "train.jsonl"), "--eval", str(few)]
    return [*files, "--max-tokens", "13", "--eval-samples", "8", *map(str, more)]


def test_the_example_is_short():
    assert len(FILE.read_text().splitlines()) <= 150


SETTINGS = {"real": None, "bce": None, "listwise": None, "conspo": None, "maxrl": None, "disco_lratio": None}


@pytest.mark.parametrize("objective", SETTINGS)
@pytest.mark.parametrize("anchor", ["sampler", "policy"])
def test_the_weights_that_are_sent_are_the_gradient_in_float64(example, objective, anchor):
    """Ragged prompts and answers, one without a verdict, scores that moved. The loss sees float32, as the client's."""
    generator = torch.Generator().manual_seed(1)
    rewards, groups = [1.0, 0.0, 0.0, 1.0, math.nan, 0.0, 1.0, 0.0], [0] * 4 + [1] * 4
    rollouts, new, old = [], [], []
    for place, (prompt, said) in enumerate([(2, 5), (2, 1), (2, 3), (2, 4), (3, 2), (3, 6), (3, 1), (3, 2)]):
        count = prompt + said - 1
        drawn, before, now = (-torch.rand(count, generator=generator) for _ in range(3))
        mask = torch.tensor([0.0] * (prompt - 1) + [1.0] * said)
        datum = tinker_stub.Datum([0] * count)
        rollouts.append(example.Rollout(groups[place], datum, drawn * mask, mask, rewards[place]))
        new.append(now.requires_grad_(True))
        old.append(drawn * mask if anchor == "sampler" else before)
    loss, metrics = example.group_loss(rollouts, old, 4, objective=objective)([], new)
    loss.backward()

    settings = ObjectiveSettings(objective)
    leaves = [one.detach().double().requires_grad_(True) for one in new]
    own = [one.mask.bool() for one in rollouts]
    columns = [[one[on].double() for one, on in zip(part, own, strict=True)] for part in (leaves, old)]
    scores = [naive_score(settings.score, *pair) for pair in zip(*columns, strict=True)]
    labels = [-1 if math.isnan(reward) else int(reward) for reward in rewards]
    losses, _ = naive_losses(settings, range(8), groups, scores, labels, [max(label, 0) for label in labels])
    expected = sum(losses) / 2
    expected.backward()
    assert metrics["real/loss"] == pytest.approx(expected.item(), rel=1e-12)
    for got, leaf in zip(new, leaves, strict=True):
        torch.testing.assert_close(got.grad, leaf.grad.float(), rtol=1e-6, atol=1e-9)
    assert sum(one.grad.abs().sum() for one in new) > 0.1


def test_a_group_that_is_not_whole_is_refused(example):
    rollout = example.Rollout(0, None, torch.zeros(2), torch.ones(2), 1.0)
    with pytest.raises(ValueError, match="group 0 has 3 rollouts on rank 0, not 4"):
        example.group_loss([rollout] * 3, [torch.zeros(2)] * 3, 4)


def test_a_tiny_task_is_learned_and_the_report_reads_the_run(example, task):
    service = tinker_stub.Service(task[0] / "model")
    args = example.parse(words(task, "--steps", 14, "--prompts", 8, "--group", 16, "--updates", 1, "--lr", 5e-4))
    run = read_run(example.train(args, tinker_stub.ServiceClient(service)))
    passed = run.logged["eval"]["eval_few_pass1"]
    assert [*passed.index] == [0, 14]
    assert passed.iloc[1] > passed.iloc[0] + 0.3
    assert (run.algo, run.status, run.last_step) == ("real", "finished", 14)
    assert len(run.logged["train"]["rollout/reward_mean"]) == 14
    first = run.logged["train"]["real/score_pos"].values  # one update, anchored at the sampler, which is the policy
    assert max(map(abs, first)) < 1e-5


@pytest.mark.parametrize("anchor", ["sampler", "policy"])
def test_several_updates_of_a_batch_have_one_anchor(example, task, anchor):
    service = tinker_stub.Service(task[0] / "model")
    counts = ["--steps", 1, "--prompts", 2, "--group", 64, "--updates", 2, "--lr", 1e-2, "--eval-samples", 1]
    args = example.parse([*words(task, *counts), "--anchor", anchor, "--seed", "3"])
    numbers = read_run(example.train(args, tinker_stub.ServiceClient(service))).logged["train"]
    assert len(service.weights) == 128 and len(service.snapshots) == 2
    assert abs(numbers["real/score_neg"].iloc[0]) > 1e-3  # of two updates: the second found a moved policy


def test_updates_that_do_not_divide_the_batch_are_refused(example, task):
    with pytest.raises(SystemExit, match="--updates 3 does not divide --prompts 8. Change one of them"):
        example.train(example.parse(words(task, "--prompts", 8, "--updates", 3)), None)


@every  # needs a package index
def test_the_published_client_trains_as_the_stand_in(example, task, tmp_path):
    """Over HTTP, with requests of five rollouts: each number that is logged is the same."""
    packages = tmp_path / "packages"
    install = [f"{sys.prefix}/bin/uv", "pip", "install", "-q", "--python", sys.executable, "--target", str(packages)]
    subprocess.run([*install, PINNED], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT / "tests"), str(ROOT)])}
    asked = words(task, "--steps", 3, "--prompts", 4, "--group", 4, "--lr", 1e-3)
    serve = [sys.executable, str(ROOT / "tests/tinker_stub.py"), str(task[0] / "model")]
    with subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            environment |= {"TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-none", "TINKER_TELEMETRY": "0"}
            subprocess.run([sys.executable, str(FILE), *asked], env=environment, cwd=tmp_path, check=True, timeout=300)
        finally:
            server.kill()
    (over_http,) = (tmp_path / "runs").glob("*/metrics.jsonl")
    lines = [*map(json.loads, over_http.read_text().splitlines())]
    service = tinker_stub.Service(task[0] / "model")
    here = example.train(example.parse(asked), tinker_stub.ServiceClient(service)) / "metrics.jsonl"
    assert len(lines) == 5
    for got, expected in zip(lines, map(json.loads, here.read_text().splitlines()), strict=True):
        assert got.pop("phase") == expected.pop("phase")
        own = [name for name in got if not name.endswith(("time", "_right"))]  # "right" has the signs of zeros
        assert {name: got[name] for name in own} == pytest.approx(
            {name: expected[name] for name in own}, rel=1e-3, abs=1e-5
        )
