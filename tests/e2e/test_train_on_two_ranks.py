"""Training on two ZeRO-3 ranks: asynchronously with an engine apart, with faults and engines on their GPUs, killed."""

import json
import math

import pytest
from every import every
from small_runs import NO_EVALUATION, SHORT, as_killed
from small_world import REPOSITORY

from real_openrlhf.report import show

LISTWISE = f"{REPOSITORY}/examples/objectives/listwise.py:listwise"


def test_grpo_on_two_zero3_ranks_with_a_reference_asynchronously_with_an_engine_apart(train):
    """`--train.colocate_all` is the recipe's. The engine gets a GPU of its own, of which Ray must have one more."""
    words = ("--recipe", "cpu-like-gpu", "--algo", "grpo", "--gpus", "2", "--vllm.num_engines", "1")
    words += ("--max-steps", "2", "--train.async_enable", "--no-ds.enable_sleep")
    words += ("--train.max_tokens_per_gpu", "256", "--rollout.max_tokens_per_gpu", "512")
    run = train("two-grpo", *words, *NO_EVALUATION)
    assert run.finite and len(run.lines("train")) == 2
    assert {"PolicyModelActor", "ReferenceModelActor"} <= run.actors and "CriticModelActor" not in run.actors
    assert run.listening == set()
    kl = run.values("kl")
    assert 0 <= kl[0] < kl[-1]  # the policy leaves the reference
    first, stale = run.values("sampling/logprob_diff_mean")
    assert 0 < first < 1 / 16 and 0 < stale < 1 / 4


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
        "faults", "--recipe", "cpu-like-gpu", "--train.colocate_all", "--vllm.num_engines", "2",
        "--algo.real.objective", LISTWISE, "--max-steps", "1", *NO_EVALUATION,
        "--rollout.batch_size", "16", "--rollout.n_samples_per_prompt", "4", "--train.batch_size", "64",
        "--data", str(data),
    )  # fmt: skip
    devices = json.loads(reward_calls.with_name("calls.devices").read_text())
    assert devices == {"CUDA_VISIBLE_DEVICES": "-1", "DS_ACCELERATOR": "cpu", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    (step,) = run.lines("train")
    assert run.finite and step["actor_grad_norm"] > 0
    assert sorted(reward_calls.read_text().split()) == sorted(prompt for prompt in JUDGED for _ in range(4))
    assert step["rollout/frac_ungraded"] == step["real/frac_unlabelled"] == 2 / 16 + 3 / 64
    for reason in ("timeout", "out_of_memory", "worker_died"):
        assert step[f"verifier/ignored_{reason}"] == pytest.approx(1 / 64), reason
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
