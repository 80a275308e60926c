"""What a prompt is sent to vLLM with, in Ray: an engine loads the tokenizer once, however many prompts ask for it."""

import asyncio
import os
from types import SimpleNamespace

import pytest
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from real_openrlhf.hooks.engine.requests import AGENT, Requests, TokenizerRef, executor, held
from real_openrlhf.training.checks.model_check import CPU_HEAD_WIDTHS


def requests(mismatch="off", seeded=False, agent=None, upstreams_agent=None) -> Requests:
    rollout = SimpleNamespace(mismatch=mismatch, seeded=seeded, agent=agent)
    train = SimpleNamespace(seed=1, run_dir=None, agent_func_path=upstreams_agent)
    return Requests(SimpleNamespace(rollout=rollout, train=train), tokenizer="itself")


@pytest.mark.parametrize(
    "mismatch, asked, expected",
    [("off", None, None), ("off", 1, 1), ("log", None, 0), ("stop", None, 0), ("stop", 1, 1)],
)
def test_log_probabilities_are_asked_for_unless_they_are_off(mismatch, asked, expected):
    """0: that of the sampled token and of no other. What upstream's correction asks for stays."""
    found = requests(mismatch).parameters(SamplingParams(logprobs=asked), "1+1")
    assert found.logprobs == expected and found.seed is None
    assert found.flat_logprobs == (expected is not None and asked is None)  # what somebody asked for is left as it is


def test_seeds_and_log_probabilities_go_together():
    one, other = (requests("stop", seeded=True).parameters(SamplingParams(), prompt) for prompt in ("a", "b"))
    assert one.logprobs == other.logprobs == 0 and None not in (one.seed, other.seed) and one.seed != other.seed


@pytest.mark.parametrize("agents, text", [({}, False), ({"agent": "a.py"}, True), ({"upstreams_agent": "a.py"}, True)])
def test_a_response_is_answered_once_and_its_text_made_only_for_an_agent(agents, text):
    found = requests(**agents).parameters(SamplingParams(), "1+1")
    assert found.output_kind is RequestOutputKind.FINAL_ONLY and found.detokenize is text
    assert found.extra_args == ({AGENT: ("a.py", None)} if "agent" in agents else None)  # ours comes with each request


def test_on_cuda_no_engine_takes_the_sampler_that_compiles_itself(monkeypatch):
    """It would need nvcc at each start of `eval`, or of a run with --rollout.mismatch off."""
    from vllm.platforms import current_platform
    from vllm.v1.sample.ops.topk_topp_sampler import flashinfer_sampler_supported

    monkeypatch.setattr(type(current_platform), "is_cuda", lambda self: True)
    monkeypatch.setattr(os, "environ", {**os.environ, "VLLM_USE_FLASHINFER_SAMPLER": "1"})
    with pytest.raises(ImportError):
        flashinfer_sampler_supported()  # here there is not even its package
    executor(None)
    assert flashinfer_sampler_supported() is False


def test_the_widths_of_heads_on_cpu_are_vllms():
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    assert [*CPU_HEAD_WIDTHS] == CPUAttentionBackend.get_supported_head_sizes()


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
