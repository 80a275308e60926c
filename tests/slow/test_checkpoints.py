"""Checkpoints of real ZeRO engines: whole or not there, and with all that decides a later step."""

import json
import os
import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from every import every
from small_runs import flip

from real_openrlhf.base import atomic_dirs
from real_openrlhf.base.files import write_json
from real_openrlhf.hooks import run_strategy
from real_openrlhf.hooks.controller import run_controller
from real_openrlhf.hooks.controller.run_controller import RunController
from real_openrlhf.hooks.run_strategy import RunStrategy

TAGS = ("global_step1", "best_global_step1", "global_step2", "best_global_step2", "global_step3")


@pytest.fixture(scope="module")
def trained(two_ranks):
    return partial(two_ranks, "weight_jobs.trained")


@pytest.fixture(scope="module")
def case(random_model) -> dict:
    return {"model": random_model, "dtype": "bf16", "learning_rate": 1e-2, "micro_batch_size": 4}


@pytest.fixture(scope="module")
def three(trained, case, tmp_path_factory):
    """A run with a checkpoint after each of two steps."""
    folder = tmp_path_factory.mktemp("three")
    trained(folder=str(folder), until=2, save=("global_step1", "global_step2"), **case)
    return folder


@pytest.fixture
def copy(three, tmp_path):
    shutil.copytree(three, tmp_path / "run")
    return tmp_path / "run"


def actor(folder):
    return folder / "checkpoints" / "_actor"


def tags(folder) -> set[str]:
    return {path.name for path in actor(folder).iterdir() if path.is_dir()}


@pytest.mark.parametrize(
    "changes",
    [
        *(pytest.param({"zero_stage": stage}, marks=every) for stage in (2, 3)),
        pytest.param({"zero_stage": 3, "flags": ("--ds.adam_offload",)}, marks=every),
        pytest.param({"zero_stage": 3, "lora": True}, marks=every),
        {"zero_stage": 2, "loss": "ppo", "lora": True, "dropout": 0.5},  # REAL's refuses dropout
        pytest.param({"zero_stage": 3, "loss": "ppo", "batching": "whole_groups"}, marks=every),
        {"zero_stage": 3, "skip": True, "kinds": ("uniform", "uniform", "uniform", "mixed")},
        pytest.param(
            {"zero_stage": 2, "skip": True, "kinds": ("uniform",), "loss": "ppo", "batching": "whole_groups"},
            marks=every,
        ),
    ],
    ids=str,
)
def test_loaded_and_trained_on_is_trained_through(trained, case, tmp_path, changes):
    case = {**case, **changes, "folder": str(tmp_path)}
    through = trained(until=3, save=("global_step1",), **case)
    resumed = trained(until=3, load=True, **case)
    for one, other in zip(through, resumed, strict=True):
        assert other["loaded"] == {"checkpoint": "global_step1", "damaged": []}
        assert [name for name in one["state"] if one["state"][name] != other["state"][name]] == []
    before, after = resumed[0]["before"], resumed[0]["state"]
    assert any(after[name] != value for name, value in before.items())  # it has trained


@pytest.mark.parametrize("place", ["ckpt", "run/ckpt"])
def test_a_command_of_openrlhf_saves_where_it_saved_before(two_ranks, case, tmp_path, place):
    """With --train.run_dir, and no record of ours: the model beside its checkpoints, as the release's flags are."""
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "mine.txt").touch()
    draft = tmp_path / place / "checkpoints_ppo_ray/_actor/.writing/old"  # of a save that a kill interrupted
    draft.mkdir(parents=True)
    one, _ = two_ranks("weight_jobs.saved_twice", folder=str(tmp_path), place=place, zero_stage=3, **case)
    assert {"config.json", "mine.txt", "global_step1", "global_step2"} <= {*one}


def test_a_lower_rate_at_a_resume_is_used(trained, case, three, tmp_path):
    lower = {**case, "learning_rate": 1e-3}
    words = {"folder": str(three), "until": 3, "load": True}
    before, resumed = trained(**words, **case)[0]["state"], trained(**words, **lower)[0]["state"]
    assert resumed["rate"] == trained(folder=str(tmp_path), until=1, **lower)[0]["state"]["rate"]
    assert [name for name in before if before[name] != resumed[name]] != ["rate"] != []


