"""Models that packing, shared prompts, attention or head would train wrongly: refused by configuration, twice."""

from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import run_flags
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from varlen_on_cpu import dense, stand_in

from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model import flash_attention_torch as ours
from real_openrlhf.hooks.model import model_support
from real_openrlhf.hooks.model.fused_logprobs import FusedLogprobsHead, attach
from real_openrlhf.training.checks import model_check

SIZES = dict(
    vocab_size=200, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, head_dim=32,
    num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
HYBRIDS = {
    "lfm2": {"full_attn_idxs": [2]},
    "qwen3_5_text": {},
    "qwen3_next": {"full_attention_interval": 4, **EXPERTS},
}
PLAIN = {"qwen3": {}, "gemma3_text": {"sliding_window": 8}, "olmo3": {"sliding_window": 8}}
MROPE = {"rope_type": "default", "mrope_section": [8, 4, 4]}
PADDED = ("--ds.packing_samples", "--train.dynamic_batch_enable")


def unfit_problems(*asked) -> list[str]:
    return [*model_check.unfit_problems(*asked)]


def made(name: str, attention: str = "sdpa"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **SIZES, **(HYBRIDS | PLAIN)[name])
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32).eval()


def refuse_unfit(model, **asked) -> None:
    """What OpenRLHF's process of the policy does once its model is loaded."""
    ds = dict(attn_implementation="sdpa", packing_samples=False, fused_logprobs=True)
    args = SimpleNamespace(ds=SimpleNamespace(**ds | asked), actor=SimpleNamespace(entropy_coef=0.0))
    attach(SimpleNamespace(model=model, temperature=1.0), SimpleNamespace(args=args, print=lambda line: None))


def actor_of(model):
    return SimpleNamespace(model=model, fused_logprobs=FusedLogprobsHead(model, 1.0, False, lambda line: None))


def log_probs(actor, tokens, **named):
    return actor.fused_logprobs.scoring(actor.model, tokens.roll(-1, 1), False)(tokens, **named)["logits"][..., 0]


def raw(name: str, **more) -> dict:
    """A config.json as its authors published it: without what transformers adds."""
    return {"model_type": name, **SIZES, **HYBRIDS.get(name, {}), **more}


@torch.no_grad()
@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_leaks_if_packed_is_refused_and_is_exact_if_padded(name):
    rows = torch.randint(3, 200, (2, 24), generator=torch.Generator().manual_seed(0))
    model = made(name)
    actor = actor_of(model)
    alone = log_probs(actor, rows[1:], attention_mask=None)[0, :-1]
    ours.register()
    packing = actor_of(made(name, "flash_attention_torch"))
    places = torch.arange(24).repeat(2)[None]
    packed = log_probs(packing, rows.reshape(1, -1), attention_mask=None, position_ids=places)[0, 24:-1]
    assert (packed - alone).abs().max() > 1e-4  # what a refusal is for
    with pytest.raises(UserError, match="carry state.*--no-ds.packing_samples --no-train.dynamic_batch_enable"):
        refuse_unfit(model, packing_samples=True)
    for side in ((5, 0), (0, 5)):
        tokens, mask = (torch.nn.functional.pad(one, side) for one in (rows, torch.ones_like(rows)))
        mask[0], tokens[0] = 1, tokens[0].clamp(min=3)  # the other row is longer
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        padded = log_probs(actor_of(model), tokens, attention_mask=mask, position_ids=positions)[1, side[0] :][:23]
        assert (padded - alone).abs().max() < 1e-5


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_dry_run_refuses_what_leaks_and_names_what_works(name):
    (found,) = unfit_problems(run_flags().args, raw(name))
    assert "carry state" in found and "--no-ds.packing_samples --no-train.dynamic_batch_enable" in found
    assert unfit_problems(run_flags(removed=PADDED).args, raw(name)) == []
    vision = {"model_type": "qwen3_5", "text_config": raw("qwen3_5_text"), "vision_config": {}}
    assert "carry state" in unfit_problems(run_flags().args, vision if name == "qwen3_5_text" else raw(name))[0]
    either = run_flags(removed=("--ds.packing_samples",)).args  # OpenRLHF packs with either flag
    assert unfit_problems(either, raw(name))


