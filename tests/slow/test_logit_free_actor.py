"""OpenRLHF's Actor gives the same with `--ds.logit_free` and without, however it is asked and whatever it is given."""

from types import SimpleNamespace

import pytest
import torch
from openrlhf.models import Actor
from tiny_models import model_of

from real_openrlhf.hooks.model.logit_free_head import attach

TEMPERATURE = 0.6
ACTIONS = 6


def actors(packing: bool, sharing: bool = False) -> tuple[Actor, Actor, list[str]]:
    """One without the flag and one with it, of one model."""
    model = model_of(vocab_size=73, max_position_embeddings=64, tie_word_embeddings=False)
    plain, logit_free, lines = (*(Actor(model, temperature=TEMPERATURE) for _ in range(2)), [])
    for actor, flag in ((plain, False), (logit_free, True)):
        actor.packing_samples = packing
        ds = SimpleNamespace(logit_free=flag, head_dtype=None, share_prompts=flag and sharing)
        args = SimpleNamespace(ds=ds, actor=SimpleNamespace(entropy_coef=1.0))
        attach(actor, SimpleNamespace(args=args, print=lines.append))
    assert plain.logit_free is None and logit_free.logit_free is not None
    return plain, logit_free, lines


def batch() -> dict[str, torch.Tensor]:
    """Prompts padded on the left, responses on the right, a rollout without any; the last two begin alike."""
    sequences = torch.randint(3, 73, (4, 11), generator=torch.Generator().manual_seed(1))
    sequences[3, :4] = sequences[2, :4]
    attention_mask = torch.ones(4, 11, dtype=torch.long)
    attention_mask[0, :2] = attention_mask[1, 8:] = attention_mask[2, 6:] = 0
    action_mask = attention_mask[:, -ACTIONS:] * torch.tensor([1, 1, 1, 0])[:, None]
    return {"sequences": sequences, "attention_mask": attention_mask, "action_mask": action_mask}


@pytest.mark.parametrize("packing, sharing", [(False, False), (True, False), (False, True)])
def test_log_probs_entropies_and_gradients_of_a_training_step(packing, sharing):
    *pair, lines = actors(packing, sharing)
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


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("asked", [{}, {"return_output": True}, {"action_mask": None, "return_logprobs": True}])
def test_the_other_ways_to_ask(packing, asked):
    plain, logit_free, _ = actors(packing)
    given = batch() | asked
    with torch.no_grad():
        expected, found = plain(**given), logit_free(**given)
    if isinstance(expected, tuple):
        (expected, _), (found, _) = expected, found
    attended = given["attention_mask"]
    real = attended[:, 1:] * attended[:, :-1] if "return_logprobs" in asked else given["action_mask"]
    torch.testing.assert_close(found * real, expected * real, rtol=1e-5, atol=1e-5)


def test_who_asks_for_logits_gets_them():
    plain, logit_free, lines = actors(packing=False)
    given = batch() | {"action_mask": None}
    logits = [actor(**given, return_output=True)["logits"] for actor in (plain, logit_free)]
    assert logits[0].shape == (4, 11, 73) and logits[0].equal(logits[1]) and lines == []
