"""Training on one rank: what REAL learns, what a run leaves, how it goes on, and that nothing extra starts."""

import json
from collections import Counter

from every import every
from small_runs import NO_EVALUATION, REAL, SMALL

from real_openrlhf.base.run_files import ROLLOUTS
from real_openrlhf.report import show


def test_real_doubles_its_validation_in_ten_steps(real):
    assert real.finite and len(real.lines("train")) == 10
    assert len(set(real.values("rollout/prompts_crc"))) == 10  # other prompts in every step
    steps, scores = zip(*((line["step"], line["eval_reverse_pass1"]) for line in real.lines("eval")), strict=True)
    assert steps == (0, 5, 10)
    assert scores[0] < 0.2 and scores[-1] > 2 * scores[0]


def test_real_starts_no_critic_no_reference_and_no_reward_model(real):
    assert {"PolicyModelActor", "RolloutRayActor"} <= real.actors
    assert not {"CriticModelActor", "ReferenceModelActor", "RewardModelActor"} & real.actors


def test_only_this_machine_can_reach_a_run(real):
    """Ray, vLLM, gloo and torch's stores."""
    assert real.listening == set()


def test_real_weights_are_bounded_and_a_step_weighs_what_it_scored(real):
    assert all(0 < value < 1 for value in real.values("real/weight_bound"))
    assert max(real.values("real/score_drift")) < 1e-2
    assert max(real.values("real/score_abs_max")) > 0  # later updates see a policy that has moved


def test_vllm_draws_from_the_policy_that_is_trained(real):
    """Its log-probabilities are the policy's up to rounding, before and after the first sync of weights."""
    assert 0 < min(real.values("sampling/logprob_diff_mean")) and max(real.values("sampling/logprob_diff_mean")) < 0.02
    assert all(
        line["sampling/logprob_diff_max"] >= line["sampling/logprob_diff_mean"] > 0 for line in real.lines("train")
    )


def test_a_run_leaves_its_folder(real):
    for name in ("run.json", "metrics.jsonl", "train.log", "curves.png", "model/model.safetensors"):
        assert (real.folder / name).stat().st_size > 0, name
    assert list((real.folder / "tensorboard").rglob("events*"))
    assert {path.name for path in (real.folder / "checkpoints" / "_actor").iterdir()} >= {
        "global_step5",
        "global_step10",
    }
    assert "held-out pass@1" in real.output and "step   10/10" in real.output


def test_a_run_that_was_killed_keeps_two_groups_of_each_step_with_their_weights(real):
    groups = show.read(real.folder)
    assert Counter(group["step"] for group in groups) == dict.fromkeys(range(1, 11), 2)
    bounds = dict(enumerate(real.values("real/weight_abs_max"), start=1))
    for group in groups:
        assert len(group["rollouts"]) == 8
        mixed = any(rollout["label"] == "negative" for rollout in group["rollouts"])
        for rollout in group["rollouts"]:
            weight, correct = rollout["weight"] or 0.0, rollout["label"] == "positive"
            assert abs(weight) <= bounds[group["step"]] * (1 + 1e-9)
            assert (weight > 0) == (correct and mixed)
            assert ("\\boxed{" + group["gold"] in rollout["answer"]) >= correct
    assert sum(bool(rollout["score"]) for group in groups for rollout in group["rollouts"]) > 8  # of later updates


# A run that was killed and resumed is the run that was not killed: every number but the times, bit for bit.


def test_killed_and_resumed_is_not_killed(real):
    """The steps between the checkpoint and the kill were done by both processes."""
    first = real.numbers(log="metrics.discarded.jsonl")
    again = real.numbers()[5 : 5 + len(first)]
    assert len(first) >= 2 and len(first[0]) > 40 and again == first


@every  # the first two steps after a resume are above; two ranks, other methods: test_train_on_two_ranks.py
def test_killed_and_resumed_is_the_run_that_goes_through(real, train):
    """Nor does it matter that one keeps answers and the other does not."""
    through = train("through", *REAL, "--logger.rollout_groups", "0")
    assert (real.folder / ROLLOUTS).exists() and not (through.folder / ROLLOUTS).exists()
    assert real.numbers()[:10] == through.numbers()
    assert real.numbers("eval")[:3] == through.numbers("eval")
    assert len(through.numbers()) == 10 and len(through.numbers()[0]) > 40


def test_the_run_says_that_it_was_killed_and_where_it_goes_on(killed, real):
    assert "failed (killed by SIGKILL)" in killed.output and "--resume" in killed.output
    assert "goes on after step 5, from global_step5" in real.output
    assert json.loads((real.folder / "notes.jsonl").read_text().splitlines()[0])["step"] == 5


def test_a_finished_run_is_not_run_again(real, train):
    before = (real.folder / "metrics.jsonl").read_text()
    assert "is finished: there is nothing to continue" in train("real", *REAL, "--resume").output
    assert (real.folder / "metrics.jsonl").read_text() == before


UNSYNCED = """
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from real_openrlhf.algorithm.formulas import OBJECTIVES

ActorPPOTrainer.broadcast_to_vllm = lambda self: None
real = lambda scores, groups, settings: OBJECTIVES["real"].loss(scores, groups, settings)
"""


@every  # in slow: ranks stop at unrelated models
def test_a_policy_that_keeps_its_weights_to_itself_is_stopped(train, tmp_path):
    """The file of this objective breaks the weight sync of the process that trains: vLLM draws from older weights."""
    broken = tmp_path / "broken_sync.py"
    broken.write_text(UNSYNCED)
    words = ("--algo", "real", "--algo.real.objective", f"{broken}:real", "--actor.adam.lr", "1e-2")
    run = train("unsynced", *words, *SMALL, *NO_EVALUATION, "--max-steps", "4", code=1)
    assert "MismatchError: vLLM and the policy are unrelated in optimizer step" in run.output
    assert "Look at the weight sync" in run.output
    assert not (run.folder / "model").exists()
