"""What vLLM is sent: a prompt's parameters, in Ray, and seeded samples that no company changes."""

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from openrlhf.trainer.ray import vllm_engine
from torch.nn import Identity, Module, ModuleList
from vllm import AsyncEngineArgs, SamplingParams
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.platforms import current_platform
from vllm.platforms.interface import DeviceCapability
from vllm.sampling_params import RequestOutputKind

from real_openrlhf.evaluation import engine_process
from real_openrlhf.hooks.cpu import bf16_products
from real_openrlhf.hooks.cpu.vllm import reload
from real_openrlhf.hooks.engine import plugin
from real_openrlhf.hooks.engine.requests import Requests, TokenizerRef, engine_arguments, held

AGENT_FILE = Path(__file__).parents[2] / "examples/agents/guess_number.py"


def requests(mismatch="off", seeded=False, agent=None, whole_groups=True) -> Requests:
    rollout = SimpleNamespace(mismatch=mismatch, seeded=seeded)
    train = SimpleNamespace(seed=1, run_dir=None, agent_func_path=agent)
    args = SimpleNamespace(rollout=rollout, train=train, derived=SimpleNamespace(whole_groups=whole_groups))
    return Requests(args, tokenizer="itself")


@pytest.mark.parametrize(
    "mismatch, asked, expected",
    [("off", None, None), ("off", 1, 1), ("log", None, 0), ("stop", None, 0), ("stop", 1, 1)],
)
def test_log_probabilities_are_asked_for_unless_they_are_off(mismatch, asked, expected):
    """0: that of the sampled token and of no other. What upstream's correction asks for stays."""
    asking, seeded = requests(mismatch), requests(mismatch, seeded=True)
    found = asking.parameters(SamplingParams(logprobs=asked), "1+1")
    assert found.logprobs == expected and found.seed is None
    assert seeded.parameters(SamplingParams(logprobs=asked), "1+1").logprobs == expected
    assert found.flat_logprobs == (expected is not None and asked is None)  # what somebody asked for is left as it is


@pytest.mark.parametrize("whole_groups, least", [(True, 0), (False, 1)])
def test_the_end_may_be_the_first_token(whole_groups, least):
    """Else vLLM's probabilities of a first token are those without an end, and the policy's are not."""
    asked = SamplingParams(min_tokens=1, max_tokens=8)
    assert requests(whole_groups=whole_groups).parameters(asked, "1+1").min_tokens == least


@pytest.mark.parametrize("agent", [None, "a.py"])
def test_a_response_is_answered_once_and_its_text_made_only_for_an_agent(agent):
    found = requests(agent=agent).parameters(SamplingParams(), "1+1")
    assert found.output_kind is RequestOutputKind.FINAL_ONLY and found.detokenize is bool(agent)


class Loads:
    """As Ray's reference to an object: awaiting it loads it, which takes a while."""

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer, self.count = tokenizer, 0

    def __await__(self):
        self.count += 1
        yield from asyncio.sleep(0.01).__await__()
        return self.tokenizer


def test_prompts_that_come_at_once_share_one_load_and_another_run_has_its_own():
    async def engine(first: Loads, second: Loads) -> None:
        assert await asyncio.gather(*(held(TokenizerRef(first)) for _ in range(16))) == ["first"] * 16
        assert await held(TokenizerRef(first)) == "first"
        assert await held(TokenizerRef(second)) == "second"
        assert await held("a tokenizer that was not sent") == "a tokenizer that was not sent"

    first, second = Loads("first"), Loads("second")
    asyncio.run(engine(first, second))
    assert (first.count, second.count) == (1, 1)


# vLLM's attention: its first choice must need no compiler


def test_vllm_prefers_attention_that_nvcc_compiles_on_blackwell_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm._C_stable_libtorch", ModuleType("stub"))  # kernels for GPUs: not here
    from vllm.platforms.cuda import _get_backend_priorities

    capabilities = (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)
    first = [_get_backend_priorities(False, DeviceCapability(*one))[0].name for one in capabilities]
    assert first == [*3 * ["FLASH_ATTN"], *2 * ["FLASHINFER"], "FLASH_ATTN"]


@pytest.fixture
def on_cuda(monkeypatch):
    """on_cuda(compute capability): this process believes that it is on such a GPU, in a Ray that others started."""

    def pretend(*capability: int) -> None:
        found = classmethod(lambda cls: DeviceCapability(*capability))
        monkeypatch.setattr(type(current_platform), "is_cuda", lambda self: True)
        monkeypatch.setattr(type(current_platform), "get_device_capability", found)
        for name in (*plugin.ENVIRONMENT, "VLLM_ALLOW_INSECURE_SERIALIZATION"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")

    return pretend


@pytest.mark.parametrize("capability, chosen", [((9, 0), False), ((10, 0), True), ((10, 3), True), ((12, 0), False)])
def test_an_engines_attention_and_sampler_need_no_compiler(on_cuda, monkeypatch, tmp_path, capability, chosen):
    """In training and in evaluation, by arguments that vLLM knows. The sampler would need nvcc at each start of
    `eval`, or of a run with --rollout.mismatch off."""
    from vllm.v1.sample.ops.topk_topp_sampler import flashinfer_sampler_supported

    on_cuda(*capability)
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "1")
    with pytest.raises(ImportError):
        flashinfer_sampler_supported()  # here there is not even its package
    asked = {"model": str(tmp_path), "max_num_seqs": 256}
    arguments = engine_arguments(asked)
    expected = {"attention_backend": "FLASH_ATTN"} if chosen else {}
    experts = {"moe_backend": "triton"} if capability >= (10, 0) else {}  # others stand in another order than is sent
    assert arguments == {**asked, **expected, **experts}
    assert flashinfer_sampler_supported() is False  # also where OpenRLHF plays an agent itself
    engine = engine_process.Engine("m", 0.6, 0.95, 9, 99, 42, "auto", 1)
    evaluated = engine_process.engine_arguments(engine, on_cpu=False)
    assert {name: value for name, value in evaluated.items() if "attention" in name} == expected
    parsed = AsyncEngineArgs(**arguments)
    assert parsed.moe_backend == experts.get("moe_backend", "auto")
    assert (parsed.attention_backend is None) != chosen and parsed.max_num_seqs == 256