@pytest.mark.parametrize(
    "name, more, said",
    [
        ("gemma2", {}, ("attn_logit_softcapping", "final_logit_softcapping")),
        ("gpt_oss", {}, ("names its own attention kernels",)),
        ("gemma4_text", {}, ("has heads of width 512",)),
        ("granite", {"logits_scaling": 8.0}, ("logits_scaling 8.0",)),
        ("qwen2", {"head_dim": 12}, ("heads of width 12",)),
        *((name, {}, ("mamba_",)) for name in ("falcon_h1", "bamba")),
        ("recurrent_gemma", {}, ("recurrent carry state",)),
        ("a_model_of_its_own", {"linear_attn_config": {}}, ("linear_attn_config",)),
        ("qwen2_5_vl_text", {"rope_scaling": MROPE}, ("mrope_section",)),
        ("qwen3_vl_text", {"rope_scaling": MROPE}, ()),
        *((name, PLAIN.get(name, {}), ()) for name in ("qwen2", "qwen3", "llama", "mistral", "olmo2", "phi3", *PLAIN)),
        *((name, {}, ()) for name in ("smollm3", "a_model_of_its_own", "qwen3_moe", "deepseek_v3")),
    ],
)
def test_other_models_are_refused_in_the_dry_run_for_what_they_are(name, more, said):
    found = unfit_problems(run_flags().args, raw(name, **more))
    assert all(any(one in problem for problem in found) for one in said) and bool(found) == bool(said), found


@pytest.mark.parametrize("name, way", [("qwen2_5_vl", "refused"), ("qwen3_vl", "exact")])
def test_a_vision_models_packed_texts_are_refused_or_exact(name, way):
    """Qwen2.5-VL hands its layers no positions. flash_attention_2 would then take all answers for one."""
    text = {**SIZES, "num_attention_heads": 2, "rope_parameters": {**MROPE, "rope_theta": 1e4}}
    vision = dict(depth=1, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64)
    config = AutoConfig.for_model(name, text_config=text, vision_config=vision)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation=ours.NAME, dtype=torch.float32).eval()
    tokens, positions = torch.arange(3, 23)[None], torch.arange(10).repeat(2)[None]
    with torch.no_grad():
        alone = torch.cat([model(part, torch.ones_like(part)).logits for part in tokens.split(10, 1)], 1)
        if way == "refused":
            with pytest.raises(UserError, match="neither positions nor a mask. Leave --ds.packing_samples"):
                model(tokens, position_ids=positions)
        else:
            assert (model(tokens, position_ids=positions).logits - alone).abs().max() < 1e-5
        padded = model(tokens.expand(2, -1), torch.arange(20).ge(10).long()[None].repeat(2, 1)).logits
    assert (padded[0, 10:] - alone[0, 10:]).abs().max() < 1e-5


@pytest.mark.parametrize("name", model_support.PLAIN)
def test_the_classes_that_are_not_asked_have_nothing_to_say(name):
    model_class = type(AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **SIZES)))
    assert model_support.attention_problem({"num_attention_heads": 4, "head_dim": 32}, model_class) is None


# `flash_attention_torch`: packed, padded and one by one are the same attention; what CUDA would be called with


NARROW = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, initializer_range=0.3,
)  # fmt: skip
WINDOW = 4
CONFIGS = {
    "qwen2": {},
    "qwen3": dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),  # in some layers
    "mistral": dict(sliding_window=WINDOW),
    "granite": dict(attention_multiplier=0.7),  # a scale of its own
}
LENGTHS = [7, 12, 1, 3, 12]
HELD = {torch.float64: 1e-10, torch.bfloat16: 2**-7}  # of the largest number


@pytest.fixture(autouse=True, scope="module")
def registered():
    ours.register()


def near(found, expected, dtype):
    assert found.dtype == dtype
    assert (found.double() - expected).abs().max() <= HELD[dtype] * expected.abs().max().clamp(min=1e-3)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(1, 17), min_size=1, max_size=6),
    groups=st.integers(1, 3),
    shared=st.integers(1, 3),
    width=st.sampled_from([8, 16, 40]),
    window=st.none() | st.integers(1, 20),
    scale=st.none() | st.floats(0.05, 1.0),
    dtype=st.sampled_from(list(HELD)),
    on_kernel=st.booleans(),
)
def test_any_lengths_heads_and_windows(lengths, groups, shared, width, window, scale, dtype, on_kernel):
    dtype = torch.bfloat16 if on_kernel else dtype
    draw = torch.Generator().manual_seed(sum(lengths) + width)
    bounds, tokens = [0, *accumulate(lengths)], sum(lengths)
    heads = (groups * shared, groups, groups)
    q, k, v = (
        torch.randn(tokens, count, width, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
        for count in heads
    )
    wanted = torch.randn(tokens, heads[0], width, generator=draw, dtype=torch.float64).to(dtype)
    of = ours.Sequences.from_lengths(torch.tensor(lengths))
    with stand_in() as calls:
        found = (ours.by_kernel if on_kernel else ours.one_by_one)(q, k, v, of, scale, window)
        gradients = torch.autograd.grad(found, (q, k, v), wanted)
    assert len(calls) == on_kernel and of.longest == max(lengths)
    exact = dense(q, k, v, bounds, scale, window)
    near(found, exact, dtype)
    held = [one.detach().double().requires_grad_() for one in (q, k, v)]
    for one, expected in zip(
        gradients, torch.autograd.grad(dense(*held, bounds, scale, window), held, wanted.double()), strict=True
    ):
        assert one.dtype == dtype
        assert (one.double() - expected).norm() <= 2 * HELD[dtype] * (expected.norm() + wanted.double().norm())


def model_of(name: str, dtype: torch.dtype, attention: str = ours.NAME):
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **NARROW, **CONFIGS[name])
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).train()


