"""Training on two ZeRO-3 ranks: beside engines on their GPUs or on others, killed, and with faults."""

import json
import math

import pytest
from every import every
from small_runs import NO_EVALUATION, SHORT, SMALL, as_killed
from small_world import REPOSITORY

from real_openrlhf.report import show

LISTWISE = f"{REPOSITORY}/examples/objectives/listwise.py:listwise"


@pytest.fixture(scope="module")
def grpo(train_alone):
    words = ("--recipe", "cpu-like-gpu", "--algo", "grpo", "--gpus", "2", "--max-steps", "3")
    return train_alone("grpo", *words, "--eval.n_samples_per_prompt", "2")


def test_grpo_on_two_zero3_ranks_with_a_reference_and_a_kl_loss(grpo):
    assert grpo.finite and len(grpo.lines("train")) == 3
    assert "ReferenceModelActor" in grpo.actors and "CriticModelActor" not in grpo.actors
    kl = grpo.values("kl")
    assert 0 <= kl[0] < kl[-1]  # the policy leaves the reference
    before, after = (line["eval_reverse_pass1"] for line in grpo.lines("eval"))
    assert before + 0.05 < after  # at temperature 0.6: 0.59 and 0.73 when this was written


def test_grpo_keeps_answers_without_weights(grpo):
    groups = show.read(grpo.folder)
    assert [group["step"] for group in groups] == [1, 1, 2, 2, 3, 3]
    assert all(rollout["weight"] is None and rollout["answer"] for group in groups for rollout in group["rollouts"])


def test_only_this_machine_can_reach_a_run_on_two_ranks(grpo):
    assert grpo.listening == set()


def test_vllm_draws_from_the_packed_policy(grpo):
    assert (
        0 < min(grpo.values("sampling/logprob_diff_mean")) and max(grpo.values("sampling/logprob_diff_mean")) < 1 / 16
    )


def test_asynchronously_with_an_engine_apart_from_policy_and_reference(train):
    """`--train.colocate_all` is the recipe's. The engine gets a GPU of its own, of which Ray must have one more."""
    words = ("--algo", "grpo", "--max-steps", "2", "--train.async_enable")
    run = train("apart", *SMALL, *words, *NO_EVALUATION)
    assert run.finite and len(run.lines("train")) == 2
    assert {"PolicyModelActor", "ReferenceModelActor"} <= run.actors


def test_listwise_trains_on_graded_rewards_and_leaves_out_groups_of_equal_ones(train_on_two, reward_calls, tmp_path):
    """One update a step, so that scores are 0: a group of unequal rewards has a loss of log 8, the others 0. By
    labels, which the log alone reads, all answers are wrong."""
    data, noted = tmp_path / "prompts.jsonl", reward_calls.with_name(reward_calls.name + ".graded")
    rows = ({"prompt": f"{n}=", "label": "~" * (2 - n % 2) + f"{n}"[::-1]} for n in range(1111, 1135))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (
        *SMALL,
        "--train.batch_size",
        "64",
        "--algo.real.objective",
        LISTWISE,
        "--data",
        str(data),
        "--max-steps",
        "3",
    )
    run = train_on_two("graded", *words, *NO_EVALUATION)
    rewards = [line.split() for line in noted.read_text().splitlines()]
    assert run.finite and len(run.lines("train")) == 3 and len(rewards) == 3 * 64
    shares = []
    for number, step in enumerate(run.lines("train")):
        calls = rewards[64 * number : 64 * (number + 1)]
        groups = {prompt: {reward for other, reward in calls if other == prompt} for prompt, _ in calls}
        shares.append(sum(len(values) > 1 for values in groups.values()) / 8)
        assert len(groups) == 8 and step["update/frac_trained"] == pytest.approx(shares[-1])
        assert step["real/loss"] == pytest.approx(math.log(8) * shares[-1], rel=1e-4)
        assert step["rollout/frac_mixed"] == step["rollout/pass_rate"] == 0
    assert 0 < min(shares) < 1


@every
@pytest.mark.parametrize("algo", ["real", "grpo", "dapo", "trpa"])
def test_killed_and_resumed_is_not_killed(train_on_two, algo):
    words = ("--algo", algo, "--seed", "1", *SHORT)
    run = train_on_two(f"{algo}-again", *words)
    numbers = run.numbers()
    as_killed(run.folder, before="global_step4")
    assert train_on_two(f"{algo}-again", *words, "--resume").numbers() == numbers


@every
@pytest.mark.parametrize("algo", ["real", "grpo", "dapo", "trpa"])
def test_asynchronously_no_prompt_is_lost_and_none_is_drawn_twice(train_on_two, algo):
    """The rollouts after a checkpoint are drawn again, by the policy of then: only the prompts can be the same."""
    words = ("--algo", algo, "--train.async_enable", "--seed", "1", *SHORT)
    run = train_on_two(f"{algo}-async-again", *words)
    before, numbers = run.values("rollout/prompts_crc"), run.numbers()
    as_killed(run.folder, before="global_step4")
    resumed = train_on_two(f"{algo}-async-again", *words, "--resume")
    assert resumed.values("rollout/prompts_crc") == before
    assert resumed.numbers()[:2] == numbers[:2]
    assert [line["step"] for line in resumed.lines("eval")] == [2, 4]
    assert sorted(group["step"] for group in show.read(run.folder)) == [1, 1, 2, 2, 3, 3, 4, 4]


# A rollout actor goes on whose verifier hangs, dies and runs out of memory, and whose reward function returns text or


# failing_reward.py has the verifier judge these; each fault is for one of the eight, as every fault costs a worker
JUDGED = ["0123=", "1234=", "2345=", "3456=", "4567=", "5678=", "6789=", "7891="]


def test_training_survives_a_failing_verifier(train_on_two, reward_calls, tmp_path):
    data = tmp_path / "prompts.jsonl"
    prompts = [*JUDGED, "8901=", "9012="]
    rows = ({"prompt": prompt, "label": prompt[3::-1], "datasource": "reverse"} for prompt in prompts)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train_on_two(
        "faults", "--recipe", "cpu-like-gpu", "--algo", "real", "--max-steps", "1", "--data", str(data),
        "--rollout.batch_size", "10", "--rollout.n_samples_per_prompt", "4", "--train.batch_size", "20",
        *NO_EVALUATION,
    )  # fmt: skip
    devices = json.loads(reward_calls.with_name("calls.devices").read_text())
    assert devices == {"CUDA_VISIBLE_DEVICES": "-1", "DS_ACCELERATOR": "cpu", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    (step,) = run.lines("train")
    assert run.finite and step["actor_grad_norm"] > 0
    assert sorted(reward_calls.read_text().split()) == sorted(prompt for prompt in JUDGED for _ in range(4))
    assert step["rollout/frac_ungraded"] == 5 / 10 and step["real/frac_unlabelled"] == 5 / 10
    for reason in ("timeout", "out_of_memory", "worker_died"):
        assert step[f"verifier/ignored_{reason}"] == pytest.approx(1 / 10), reason
    for fault in ("no_number", "exits"):
        assert step[f"reward/failed_{fault}"] == pytest.approx(1 / 10), fault