class Made(Exception):
    """An engine's arguments."""


@pytest.mark.parametrize("agent", [None, str(AGENT_FILE)])
def test_openrlhfs_actor_prepares_its_process_before_it_makes_an_engine(on_cuda, monkeypatch, agent):
    """Also where it plays an agent itself, and knows nothing else of ours."""

    def made(**arguments):
        raise Made(arguments)

    monkeypatch.setattr(vllm_engine.vllm, "AsyncEngineArgs", made)
    on_cuda(10, 0)
    actor = vllm_engine.RolloutRayActor.__ray_metadata__.modified_class
    asked = {"model": "m", "max_num_seqs": 256}
    with pytest.raises(Made) as stopped:
        asyncio.run(actor.__init__(object.__new__(actor), **asked, num_gpus=1, agent_func_path=agent))
    assert stopped.value.args == ({**asked, "attention_backend": "FLASH_ATTN", "moe_backend": "triton"},)
    assert {name: os.environ[name] for name in plugin.ENVIRONMENT} == plugin.ENVIRONMENT


def test_each_engine_is_told_how_many_answers_it_draws_at_once(monkeypatch):
    made = []
    stub = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda **arguments: made.append(arguments)))
    monkeypatch.setattr(vllm_engine, "RolloutRayActor", stub)
    monkeypatch.setattr(vllm_engine, "PlacementGroupSchedulingStrategy", lambda **_: None)
    places = 2, 1, "m", 42, False, False, True, 99, object(), 0.7
    vllm_engine.create_vllm_engines(*places, max_num_seqs=256)
    vllm_engine.create_vllm_engines(*places)
    assert [one["max_num_seqs"] for one in made] == [256, 256, None, None]


def test_on_a_cpu_without_bf16_products_are_fp32s_rounded_once(monkeypatch):
    """torch's own take up to 60 times as long."""
    monkeypatch.setattr(bf16_products, "slow", lambda: True)
    head, hidden = torch.randn(96, 64).bfloat16(), torch.randn(4, 64).bfloat16()
    wide, calls = (hidden.float() @ head.float().t()).bfloat16(), []
    kernel = SimpleNamespace(call_boxed=lambda keys, *tensors: calls.append(tensors[0].dtype) or torch.mm(*tensors))
    assert torch.equal(bf16_products.product(kernel, None, hidden, head.t()), wide)
    assert bf16_products.product(kernel, None, hidden.float(), head.float().t()).dtype == torch.float32
    assert calls == [torch.float32, torch.float32]
    library = bf16_products.widen.__wrapped__()
    try:
        head.requires_grad_()
        product = F.linear(hidden, head)
        product.backward(torch.ones_like(product))
        assert torch.equal(product, wide) and torch.equal(head.grad[0], hidden.float().sum(0).bfloat16())
    finally:
        library._destroy()


@pytest.mark.skipif(not bf16_products.slow(), reason="a CPU with bf16 instructions keeps torch's own products")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_rows_product_has_the_same_bits_beside_any_others(threads):
    """So vLLM's log-probabilities of a response do not depend on when the others end."""
    left, right = torch.randn(20, 4864).bfloat16(), torch.randn(4864, 256).bfloat16()
    kernel, bias = SimpleNamespace(call_boxed=lambda keys, *all_of: torch.addmm(*all_of)), torch.randn(256).bfloat16()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        of_all = bf16_products.product(kernel, None, bias, left, right)
        found = {rows: bf16_products.product(kernel, None, bias, left[:rows], right) for rows in range(1, 20)}
    finally:
        torch.set_num_threads(before)
    assert [rows for rows, product in found.items() if not torch.equal(product, of_all[:rows])] == []


def test_on_a_cpu_a_sync_packs_experts_and_a_tied_head_again():
    """vLLM would keep their packed copies. In runs: docs/models.py; adapters change no head."""
    head, experts, packed = ParallelLMHead.__new__(ParallelLMHead), Identity(), []
    Module.__init__(head)
    head.quant_method = SimpleNamespace(process_weights_after_loading=packed.append)
    experts.quant_method = SimpleNamespace(moe_kernel="of the first load")

    def load(weights_iterator):
        packed.append((experts.quant_method.moe_kernel, *weights_iterator))

    runner = SimpleNamespace(get_model=lambda: ModuleList([head, experts]), reload_weights=load)
    reload(runner, [("name", "weight")])
    assert packed == [(None, ("name", "weight")), head]
