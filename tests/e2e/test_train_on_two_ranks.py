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
def grpo(train):
    words = ("--recipe", "cpu-like-gpu", "--algo", "grpo", "--gpus", "2", "--max-steps", "3")
    sizes = ("--rollout.batch_size", "32", "--train.batch_size", "64", "--train.max_tokens_per_gpu", "256")
    return train("grpo", *words, *sizes, "--rollout.max_tokens_per_gpu", "512", "--eval.n_samples_per_prompt", "2")


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
# exits. failing_reward.py has the verifier judge these; every fault costs a worker.
JUDGED = ["0123=", "1234=", "2345=", "3456=", "4567=", "5678=", "6789=", "7891="]
GRADED = ["1111=", "1112=", "1113=", "1114=", "1115=", "1116="]  # every second has equal rewards


def test_listwise_trains_on_graded_rewards_while_the_verifier_fails(train_on_two, reward_calls, tmp_path):
    """One update, so that scores are 0: a group of unequal rewards has a loss of log 4, the others 0. By labels, which
    the log alone reads, all graded answers are wrong."""
    data = tmp_path / "prompts.jsonl"
    prompts = [*JUDGED, "8901=", "9012=", *GRADED]
    labels = {prompt: "~" * (1 + n % 2) + prompt[3::-1] for n, prompt in enumerate(GRADED)}
    rows = ({"prompt": prompt, "label": labels.get(prompt, prompt[3::-1])} for prompt in prompts)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train_on_two(
        "faults", "--recipe", "cpu-like-gpu", "--algo.real.objective", LISTWISE, "--max-steps", "1", *NO_EVALUATION,
        "--rollout.batch_size", "16", "--rollout.n_samples_per_prompt", "4", "--train.batch_size", "64",
        "--data", str(data),
    )  # fmt: skip
    devices = json.loads(reward_calls.with_name("calls.devices").read_text())
    assert devices == {"CUDA_VISIBLE_DEVICES": "-1", "DS_ACCELERATOR": "cpu", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    (step,) = run.lines("train")
    assert run.finite and step["actor_grad_norm"] > 0
    assert sorted(reward_calls.read_text().split()) == sorted(prompt for prompt in JUDGED for _ in range(4))
    assert step["rollout/frac_ungraded"] == 5 / 16 and step["real/frac_unlabelled"] == 5 / 16
    for reason in ("timeout", "out_of_memory", "worker_died"):
        assert step[f"verifier/ignored_{reason}"] == pytest.approx(1 / 16), reason
    for fault in ("no_number", "exits"):
        assert step[f"reward/failed_{fault}"] == pytest.approx(1 / 16), fault
        assert f"ungraded, the reward function failed ({fault}): 6.2% of all responses" in run.output
    assert "its response is ungraded, 1 so far. Further ones: " in run.output

    rewards = [line.split() for line in reward_calls.with_name("calls.graded").read_text().splitlines()]
    groups = {prompt: {reward for other, reward in rewards if other == prompt} for prompt in GRADED}
    unequal = sum(len(values) > 1 for values in groups.values())
    assert len(rewards) == 4 * len(GRADED) and 0 < unequal <= 3
    share = unequal / 16 + step["rollout/frac_mixed"]  # the second are groups that the verifier judged
    assert step["update/frac_trained"] == pytest.approx(share)
    assert step["real/loss"] == pytest.approx(math.log(4) * share, rel=1e-4)
