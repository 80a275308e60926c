"""What vLLM gets from a run: seeds of samples, merged weights of a LoRA policy."""

import importlib
from types import SimpleNamespace

import pytest
import torch
from tiny_models import model_of
from torchdata.stateful_dataloader import StatefulDataLoader

from real_openrlhf.hooks.prompt_stream import PromptStream, SampleSeeds, seeded_each


def samples(seeds: SampleSeeds, prompts: list[str], count: int = 8) -> dict:
    plain = SimpleNamespace(seed=None, temperature=1.0)
    params = [seeds.seeded(plain, prompt) for prompt in prompts]
    assert plain.seed is None and all(p.temperature == 1.0 for p in params)  # one object serves many prompts
    return {
        (prompt, i): one.seed
        for prompt, p in zip(prompts, params, strict=True)
        for i, one in enumerate(seeded_each(p, count))
    }


def test_order_does_not_matter_and_seeds_do_not_meet():
    prompts = [f"{number:04d}=" for number in range(1000)]
    forth, back = samples(SampleSeeds(42), prompts), samples(SampleSeeds(42), prompts[::-1])
    assert forth == back
    assert len(set(forth.values())) == len(forth)
    assert samples(SampleSeeds(43), prompts) != forth


def test_a_prompt_drawn_again_is_sampled_anew():
    seeds = SampleSeeds(42)
    drawn = [seeds.seeded(SimpleNamespace(seed=None), "a").seed for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_a_resumed_run_with_fewer_rows_than_it_had_drawn_begins_their_next_episode():
    whole, fewer = (PromptStream(StatefulDataLoader(range(rows), shuffle=True)) for rows in (20, 12))
    drawing = iter(whole)
    for _ in range(16):
        next(drawing)
    fewer.load_state_dict(whole.state_dict())
    assert [len([*fewer]) for _ in range(3)] == [0, 12, 12]


def test_without_a_seed_nothing_is_touched():
    params = SimpleNamespace(seed=None)
    assert seeded_each(params, 2) == [params, params]


# What vLLM is given of a LoRA policy, against PEFT's own merge. The import of both takes seconds: here alone.


@pytest.fixture(scope="module")
def peft():
    return pytest.importorskip("peft")


@pytest.fixture(scope="module")
def ours():
    return importlib.import_module("real_openrlhf.hooks.model.lora_weights")


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def models(request, peft):
    """(the base model, a LoRA policy on it whose adapters are no longer zero)."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    base = model_of(tie_word_embeddings=request.param, **sizes)
    names = [(name, p.shape) for name, p in base.named_parameters()]
    policy = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return names, policy


def test_vllm_gets_the_base_models_names_and_pefts_merged_weights(ours, models):
    names, policy = models
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    weights = ours.MergedWeights(policy)
    handed = {name: weight.detach().clone() for name, weight in weights}
    assert len(weights) == len(handed)
    assert [(name, weight.shape) for name, weight in handed.items()] == names
    assert all(torch.equal(p, before[name]) for name, p in policy.named_parameters())  # the policy is not touched
    before = {name.replace(".base_layer.", "."): p for name, p in before.items()}
    merged = dict(policy.merge_and_unload().named_parameters())
    changed = []
    for name, weight in handed.items():
        torch.testing.assert_close(weight, merged[name], rtol=0, atol=1e-6)
        changed += [name] if not torch.equal(weight, before[f"base_model.model.{name}"]) else []
    assert len(changed) == 2 * 7 and all("_proj.weight" in name for name in changed)  # both blocks' linear layers


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_an_adapter_on_a_weight_that_two_layers_share_is_refused(peft, ours, target):
    """vLLM has that weight once: with the adapter of one layer, both would change there, or none."""
    for tied in (False, True):
        policy = peft.get_peft_model(
            model_of(tie_word_embeddings=tied), peft.LoraConfig(r=2, target_modules=["q_proj", target])
        )
        if tied:
            with pytest.raises(ours.SharedAdapterError, match=f"{target} shares its weight with"):
                ours.MergedWeights(policy)
        else:
            assert any(f"{target}.weight" in name for name, _ in ours.MergedWeights(policy))


def test_in_bf16_the_merge_is_right_to_bf16s_last_digits(ours, models):
    _, policy = models
    exact = {name: weight.detach().clone() for name, weight in ours.MergedWeights(policy)}
    policy.to(torch.bfloat16)
    for name, weight in ours.MergedWeights(policy):
        assert weight.dtype == torch.bfloat16
        torch.testing.assert_close(weight.float(), exact[name], rtol=1.6e-2, atol=2e-2)