def batch():
    draw = torch.Generator().manual_seed(3)
    rows = [torch.randint(0, 50, (length,), generator=draw) for length in LENGTHS]
    place = torch.arange(max(LENGTHS))
    mask = place < torch.tensor(LENGTHS)[:, None]
    mask[1] = mask[1].flip(0)
    mask[0] = mask[0].flip(0)  # padded on the left
    tokens = torch.zeros(mask.shape, dtype=torch.long)
    for row, seen, own in zip(tokens, mask, rows, strict=True):
        row[seen] = own
    return rows, tokens, mask


def three_ways(model):
    """The logits of all tokens: packed, padded, and sequence by sequence."""
    rows, tokens, mask = batch()
    packed = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    yield model(torch.cat(rows)[None], attention_mask=None, position_ids=packed, use_cache=False).logits[0]
    positions = (mask.long().cumsum(-1) - 1).masked_fill(~mask, 1)
    yield model(tokens, attention_mask=mask.long(), position_ids=positions, use_cache=False).logits[mask]
    alone = [model(row[None], position_ids=torch.arange(len(row))[None], use_cache=False).logits[0] for row in rows]
    yield torch.cat(alone)


def gradient(model, logits):
    model.zero_grad()
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    (logits.double() * weights).mean().backward()
    return torch.cat([one.grad.double().flatten() for one in model.parameters()])


def errors(name: str, dtype: torch.dtype, attention: str = ours.NAME) -> list[tuple[float, float]]:
    """Of logits and gradients, from transformers' own attention in float64, a sequence at a time."""
    model, exact = model_of(name, dtype, attention), model_of(name, dtype, "sdpa").double()
    *_, expected = three_ways(exact)
    slope = gradient(exact, expected)
    return [
        (
            ((found.double() - expected).norm() / expected.norm()).item(),
            ((gradient(model, found) - slope).norm() / slope.norm()).item(),
        )
        for found in three_ways(model)
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_packed_padded_and_one_by_one(name):
    assert max(max(found) for found in errors(name, torch.float64)) < 1e-12
    *_, alone = errors(name, torch.bfloat16, "sdpa")  # what bf16 does to a sequence that is alone
    for found in errors(name, torch.bfloat16):
        assert 0 < found[0] < 1.25 * alone[0] and 0 < found[1] < 1.25 * alone[1]


def test_other_attention_is_refused_when_the_model_is_made():
    config = AutoConfig.for_model("gemma2", **NARROW)
    with pytest.raises(UserError, match="attn_logit_softcapping 50.0.*--ds.attn_implementation"):
        AutoModelForCausalLM.from_config(config, attn_implementation=ours.NAME)


@pytest.mark.parametrize(
    "given, reason",
    [
        (dict(softcap=30.0), "cap"),
        (dict(s_aux=torch.zeros(4)), "sinks"),
        (dict(dropout=0.1), "dropout"),
        (dict(is_causal=False), "not causal"),
        (dict(position_ids=None), "positions"),
    ],
)
def test_a_forward_with_what_the_kernel_lacks_is_refused(given, reason):
    heads = [torch.zeros(1, 2, 3, 8) for _ in range(3)]
    with pytest.raises(UserError, match=reason):
        ours.attention(
            torch.nn.Module(), *heads, None, **{"position_ids": torch.arange(3)[None], "scaling": None} | given
        )


def test_a_mask_of_the_models_own_is_refused():
    with pytest.raises(UserError, match="mask of its own"):
        ours.keep_mask(1, use_vmap=True)
