"""Reward functions that fail in every way, called as a rollout actor calls them: OpenRLHF's executor, our limits."""

import asyncio
import math
from types import SimpleNamespace

import psutil
import pytest

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE
from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.reverse_task import ReverseTask

PROMPT, RESPONSE = "3758=", ".8573"

# name -> (body of reward_func, label, the fault's name in the log)
FAULTS = {
    "none": ("return None", IGNORED, "no_reward"),
    "a list of dicts": ("return [{'rewards': 1.0}]", IGNORED, "no_reward"),
    "nan": ("return {'rewards': float('nan')}", IGNORED, "not_finite"),
    "10**400": ("return {'rewards': 10**400}", IGNORED, "not_finite"),
    "text": ("return {'rewards': '1'}", IGNORED, "no_number"),
    "none within": ("return {'rewards': None, 'scores': 1.0}", IGNORED, "no_number"),
    "two values": ("return {'rewards': [1.0, 0.0]}", IGNORED, "wrong_length"),
    "raising": ("raise ValueError('the judge is out')", IGNORED, "raises"),
    "raising without end": ("return reward_func(queries, prompts, labels)", IGNORED, "raises"),
    "out of memory": ("raise MemoryError", IGNORED, "raises"),
    "Ctrl-C": ("raise KeyboardInterrupt", IGNORED, "raises"),
    "exit": ("sys.exit(3)", IGNORED, "exits"),
    "hanging": ("time.sleep(1000)", IGNORED, "hangs"),
    "a score of nan": ("return {'rewards': 0.0, 'scores': float('nan')}", IGNORED, None),
    "text in the logs": ("return {'rewards': 1, 'extra_logs': {'why': 'good', 'size': 3}}", POSITIVE, None),
    "logs that name our columns": ("return {'rewards': 1, 'extra_logs': {'step': 9, 'phase': 3}}", POSITIVE, None),
    "a tensor": ("return {'rewards': torch.tensor([0.0]), 'scores': torch.tensor(1)}", POSITIVE, None),
    "a list of one": ("return {'rewards': [[0]], 'scores': [0.0]}", NEGATIVE, None),
    "a file beside it": ("import a_neighbour\n    return {'rewards': a_neighbour.right}", POSITIVE, None),
    "a fork": ("os.fork()\n    return {'rewards': 1.0}", POSITIVE, None),
    "a fork that raises": ("if os.fork() == 0: raise ValueError\n    return {'rewards': 1.0}", POSITIVE, None),
}  # fmt: skip
HEADER = "import os, sys, time, torch\ndef reward_func(queries, prompts, labels):\n    "


@pytest.fixture(scope="module")
def rolled(tmp_path_factory):
    """rolled(body) -> (two samples as the controller gets them, their labels)."""
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    from real_openrlhf.hooks.controller.labels import label_rollouts
    from real_openrlhf.hooks.engine.requests import executor

    tokenizer = tiny_model.make_tokenizer(ReverseTask)
    tokens = tokenizer(RESPONSE)["input_ids"] + [tokenizer.eos_token_id]
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "a_neighbour.py").write_text("right = 1.0\n")

    class Engine:
        async def generate(self, *_, **__):
            answer = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)
            return SimpleNamespace(outputs=[answer])

    real = SimpleNamespace(objective="real", labels=None, label_threshold=None, truncated="negative")
    args = SimpleNamespace(
        actor=SimpleNamespace(policy_loss_type="real"),
        algo=SimpleNamespace(real=real),
        rollout=SimpleNamespace(n_samples_per_prompt=2),
        train=SimpleNamespace(),
    )

    def roll(body: str):
        path = folder / f"{abs(hash(body))}.py"
        path.write_text(HEADER + body + "\n")
        mine = executor([str(path)])
        params = SimpleNamespace(max_tokens=None, logprobs=None, extra_args=None)
        request = {"prompt": PROMPT, "label": "8573", "sampling_params": params, "max_length": 32}

        async def both():
            engine = {"hf_tokenizer": tokenizer, "llm_engine": Engine()}
            return await asyncio.gather(*(mine.execute(**request, **engine) for _ in range(2)))

        responses = asyncio.run(both())
        samples = [SamplesGenerator._process_response_into_experience(None, one, max_len=32) for one in responses]
        return samples, label_rollouts(samples, args, None)[0].tolist()

    return roll


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_its_response_and_nothing_else(rolled, monkeypatch, name):
    monkeypatch.setenv("REAL_REWARD_SECONDS", "1" if name == "hanging" else "60")
    body, label, fault = FAULTS[name]
    before = set(psutil.Process().children())
    samples, labels = rolled(body)
    assert labels == [label] * 2
    failed = [key for key in samples[0].info if key.startswith("reward/failed_")]
    assert failed == ([f"reward/failed_{fault}"] if fault else [])
    assert all(math.isfinite(float(sample.rewards[0])) for sample in samples)
    _, left = psutil.wait_procs(set(psutil.Process().children()) - before, timeout=20)
    assert not left


def test_a_server_that_answers_nonsense_is_a_fault_too(monkeypatch):
    from aiohttp import web
    from aiohttp.test_utils import TestServer

    from real_openrlhf.hooks.engine.requests import executor

    async def ask(payload):
        async def answer(_):
            return web.json_response(payload)

        app = web.Application()
        app.router.add_post("/score", answer)
        async with TestServer(app) as server:
            return await executor([str(server.make_url("/score"))])._fetch_rewards_via_http(["q"], ["p"], ["l"])

    (good,) = asyncio.run(ask({"rewards": [1.0], "scores": [1.0]}))
    assert good == {"rewards": 1.0, "scores": 1.0, "extra_logs": {}}
    for payload in ({"rewards": ["1"]}, [], {"error": "busy"}, {"rewards": [1, 2]}):
        (bad,) = asyncio.run(ask(payload))
        assert math.isnan(bad["scores"]) and len(bad["extra_logs"]) == 1
