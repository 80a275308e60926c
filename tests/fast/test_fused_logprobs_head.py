"""`--ds.fused_logprobs` on real model classes: what the head then gives is what their own logits give."""

import functools
from types import SimpleNamespace

import pytest
import torch
from tiny_models import SIZES, model_of
from torch import nn

from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model.fused_logprobs import FusedLogprobsHead, attach

TEMPERATURE = 0.7


def with_lora_on_the_head(model: nn.Module) -> nn.Module:
    import peft

    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "lm_head"]))
    for name, parameter in model.named_parameters():
        if "lora" in name:
            nn.init.normal_(parameter, 0, 0.3)
    return model


def batch() -> dict:
    """Padded on the left and on the right."""
    sequences = torch.randint(3, 61, (3, 9), generator=torch.Generator().manual_seed(1))
    attention_mask = torch.ones(3, 9, dtype=torch.long)
    attention_mask[0, :3] = attention_mask[1, 6:] = 0
    return {"input_ids": sequences.masked_fill(attention_mask == 0, 0), "attention_mask": attention_mask}


def plain(model, inputs, labels):
    logits = model(**inputs).logits.float() / TEMPERATURE
    log_probs = logits.log_softmax(-1)
    picked = log_probs.gather(-1, labels[..., None]).squeeze(-1)
    return torch.stack([picked, -(log_probs.exp() * log_probs).sum(-1)], -1)


def scored_by(head: FusedLogprobsHead, model, inputs, labels):
    inputs = dict(inputs)
    return head.scoring(model, labels, True)(inputs.pop("input_ids"), **inputs)["logits"]


def fused_logprobs(model, inputs, labels):
    return scored_by(FusedLogprobsHead(model, TEMPERATURE, False, lambda line: None), model, inputs, labels)


def as_in_a_run(model, inputs, labels):
    """Logits are rounded as the model's own."""
    actor = SimpleNamespace(model=model, temperature=TEMPERATURE)
    ds = SimpleNamespace(fused_logprobs=True, packing_samples=False, attn_implementation="sdpa")
    args = SimpleNamespace(ds=ds, actor=SimpleNamespace(entropy_coef=1.0))
    attach(actor, SimpleNamespace(args=args, print=lambda line: None))
    return scored_by(actor.fused_logprobs, model, inputs, labels)


def solve(function, model) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The table where there are tokens, and every trained parameter's gradient."""
    inputs = batch()
    labels = inputs["input_ids"].roll(-1, 1)
    directions = torch.randn(3, 9, 2, generator=torch.Generator().manual_seed(2))
    table = function(model, inputs, labels) * inputs["attention_mask"][..., None]
    model.zero_grad()
    (table * directions).sum().backward()
    trained = {name: one.grad.clone() for name, one in model.named_parameters() if one.requires_grad}
    return table.detach(), trained


MODELS = {
    "untied": functools.partial(model_of, "Qwen2", tie_word_embeddings=False),
    "tied": functools.partial(model_of, "Qwen2", tie_word_embeddings=True),
    "bias": functools.partial(model_of, "Phi"),
    "neutral factor": functools.partial(model_of, "Granite", logits_scaling=1.0),
    "lora": lambda: with_lora_on_the_head(model_of("Qwen2")),
    "lora, bias": lambda: with_lora_on_the_head(model_of("Phi")),
}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_through_logits(name, checkpointing):
    model = MODELS[name]()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model.train()
    (expected, expected_gradients), (found, gradients) = solve(plain, model), solve(fused_logprobs, model)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == expected_gradients.keys() and any("head" in one or "embed" in one for one in gradients)
    for parameter, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[parameter], gradient, rtol=1e-4, atol=1e-5)
    assert solve(plain, model)[0].equal(expected)  # the model is as it was


@pytest.mark.parametrize("name", ["untied", "lora"])
def test_rounded_logits_are_the_models_own_in_bf16(name):
    model = MODELS[name]().to(torch.bfloat16)
    expected, exact, rounded = (solve(function, model)[0] for function in (plain, fused_logprobs, as_in_a_run))
    assert float((exact - expected).abs().max()) > 1e-3
    assert float((rounded - expected).abs().max()) < (1e-5 if name == "untied" else 5e-2)


def test_the_first_batch_is_checked_and_no_other():
    model, lines, calls = MODELS["untied"]().to(torch.bfloat16), [], []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    head, inputs = FusedLogprobsHead(model, TEMPERATURE, False, lines.append), batch()
    labels = inputs["input_ids"].roll(-1, 1)
    for _ in range(2):
        with torch.no_grad():
            head.scoring(model, labels, False)(**inputs)
    assert len(calls) == 3 and len(lines) == 1
    assert lines[0].startswith("fused head: 8 tokens differ from the model's own logits by at most 0.0")


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: logits * 1.5,
        lambda logits: 2 * (logits / 2).tanh(),
        lambda logits: logits[..., :50].contiguous(),
        lambda logits: logits * float("nan"),
    ],
)
def test_a_model_that_changes_its_logits_unannounced_is_stopped(change):
    model = MODELS["untied"]()
    forward = model.forward

    def changed(*args, **kwargs):
        output = forward(*args, **kwargs)
        if output.logits.shape[-1] == SIZES["vocab_size"]:
            output["logits"] = change(output.logits)
        return output

    model.forward = changed
    with pytest.raises(UserError, match="the fused head gives a token the log-probability"):
        solve(fused_logprobs, model)


def test_a_model_that_does_not_call_its_head_is_stopped():
    model = MODELS["untied"]()
    model.get_output_embeddings = lambda: nn.Linear(16, 61)
    with pytest.raises(UserError, match="does not call"):
        solve(fused_logprobs, model)


@pytest.mark.parametrize(
    "name, changes, field",
    [
        ("Gemma2", {"head_dim": 8}, "final_logit_softcapping 30.0"),
        ("Granite", {"logits_scaling": 4.0}, "logits_scaling 4.0"),
        ("Cohere", {}, "logit_scale 0.0625"),
        ("RecurrentGemma", {"lru_width": 16}, "logits_soft_cap 30.0"),
    ],
)
def test_a_model_that_says_that_it_changes_its_logits_is_refused(name, changes, field):
    with pytest.raises(UserError, match=f"{field}.*--no-ds.fused_logprobs"):
        FusedLogprobsHead(model_of(name, **changes), 1.0, False, print)


def test_a_head_that_is_not_linear_is_refused():
    class Cosine(nn.Linear):
        def forward(self, hidden):
            return nn.functional.normalize(hidden, dim=-1) @ self.weight.t()

    model = MODELS["untied"]()
    model.set_output_embeddings(Cosine(16, 61))
    with pytest.raises(UserError, match="needs a linear head.*not Cosine"):
        FusedLogprobsHead(model, 1.0, False, print)
