"""What vLLM gets from a run: seeds of samples, prompts read once, merged weights of a LoRA policy."""

import asyncio
from types import SimpleNamespace

import peft
import pytest
import torch
from tiny_models import model_of

from real_openrlhf.hooks.fixes.repeatable_engine import READING, _draw_once, _rows_of_prompts
from real_openrlhf.hooks.model.lora_weights import MergedWeights, SharedAdapterError
from real_openrlhf.hooks.rollout.read_once import ReadOnce
from real_openrlhf.hooks.rollout.sample_seeds import SampleSeeds, seeded_each


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


def test_without_a_seed_nothing_is_touched():
    params = SimpleNamespace(seed=None)
    assert seeded_each(params, 2) == [params, params]


# A prompt is read before its answers, once for all of them; with the real engine: tests/e2e/test_long_prompts.py.


class Engine:
    """Keeps what it was asked, in the order in which it answered."""

    def __init__(self) -> None:
        self.answered: list[tuple[list[int], SimpleNamespace]] = []

    async def generate(self, tokens, params, multi_modal_data=None):
        await asyncio.sleep(0.01)
        if tokens == [0]:
            raise RuntimeError("the engine died")
        self.answered.append((tokens, params))
        return params.seed


def params(seed: int) -> SimpleNamespace:
    return SimpleNamespace(seed=seed, max_tokens=9, min_tokens=1, logprobs=0, temperature=1.0, extra_args=None)


async def answers(reader: ReadOnce, prompts: list[list[int]], each: int) -> list:
    asked = [reader.generate(prompt, params(number)) for prompt in prompts for number in range(each)]
    return await asyncio.gather(*asked, return_exceptions=True)


def test_each_prompt_is_read_once_before_its_answers_and_again_for_the_next_ones():
    reader = ReadOnce(engine := Engine())
    for _ in range(2):
        assert asyncio.run(answers(reader, [[1, 2], [3, 4]], 3)) == [0, 1, 2, 0, 1, 2]
    assert not reader.readings
    names = set()
    for start in (0, 8):
        readings, rest = engine.answered[start : start + 2], engine.answered[start + 2 : start + 8]
        assert [(tokens, one.max_tokens, one.seed) for tokens, one in readings] == [
            ([1, 2], 1, None),
            ([3, 4], 1, None),
        ]
        for tokens, read in readings:
            names.add(read.extra_args[READING])
            own = [one for others, one in rest if others == tokens]
            assert [(one.max_tokens, one.seed, one.extra_args) for one in own] == [
                (9, n, read.extra_args) for n in range(3)
            ]
    assert len(names) == 4


def test_an_engine_that_dies_while_it_reads_is_told_to_all():
    reader = ReadOnce(Engine())
    found = asyncio.run(answers(reader, [[0], [5]], 2))
    assert [str(one) for one in found] == ["the engine died", "the engine died", "0", "1"]
    assert not reader.readings


def test_pictures_are_not_read_for_others():
    reader = ReadOnce(engine := Engine())
    mine = params(7)
    assert asyncio.run(reader.generate([1], mine, multi_modal_data={"image": []})) == 7
    assert engine.answered == [([1], mine)]


# What vLLM is given of a LoRA policy, against PEFT's own merge.


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


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_an_adapter_on_a_weight_that_two_layers_share_is_refused(target):
    """vLLM has that weight once: with the adapter of one layer, both would change there, or none."""
    for tied in (False, True):
        policy = peft.get_peft_model(
            model_of(tie_word_embeddings=tied), peft.LoraConfig(r=2, target_modules=["q_proj", target])
        )
        if tied:
            with pytest.raises(SharedAdapterError, match=f"{target} shares its weight with"):
                MergedWeights(policy)
        else:
            assert any(f"{target}.weight" in name for name, _ in MergedWeights(policy))


def test_in_bf16_the_merge_is_right_to_bf16s_last_digits(models):
    _, policy = models
    exact = {name: weight.detach().clone() for name, weight in MergedWeights(policy)}
    policy.to(torch.bfloat16)
    for name, weight in MergedWeights(policy):
        assert weight.dtype == torch.bfloat16
        torch.testing.assert_close(weight.float(), exact[name], rtol=1.6e-2, atol=2e-2)


# A step's rows: of prompts, whose blocks are larger, and of answers. Whole with vLLM: tests/slow/test_requests.py.


@pytest.mark.parametrize(
    "starts, prompts, others",
    [
        ([0, 1, 5, 6, 9], [1, 2, 3, 4, 6, 7, 8], [0, 5]),
        ([0, 3, 7], slice(None), None),
        ([0, 1, 2], None, slice(None)),
    ],
)
def test_rows_of_prompts_are_those_of_requests_with_several(monkeypatch, starts, prompts, others):
    from vllm import forward_context

    metadata = SimpleNamespace(query_start_loc=torch.tensor(starts, dtype=torch.int32))
    context = SimpleNamespace(attn_metadata={"a layer": metadata, "another": metadata})
    monkeypatch.setattr(forward_context, "_forward_context", context)
    found = [one.tolist() if isinstance(one, torch.Tensor) else one for one in _rows_of_prompts(starts[-1])]
    assert found == [prompts, others]
    assert _rows_of_prompts(starts[-1] + 1) == (None, slice(None))  # of another table: all alike
    monkeypatch.setattr(forward_context, "_forward_context", None)
    assert _rows_of_prompts(starts[-1]) == (None, slice(None))  # the head


def test_noise_is_drawn_once_and_samples_stay(monkeypatch):
    from vllm.platforms import current_platform
    from vllm.v1.sample.ops import topk_topp_sampler as sampler

    current_platform.import_kernels()

    def seeded():
        return {row: torch.Generator().manual_seed(row) for row in range(3)}

    logits, one = torch.randn(3, 50), sampler.TopKTopPSampler()
    expected, _ = sampler.TopKTopPSampler.forward_cpu(one, logits.clone(), seeded(), None, None)
    monkeypatch.setattr(sampler.TopKTopPSampler, "forward_cpu", sampler.TopKTopPSampler.forward_cpu)
    _draw_once()
    before = torch.get_rng_state()
    found, _ = sampler.TopKTopPSampler.forward_cpu(one, logits.clone(), seeded(), None, None)
    assert found.equal(expected)
    ours = "fused_gumbel_argmax" not in sampler.TopKTopPSampler.forward_cpu.__code__.co_names
    assert not ours or torch.get_rng_state().equal(before)  # no noise but the requests' own
