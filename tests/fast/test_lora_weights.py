"""What vLLM is given of a LoRA policy, against PEFT's own merge."""

import peft
import pytest
import torch
from tiny_models import model_of

from real_openrlhf.hooks.model.lora_weights import MergedWeights


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def models(request):
    """(the base model, a LoRA policy on it whose adapters are no longer zero)."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    base = model_of(tie_word_embeddings=request.param, **sizes)
    names = [(name, p.shape) for name, p in base.named_parameters()]
    policy = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return names, policy


def test_vllm_gets_the_base_models_names_and_pefts_merged_weights(models):
    names, policy = models
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    weights = MergedWeights(policy)
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


def test_in_bf16_the_merge_is_right_to_bf16s_last_digits(models):
    _, policy = models
    exact = {name: weight.detach().clone() for name, weight in MergedWeights(policy)}
    policy.to(torch.bfloat16)
    for name, weight in MergedWeights(policy):
        assert weight.dtype == torch.bfloat16
        torch.testing.assert_close(weight.float(), exact[name], rtol=1.6e-2, atol=2e-2)