def test_where_moments_waited_in_host_memory_is_not_loaded(trained, case, tmp_path):
    """Torch would put these buffers on the GPU, and from then on nothing would leave it."""
    case = {**case, "zero_stage": 3, "folder": str(tmp_path)}
    trained(until=1, save=("global_step1",), sleep=True, **case)
    file, *_ = (actor(tmp_path) / "global_step1").glob("*optim_states.pt")
    assert b"exp_avg_offload_buffer" in file.read_bytes()
    assert [rank["in host memory"] for rank in trained(until=1, load=True, **case)] == [[], []]


@pytest.mark.parametrize(
    "method",
    [{"loss": "real", "zero_stage": 3}, {"loss": "ppo", "batching": "whole_groups", "zero_stage": 2}],
    ids=["real", "ppo"],
)
def test_without_rollouts_that_have_no_gradient_weights_are_the_same_bit_for_bit(one_rank, case, tmp_path, method):
    """Four updates, of one rollout a micro-batch: what is left then comes in the same order."""
    case = {**case, **method, "micro_batch_size": 1, "depth": "1", "until": 2}
    less, more = (
        one_rank("weight_jobs.trained", folder=str(tmp_path / str(skip)), skip=skip, **case)[0]["state"]
        for skip in (True, False)
    )
    assert less == more


def longest(folder, tag):
    return max((actor(folder) / tag).glob("*.pt"), key=lambda path: path.stat().st_size)


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


# each harm is told by its name in fast/test_run_folder.py
@pytest.mark.parametrize("harm", [flip, *(pytest.param(harm, marks=every) for harm in (truncate, os.remove))])
def test_a_damaged_one_is_named_and_the_one_before_it_used(trained, case, copy, harm):
    path = longest(copy, "global_step2")
    harm(path)
    for report in trained(folder=str(copy), until=1, load=True, **case):
        assert report["loaded"]["checkpoint"] == "global_step1"
        assert report["loaded"]["damaged"][0].startswith(f"global_step2: {path.name} ")


def test_if_none_is_whole_nothing_begins_anew_in_silence(trained, case, copy):
    for tag in ("global_step1", "global_step2"):
        flip(longest(copy, tag))
    for report in trained(folder=str(copy), until=1, load=True, **case):
        assert report["error"].startswith(f"no checkpoint in {actor(copy)} is whole (global_step2: ")


def test_one_that_was_never_finished_is_not_there(trained, case, copy):
    """As a kill leaves it, and nothing before it."""
    (actor(copy) / "global_step2").rename(actor(copy) / ".writing")
    shutil.rmtree(actor(copy) / "global_step1")
    for report in trained(folder=str(copy), until=1, load=True, save=("global_step1",), **case):
        assert report["loaded"] == {"checkpoint": None, "damaged": None}
    assert tags(copy) == {"global_step1"}  # and what was left of it is gone


def test_a_full_disk_leaves_the_checkpoint_before(trained, case, copy):
    shutil.rmtree(actor(copy) / "global_step2")
    for report in trained(folder=str(copy), until=2, load=True, save=("global_step2",), full=True, **case):
        assert "global_step2 could not be written" in report["error"]
        assert "the one before it is whole" in report["error"]
    assert tags(copy) == {"global_step1"} and atomic_dirs.damage(actor(copy) / "global_step1") is None
    (first, _) = trained(folder=str(copy), until=1, load=True, **case)
    assert first["loaded"]["checkpoint"] == "global_step1"


def test_an_old_one_goes_when_the_new_one_is_there(trained, case, tmp_path):
    trained(folder=str(tmp_path), until=3, save=TAGS, max_num=2, **case)
    left = {"global_step2", "global_step3"}
    assert tags(tmp_path) == left | {"best_global_step2"}
    assert (actor(tmp_path) / "latest").read_text() == "global_step3"
    manifest = json.loads((actor(tmp_path) / "global_step3" / atomic_dirs.MANIFEST).read_text())
    assert manifest["global_step"] == 3 and manifest["ranks"] == 2
    assert all(atomic_dirs.damage(actor(tmp_path) / tag) is None for tag in left)


