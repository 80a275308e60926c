"""Every way of training, on the real stack: Ray actors, DeepSpeed ZeRO, a vLLM engine, weight sync, checkpoints."""

import math

import pytest


def finite(run) -> bool:
    return all(
        math.isfinite(value) for line in run.lines("train") for value in line.values() if isinstance(value, float)
    )


def test_real_learns(real):
    assert finite(real) and len(real.lines("train")) == 20
    steps, scores = zip(*((line["step"], line["eval_reverse_pass1"]) for line in real.lines("eval")), strict=True)
    assert steps == (0, 10, 20)
    assert scores[0] < 0.2 and scores[-1] > 2 * scores[0]


def test_real_starts_no_critic_no_reference_and_no_reward_model(real):
    assert {"PolicyModelActor", "RolloutRayActor"} <= real.actors
    assert not {"CriticModelActor", "ReferenceModelActor", "RewardModelActor"} & real.actors


def test_real_weights_are_bounded_and_a_step_weighs_what_it_scored(real):
    assert all(0 < value < 1 for value in real.values("real/weight_bound"))
    assert max(real.values("real/score_drift")) < 1e-2
    assert max(real.values("real/score_abs_max")) > 0  # later updates see a policy that has moved


def test_a_run_leaves_its_folder(real):
    for name in ("run.json", "metrics.jsonl", "train.log", "curves.png", "model/model.safetensors"):
        assert (real.folder / name).stat().st_size > 0, name
    assert list((real.folder / "tensorboard").rglob("events*"))
    assert {path.name for path in (real.folder / "checkpoints" / "_actor").iterdir()} >= {
        "global_step10",
        "global_step20",
    }
    assert "held-out pass@1" in real.output and "step   20/20" in real.output


def test_resume_continues_where_the_run_ended(real, train):
    seed = ("--seed", "1", "--resume")
    resumed = train(
        "real", "--algo", "real", *seed, "--max-steps", "22", "--ckpt.save_steps", "10", "--eval.steps", "10"
    )
    assert [line["step"] for line in resumed.lines("train")] == [*range(1, 23)]
    before, after = resumed.values("rollout/pass_rate")[19:21]
    assert abs(after - before) < 0.25  # the policy that it left, not the one that it began with


@pytest.fixture(scope="module")
def grpo(train):
    return train("grpo", "--algo", "grpo", "--gpus", "2", "--max-steps", "3")


def test_grpo_on_two_zero3_ranks_with_a_reference_and_a_kl_loss(grpo):
    assert finite(grpo) and len(grpo.lines("train")) == 3
    assert "ReferenceModelActor" in grpo.actors and "CriticModelActor" not in grpo.actors
    kl = grpo.values("kl")
    assert 0 <= kl[0] < kl[-1]  # the policy leaves the reference
    assert grpo.lines("eval")[0]["eval_reverse_pass1"] < 0.2


def test_table_1_of_a_grpo_run(grpo):
    for line in grpo.lines("train"):
        for side in ("pos", "neg"):
            assert sum(
                line[f"ratio/{side}/{name}/share"] for name in ("below", "low", "high", "above")
            ) == pytest.approx(100)
        assert line["ratio/pos/above/grad"] == 0  # clipped
        assert line["ratio/neg/below/grad"] == 0


def test_dapo_asynchronously(train):
    run = train(
        "dapo",
        "--algo",
        "dapo",
        "--max-steps",
        "4",
        "--no-train.colocate_all",
        "--train.async_enable",
        "--eval.steps",
        "2",
    )
    assert finite(run) and [line["step"] for line in run.lines("train")] == [1, 2, 3, 4]
    assert {line["step"] for line in run.lines("eval")} >= {0, 4}


def test_real_asynchronously_on_two_ranks_in_two_epochs(train):
    run = train(
        "real-async", "--algo", "real", "--gpus", "2", "--max-steps", "4", "--no-train.colocate_all",
        "--train.async_enable", "--train.max_epochs", "2", "--train.micro_batch_size", "8", "--vllm.num_engines", "1",
        "--algo.real.scoring", "deferred",
    )  # fmt: skip
    assert finite(run) and len(run.lines("train")) == 4
    assert "scoring deferred" in run.log


def test_trpa_trains_with_a_reference_on_the_prompts_and_first_rollouts_of_real(train, real):
    run = train("trpa", "--algo", "trpa", "--seed", "1", "--max-steps", "3", "--no-eval.at_start", "--no-eval.at_end")
    assert finite(run) and len(run.lines("train")) == 3
    assert "ReferenceModelActor" in run.actors
    assert run.values("rollout/prompts_crc") == real.values("rollout/prompts_crc")[:3]
    assert len(set(run.values("rollout/prompts_crc"))) == 3  # other prompts in every step
    assert run.values("rollout/pass_rate")[0] == real.values("rollout/pass_rate")[0]
