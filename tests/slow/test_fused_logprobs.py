"""`--ds.fused_logprobs`: OpenRLHF's Actor gives the same with it, and so do steps on two ZeRO-3 ranks."""

import functools
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from every import EVERY, every
from openrlhf.models import Actor
from tiny_models import model_of

from real_openrlhf.algorithm import token_log_probs as head
from real_openrlhf.hooks.model.fused_logprobs import attach

TEMPERATURE = 0.6
ACTIONS = 6


def actors(packing: bool) -> tuple[Actor, Actor, list[str]]:
    """One without the flag and one with it, of one model."""
    model = model_of(vocab_size=73, max_position_embeddings=64, tie_word_embeddings=False)
    plain, fused_logprobs, lines = (*(Actor(model, temperature=TEMPERATURE) for _ in range(2)), [])
    for actor, flag in ((plain, False), (fused_logprobs, True)):
        actor.packing_samples = packing
        ds = SimpleNamespace(fused_logprobs=flag, packing_samples=False, attn_implementation="sdpa")
        args = SimpleNamespace(ds=ds, actor=SimpleNamespace(entropy_coef=1.0))
        attach(actor, SimpleNamespace(args=args, print=lines.append))
    assert plain.fused_logprobs is None and fused_logprobs.fused_logprobs is not None
    return plain, fused_logprobs, lines


def batch() -> dict[str, torch.Tensor]:
    """Prompts padded on the left, responses on the right, a rollout without any."""
    sequences = torch.randint(3, 73, (4, 11), generator=torch.Generator().manual_seed(1))
    attention_mask = torch.ones(4, 11, dtype=torch.long)
    attention_mask[0, :2] = attention_mask[1, 8:] = attention_mask[2, 6:] = 0
    action_mask = attention_mask[:, -ACTIONS:] * torch.tensor([1, 1, 1, 0])[:, None]
    return {"sequences": sequences, "attention_mask": attention_mask, "action_mask": action_mask}


@pytest.mark.parametrize("packing", [False, True])
def test_a_fused_actor_has_the_log_probs_entropies_and_gradients_of_a_plain_one(packing):
    *pair, lines = actors(packing)
    given, found = batch(), []
    for actor in pair:
        log_probs, output = actor(**given, return_output=True, return_entropy=True)
        entropy = output.entropy[:, -ACTIONS:] * given["action_mask"]
        actor.model.zero_grad()
        (
            log_probs * torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(2)) + entropy
        ).sum().backward()
        found.append((log_probs, entropy, {name: one.grad.clone() for name, one in actor.model.named_parameters()}))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    assert found[0][0].abs().sum() > 1 and found[0][1].sum() > 1
    assert len(lines) == 1 and "8 tokens" in lines[0]


def test_a_fused_actor_that_is_asked_for_logits_gives_them():
    plain, fused_logprobs, lines = actors(packing=False)
    given = batch() | {"action_mask": None}
    logits = [actor(**given, return_output=True)["logits"] for actor in (plain, fused_logprobs)]
    assert logits[0].shape == (4, 11, 73) and logits[0].equal(logits[1]) and lines == []


# `--ds.fused_logprobs` on two ZeRO-3 ranks: steps of REAL and GRPO are those with logits, in part of the memory.


VOCABULARY, WIDTH = 152_064 if EVERY else 8_000, 32  # more than zero_jobs.AT_ONCE has room for in a block
STEPS = 2
# Eight rollouts, four a rank and step, in one micro-batch.
LAYOUT = {"prompts": 2 * STEPS, "groups_per_update": 2, "micro_batch_size": 4, "prompt_length": 56}


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory):
    """wide_model(vocabulary, tied) -> folder of a tiny model whose head is not small beside the rest."""
    import tiny_task
    from tiny_task import ReverseTask

    def make(vocabulary: int, tied: bool) -> str:
        sizes = {"hidden_size": WIDTH, "intermediate_size": 64, "max_position_embeddings": 96}
        model = model_of(vocab_size=vocabulary, tie_word_embeddings=tied, **sizes)
        folder = tmp_path_factory.mktemp("model")
        model.save_pretrained(folder)
        tiny_task.make_tokenizer(ReverseTask).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="module")
def real_vocabulary(wide_model) -> str:
    return wide_model(VOCABULARY, tied=False)


def with_logits_and_without(ranks, **case) -> tuple[dict, dict]:
    """The first rank's report of each; the ranks agree."""
    found = []
    for flag in (False, True):
        first, second = ranks("points_and_logits", fused_logprobs=flag, **LAYOUT, **case)
        assert first["points"] == second["points"] and len(first["points"]) == STEPS
        found.append(first)
    return found[0], found[1]


@pytest.mark.parametrize("loss", ["real", "ppo"])
def test_with_a_real_vocabulary_steps_agree_and_no_logits_of_all_tokens_are_held(two_ranks, real_vocabulary, loss):
    plain, fused_logprobs = with_logits_and_without(
        two_ranks, model=real_vocabulary, vocabulary=VOCABULARY, loss=loss, batching="whole_groups", dtype="bf16",
        learning_rate=1e-6, uniform_groups="keep",
    )  # fmt: skip
    for (found_loss, norm), (expected_loss, expected_norm) in zip(
        fused_logprobs["points"], plain["points"], strict=True
    ):
        assert found_loss == pytest.approx(expected_loss, rel=1e-3, abs=1e-3)
        assert norm == pytest.approx(expected_norm, rel=1e-2)
    assert fused_logprobs["logits"] == 0 < plain["logits"]  # its blocks have a part of the words


class OnGpu(torch.Tensor):
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl  # what comes out is a plain tensor


INDUCTOR = pytest.mark.skipif(
    not shutil.which("g++") or " " in sys.prefix,
    reason="torch's compiler needs g++, and a path without spaces to link",
)
GRAPHS = [(head._sums, True, 1), (head._slopes, torch.bfloat16, 1), (head._slopes_with_entropy, torch.bfloat16, 3)]


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=(every, INDUCTOR))])
@pytest.mark.parametrize("function, constant, rows", GRAPHS)
def test_each_function_is_one_graph_for_each_temperature_and_any_number_of_rows(
    monkeypatch, backend, function, constant, rows
):
    """One graph of all temperatures had the first one's on a GPU; on a CPU it is right, so graphs are counted."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE")  # which tests set
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    monkeypatch.setattr(head, "_compiled", functools.cache(head._compiled.__wrapped__))
    monkeypatch.setattr(head, "_uncompiled", [])
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]
    graphs.clear()
    for number, scale in enumerate((0.6, 1.7), 1):
        for size in (64, 96, 33):
            draw = torch.Generator().manual_seed(size)
            logits = torch.randn(size, 512, generator=draw).bfloat16()
            given = [torch.randn(size, generator=draw) for _ in range(rows)]
            if function is head._sums:
                given = [torch.randint(0, 512, (size, 1), generator=draw), *given]
            expected = function(scale, constant, logits, *given)
            found = head._one_kernel(function, scale, constant, logits.as_subclass(OnGpu), *given)
            torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-4)
        assert head._uncompiled == [] and graphs["unique_graphs"] == number