@pytest.mark.parametrize(
    "metrics, max_num, max_kb, left",
    [
        ((0.9, 0.1, 0.5), 3, 99, (1, 3, 4)),  # the worst goes first, though it is not the oldest
        ((0.9, None, 0.1), 3, 99, (1, 3, 4)),  # before it one without a metric
        ((0.5, 0.5, 0.5), 3, 99, (2, 3, 4)),  # of equal ones the oldest
        ((0.1, 0.9, 0.5), 9, 25, (2, 4)),  # ten kilobytes each
        ((0.1, 0.9, 0.5), 9, 5, (4,)),  # the new one stays
        ((0.1, 0.9, 0.5), 9, 99, (1, 2, 3, 4)),
    ],
)
def test_the_worst_checkpoint_goes_first_where_more_are_there_than_may_be(tmp_path, metrics, max_num, max_kb, left):
    strategy = RunStrategy.__new__(RunStrategy)
    strategy.print = lambda *words: None
    for step, metric in enumerate((*metrics, 0.0), start=1):
        folder = tmp_path / f"global_step{step}"
        folder.mkdir()
        (folder / "weights").write_bytes(bytes(10_000))
        write_json(folder / strategy.CKPT_METRIC_FILENAME, {"metric_value": metric, "metric_key": "m"})
        write_json(folder / atomic_dirs.MANIFEST, {"global_step": step, "files": {}})
    (tmp_path / run_strategy.DRAFT).mkdir()
    strategy.tidy(tmp_path, "global_step4", max_num, max_kb * 1000)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {f"global_step{step}" for step in left}


@pytest.mark.parametrize(
    "checkpoint, due", [("global_step4", True), ("global_step5", False), ("best_global_step4", False), (None, False)]
)
def test_a_checkpoint_is_evaluated_after_a_resume_if_its_evaluation_came_later(checkpoint, due):
    """The best one is written because of its evaluation."""
    args = SimpleNamespace(eval=SimpleNamespace(steps=2, dataset="held_out"))
    states = {"global_step": int(checkpoint[-1]), "checkpoint": checkpoint} if checkpoint else {"global_step": 4}
    assert run_controller.evaluation_is_missing(args, states) == due


def test_a_run_that_had_ended_goes_on_with_its_last_evaluation():
    train = SimpleNamespace(max_steps=10, num_episodes=2, run_dir="")
    kl = SimpleNamespace(target=None)
    args = SimpleNamespace(train=train, eval=SimpleNamespace(at_end=True), algo=SimpleNamespace(kl=kl))
    controller, found = RunController(SimpleNamespace(args=args, experience_maker=SimpleNamespace())), []
    controller.log = SimpleNamespace(resume=lambda states, evaluates: found.append(evaluates))
    for step, episode, stream, ended in (
        (9, 0, {}, False),
        (10, 0, {}, True),
        (9, 1, {"drained": True}, True),
        (9, 0, {"drained": True}, False),
        (9, 1, {"drained": True, "ahead": [1]}, False),
    ):
        states = {"global_step": step, "episode": episode, "data_loader_state_dict": stream}
        controller.restore(states)
        assert found.pop() == ended


@pytest.mark.parametrize(
    "seed, same", [(0, 7_000_021), (42, 42 * 1_000_003**2 + 7_000_021), (20261127, None), (2**31 - 1, None)]
)
def test_every_seed_that_flags_take_seeds_torch(monkeypatch, seed, same):
    """Those that torch took without it keep their numbers."""
    monkeypatch.setattr(run_strategy.dist, "get_rank", lambda: 0)
    strategy = SimpleNamespace(args=SimpleNamespace(train=SimpleNamespace(seed=seed)))
    run_strategy.RunStrategy.reseed(strategy, 7)
    assert torch.initial_seed() == same if same else torch.initial_seed() < 2**64
