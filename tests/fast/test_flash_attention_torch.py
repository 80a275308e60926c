"""`flash_attention_torch`: packed, padded and one by one are the same attention; what CUDA would be called with."""

from copy import deepcopy
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GptOssConfig,
    GraniteConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)
from varlen_on_cpu import dense, stand_in

from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model import flash_attention_torch as ours

SIZES = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, initializer_range=0.3,
)  # fmt: skip
WINDOW = 4
CONFIGS = {
    "qwen2": Qwen2Config(**SIZES),
    "qwen3, windows in some layers": Qwen3Config(
        **SIZES, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "mistral, windows": MistralConfig(**SIZES, sliding_window=WINDOW),
    "granite, a scale of its own": GraniteConfig(**SIZES, attention_multiplier=0.7),
}
LENGTHS = [7, 12, 1, 3, 12]
HELD = {torch.float64: 1e-10, torch.bfloat16: 2**-7}  # of the largest number


@pytest.fixture(autouse=True, scope="module")
def registered():
    ours.register()


def near(found, expected, dtype):
    assert found.dtype == dtype
    assert (found.double() - expected).abs().max() <= HELD[dtype] * expected.abs().max().clamp(min=1e-3)


@settings(max_examples=60, deadline=None)
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
    return AutoModelForCausalLM.from_config(deepcopy(CONFIGS[name]), attn_implementation=attention).to(dtype).train()


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


def test_padding_is_told_by_the_mask_alone():
    """Positions that go on over it do not matter: they are relative."""
    model, (_, tokens, mask) = model_of("qwen2", torch.float64), batch()
    found = model(tokens, attention_mask=mask.long(), use_cache=False).logits[mask]
    *_, expected = three_ways(model)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)  # angles are in fp32


@pytest.mark.parametrize("reentrant", [False, True])
def test_bounds_are_found_once_a_forward(monkeypatch, reentrant):
    """Recomputation of a layer uses them too."""
    made, make = [], ours.Sequences.from_lengths
    monkeypatch.setattr(ours.Sequences, "from_lengths", lambda *given: made.append(given) or make(*given))
    model = model_of("qwen2", torch.float32)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    ways = three_ways(model)
    for number in (1, 2):  # packed, padded
        next(ways).sum().backward()
        assert len(made) == number


@pytest.mark.parametrize(
    "config, reason",
    [
        (Gemma2Config(**SIZES), "attn_logit_softcapping 50.0"),
        (GptOssConfig(), "names its own attention kernels"),
        (Qwen2Config(**{**SIZES, "head_dim": 12}), "width 12"),
    ],
)
def test_other_attention_is_refused_when_the_model_is_made(config, reason):
    with pytest.raises(UserError, match=reason) as refused:
        AutoModelForCausalLM.from_config(config, attn_implementation=ours.NAME)
    assert "--ds.attn_implementation" in str(refused.value)


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
def test_and_in_a_forward(given, reason):
    heads = [torch.zeros(1, 2, 3, 8) for _ in range(3)]
    with pytest.raises(UserError, match=reason):
        ours.attention(
            torch.nn.Module(), *heads, None, **{"position_ids": torch.arange(3)[None], "scaling": None} | given
        )


def test_a_mask_of_the_models_own_is_refused():
    with pytest.raises(UserError, match="mask of its own"):
        ours.keep_mask(1, use_vmap=True)
