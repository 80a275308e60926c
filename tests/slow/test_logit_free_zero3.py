"""`--ds.logit_free` on two ZeRO-3 ranks: steps of REAL and GRPO are those with logits, in part of the memory."""

import pytest
import tiny_models
from every import EVERY, every

VOCABULARY = 152_064 if EVERY else 30_000
SMALLER, WIDTH = 4_000, 32  # also the smaller head is large enough for ZeRO-3 to shard it
STEPS = 3
# Eight rollouts, four a rank and step, in one micro-batch.
LAYOUT = {"group_sizes": (4, 4), "groups_per_step": 2, "micro_batch_size": 4, "epochs": STEPS, "prompt_length": 56}


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    """model_of(vocabulary, tied) -> folder of a tiny model whose head is not small beside the rest."""
    from real_openrlhf.training.tasks import tiny_model
    from real_openrlhf.training.tasks.reverse_task import ReverseTask

    def make(vocabulary: int, tied: bool) -> str:
        sizes = {"hidden_size": WIDTH, "intermediate_size": 64, "max_position_embeddings": 96}
        model = tiny_models.model_of(vocab_size=vocabulary, tie_word_embeddings=tied, **sizes)
        folder = tmp_path_factory.mktemp("model")
        model.save_pretrained(folder)
        tiny_model.make_tokenizer(ReverseTask).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="module")
def real_vocabulary(model_of) -> str:
    return model_of(VOCABULARY, tied=False)


def with_logits_and_without(ranks, **case) -> tuple[dict, dict]:
    """The first rank's report of each; the ranks agree."""
    found = []
    for flag in (False, True):
        first, second = ranks("logit_free_jobs.trained", logit_free=flag, **LAYOUT, **case)
        assert first["points"] == second["points"] and len(first["points"]) == STEPS
        found.append(first)
    return found[0], found[1]


@pytest.mark.parametrize("loss", ["real", "ppo"])
def test_with_a_real_vocabulary_steps_agree_and_memory_falls(two_ranks, real_vocabulary, loss):
    plain, logit_free = with_logits_and_without(
        two_ranks, model=real_vocabulary, vocabulary=VOCABULARY, loss=loss, dtype="bf16", learning_rate=1e-6,
        uniform_groups="keep",
    )  # fmt: skip
    for (found_loss, norm), (expected_loss, expected_norm) in zip(logit_free["points"], plain["points"], strict=True):
        assert found_loss == pytest.approx(expected_loss, rel=1e-3, abs=1e-3)
        assert norm == pytest.approx(expected_norm, rel=1e-2)
    assert plain["gathers"] == logit_free["gathers"] > 0
    assert logit_free["peak"] < 0.7 * plain["peak"]


@pytest.mark.parametrize(
    "tied, variant",
    [
        pytest.param(False, {}, marks=every),
        (True, {"checkpointing": True}),
        (False, {"lora": True, "lora_targets": ("q_proj", "down_proj", "lm_head")}),
    ],
)
def test_every_kind_of_head_trains_as_with_logits(two_ranks, model_of, tied, variant):
    plain, logit_free = with_logits_and_without(
        two_ranks, model=model_of(SMALLER, tied), vocabulary=SMALLER, loss="real", dtype="fp32", learning_rate=1e-2,
        uniform_groups="keep", entropy_coef=0.1, **variant,
    )  # fmt: skip
    assert plain["points"][0] != pytest.approx(plain["points"][2], rel=1e-2)
    for found, expected in zip(logit_free["points"], plain["points"], strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    # A tied weight is also the embedding's; inside an adapter's forward it may stay gathered until its backward.
    assert STEPS <= logit_free["gathers"] <= plain["gathers"]
