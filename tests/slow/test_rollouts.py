"""From the request to the label, by OpenRLHF's own executors and an engine that has a script.

An agent's file plays several turns in one rollout; reward functions fail in every way, under our limits.
"""

import asyncio
import itertools
import math
import sys
import threading
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from unittest.mock import MagicMock

import psutil
import pytest
import torch
from openrlhf.cli.train_ppo_ray import parse_args
from openrlhf.trainer import ppo_trainer_async
from openrlhf.trainer.ppo_trainer_async import GenerateSamplesActor, TrainingActor
from openrlhf.trainer.ppo_utils import samples_generator
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor
from small_runs import run_args
from tiny_task import ReverseTask, make_tokenizer
from vllm import SamplingParams

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE
from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.controller.labels import label_rollouts
from real_openrlhf.hooks.controller.run_controller import RunController
from real_openrlhf.hooks.engine.rewards import executor

AGENTS = Path(__file__).parents[2] / "examples/agents"
EXAMPLE = AGENTS / "guess_number.py"
sys.path.append(str(AGENTS))
from tiny_guesser import GuessTask  # noqa: E402

GUESSER = make_tokenizer(GuessTask)


class Engine:
    """Answers each turn with the next text, and keeps what it was asked."""

    def __init__(self, tokenizer, *texts: str) -> None:
        self.tokenizer, self.texts, self.asked = tokenizer, list(texts), []

    async def generate(self, tokens, params, multi_modal_data=None):
        self.asked.append((list(tokens), params))
        ids = list(self.tokenizer(text=self.texts.pop(0), add_special_tokens=False)["input_ids"])[: params.max_tokens]
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        logprobs = None if params.logprobs is None else [{token: SimpleNamespace(logprob=-0.5)} for token in ids]
        reason = "length" if len(ids) == params.max_tokens else "stop"
        answer = SimpleNamespace(token_ids=ids, text=text, logprobs=logprobs, finish_reason=reason)
        return SimpleNamespace(outputs=[answer])


def asked(executor, engine, params, count: int = 1, **request) -> list[dict]:
    """What a rollout actor gets of so many requests at once."""

    async def every() -> list[dict]:
        how = {"sampling_params": params, "llm_engine": engine, "hf_tokenizer": engine.tokenizer}
        return await asyncio.gather(*(executor.execute(**request, **how) for _ in range(count)))

    return asyncio.run(every())


def guess(*texts: str, max_length: int = 32) -> dict:
    """The number 5, played as OpenRLHF plays it."""
    params, played = SamplingParams(max_tokens=3, min_tokens=1, logprobs=0), _load_agent_executor(str(EXAMPLE))
    request = {"prompt": "8:", "label": "5", "max_length": max_length, "images": None}
    return asked(played, Engine(GUESSER, *texts), params, **request)[0]


def rollout(response: dict):
    """As OpenRLHF's sampler makes one of it."""
    return SamplesGenerator._process_response_into_experience(None, response, max_len=32)


def labels(*responses: dict, **real) -> list[int]:
    args = arguments(EXAMPLE)
    args.rollout.n_samples_per_prompt = len(responses)
    vars(args.algo.real).update(real)
    return label_rollouts([rollout(response) for response in responses], args)[0].tolist()


def arguments(path: Path | str, *flags: str) -> SimpleNamespace:
    words = ["--actor.model_name_or_path", "model", "--actor.policy_loss_type", "real"]
    return parse_args([*words, "--rollout.n_samples_per_prompt", "4", "--train.agent_func_path", str(path), *flags])


def test_a_trajectory_is_one_rollout_of_the_policys_own_tokens():
    won, lost = guess("9<eos>", "3<eos>", "5<eos>"), guess("9<eos>", "?", "3<eos>")
    sample = rollout(won)
    said = GUESSER.convert_ids_to_tokens(sample.sequences[0][1:][sample.action_mask[0].bool()])
    assert said == ["9", "<eos>", "3", "<eos>", "5", "<eos>"]
    assert GUESSER.decode(sample.sequences[0]) == "8:9<eos><3<eos>>5<eos>"
    assert sample.rollout_log_probs[0].tolist() == [-0.5 if mine else 0 for mine in sample.action_mask[0]]
    assert labels(won, lost) == [POSITIVE, NEGATIVE]
    assert won["extra_logs"]["agent/turns"] == lost["extra_logs"]["agent/turns"] == 3
    samples = [rollout(won), rollout(lost)]
    args = arguments(EXAMPLE)
    args.rollout.n_samples_per_prompt = 2
    label_rollouts(samples, args)
    assert [int(one.response_length) for one in samples] == [6, 5]  # upstream's has the hints too


def test_a_cut_trajectory_may_be_ignored_and_turns_of_one_seed_are_refused():
    cut = guess("9<eos>", "3", max_length=6)
    assert cut["truncated"] is True and labels(cut) == [NEGATIVE] and labels(cut, truncated="ignore") == [IGNORED]
    with pytest.raises(UserError, match="--rollout.seeded gives all turns"):
        arguments(EXAMPLE, "--rollout.seeded")


# Reward functions that fail.

PROMPT, RESPONSE = "3758=", ".8573<eos>"

# name -> (body of reward_func, label, the fault's name in the log)
FAULTS = {
    "none": ("return None", IGNORED, "no_reward"),
    "nan": ("return {'rewards': float('nan')}", IGNORED, "not_finite"),
    "text": ("return {'rewards': '1'}", IGNORED, "no_number"),
    "two values": ("return {'rewards': [1.0, 0.0]}", IGNORED, "wrong_length"),
    "raising": ("raise ValueError('the judge is out')", IGNORED, "raises"),
    "Ctrl-C": ("raise KeyboardInterrupt", IGNORED, "raises"),
    "exit": ("sys.exit(3)", IGNORED, "exits"),
    "hanging": ("time.sleep(1000)", IGNORED, "hangs"),
    "a score of nan": ("return {'rewards': 0.0, 'scores': float('nan')}", IGNORED, None),
    "logs that name our columns": ("return {'rewards': 1, 'extra_logs': {'step': 9, 'phase': 3}}", POSITIVE, None),
    "a tensor": ("return {'rewards': torch.tensor([0.0]), 'scores': torch.tensor(1)}", POSITIVE, None),
    "a file beside it": ("import a_neighbour\n    return {'rewards': a_neighbour.right}", POSITIVE, None),
    "a fork": ("os.fork()\n    return {'rewards': 1.0}", POSITIVE, None),
    "a fork that raises": ("if os.fork() == 0: raise ValueError\n    return {'rewards': 1.0}", POSITIVE, None),
}  # fmt: skip
HEADER = "import os, sys, time, torch\ndef reward_func(queries, prompts, labels):\n    "


REVERSER = make_tokenizer(ReverseTask)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_its_response_and_nothing_else(tmp_path, monkeypatch, name):
    monkeypatch.setenv("REAL_REWARD_SECONDS", "1" if name == "hanging" else "60")
    body, label, fault = FAULTS[name]
    (tmp_path / "a_neighbour.py").write_text("right = 1.0\n")
    (tmp_path / "mine.py").write_text(HEADER + body + "\n")
    before = set(psutil.Process().children())
    params, engine = SamplingParams(logprobs=None), Engine(REVERSER, *[RESPONSE] * 2)
    responses = asked(
        executor([str(tmp_path / "mine.py")]), engine, params, 2, prompt=PROMPT, label="8573", max_length=32
    )
    assert labels(*responses) == [label] * 2
    samples = [rollout(one) for one in responses]
    failed = [key for key in samples[0].info if key.startswith("reward/failed_")]
    assert failed == ([f"reward/failed_{fault}"] if fault else [])
    assert all(math.isfinite(float(sample.rewards[0])) for sample in samples)
    _, left = psutil.wait_procs(set(psutil.Process().children()) - before, timeout=600)
    assert not left


def test_a_server_that_answers_nonsense_is_a_fault_too(monkeypatch):
    from aiohttp import web
    from aiohttp.test_utils import TestServer

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


# Which prompts dynamic filtering keeps, and which weights an evaluation measures.

NAN = math.nan


@pytest.mark.parametrize(
    "drawn, kept, rate",
    [
        ([[1, 0, 1, 0]] * 4, [0, 1, 2, 3], 100),
        ([[1, 0, 1, 0], [1] * 4, [0] * 4, [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0]], [0, 3, 4, 5], 400 / 6),
        ([[1, 0, 1, NAN], [NAN] * 4, [1, 1, NAN, 1], [0, 1, 0, 1], [1, 0, 0, 0]], [0, 1, 3, 4], 80),
    ],
)
def test_filtering_judges_a_prompt_by_its_verdicts_and_counts_prompts(monkeypatch, drawn, kept, rate):
    generator = SamplesGenerator.__new__(SamplesGenerator)
    rollout = SimpleNamespace(seeded_order=True, batch_size=4, n_samples_per_prompt=4, vllm_generate_batch_size=None)
    algo = SimpleNamespace(dynamic_filtering_range=(0.0, 1.0), dynamic_filtering_enable=True)
    generator.args = SimpleNamespace(algo=algo, rollout=rollout, vllm=SimpleNamespace(enable_sleep=False))
    generator._dataloader_iter, generator._sample_buffer = iter(range(len(drawn))), []
    generator._process_response_into_experience = lambda answer, **named: SimpleNamespace(
        prompt=answer[0], scores=torch.tensor([float(answer[1])])
    )
    generator._dispatch_prompts_to_vllm = lambda prompts, labels, **named: list(prompts)

    def collect(prompts, count):
        own = list(itertools.islice(prompts, count))
        return own, own, own, len(own) < count

    monkeypatch.setattr(samples_generator, "_collect_prompt_batch", collect)
    monkeypatch.setattr(samples_generator.ray, "wait", lambda refs, **named: (refs[:1], refs[1:]))
    monkeypatch.setattr(samples_generator.ray, "get", lambda ref: [(ref, score) for score in drawn[ref]])
    samples, percent, prompts, _ = generator.generate_samples()
    assert [sample.prompt for sample in samples[::4]] == kept
    assert (percent, prompts) == (pytest.approx(rate), len(drawn))


class Remote:
    """An actor's method, called with `.remote` in this process."""

    def __init__(self, call) -> None:
        self.remote = call


@pytest.mark.parametrize("queue", [1, 4, 8])
def test_an_asynchronous_evaluation_measures_the_step_that_it_names(monkeypatch, queue):
    """OpenRLHF's two loops, with a model that is the number of its updates: 14 steps, evaluated at every third."""
    made = [cls.__ray_metadata__.modified_class for cls in (GenerateSamplesActor, TrainingActor)]
    generator, trainer = (cls.__new__(cls) for cls in made)
    monkeypatch.setattr(ppo_trainer_async.ray, "get", lambda value: value)
    rollouts, slots, lock, weights = Queue(queue), Queue(queue), threading.Lock(), [0]
    for _ in range(queue):
        slots.put(0)
    args = run_args(kept=0, max_steps=14, num_episodes=1)
    args.train.run_dir, args.algo.dynamic_filtering_enable = "", False
    args.eval = SimpleNamespace(steps=3, dataset="held out", at_end=True, temperature=1.0, n_samples_per_prompt=1)
    seen: dict[int, int] = {}
    both = {"args": args, "rollout_queue": rollouts, "rollout_slots": slots, "_partial_rollout": False}
    both |= {"vllm_lock": SimpleNamespace(acquire=Remote(lock.acquire), release=Remote(lock.release))}
    vars(generator).update(both, generate_kwargs={}, prompts_dataloader=MagicMock(__len__=lambda self: 9))
    generator.samples_generator = SimpleNamespace(generate_samples=lambda: ([weights[0]], None, 1, False))
    generator._run_eval = Remote(lambda: {"weights": weights[0]})
    vars(generator).update(eval_dataloader=["a question"], _last_eval_step=-1, _eval_just_done=False)
    tracker = SimpleNamespace(
        log_eval=lambda step, numbers: seen.update({step: numbers["weights"]}), close=lambda: None
    )

    def train_step(samples, step):
        with lock:
            weights[0] = step + 1
        return {}, step + 1

    vars(trainer).update(both, train_step=train_step, wandb_logger=None, tensorboard_logger=tracker)
    trainer.save_logs_and_checkpoints = trainer.save_best_checkpoint = lambda *args: None
    trainer.run = RunController(trainer)
    drawing = threading.Thread(target=generator.fit, args=(0, 0), daemon=True)
    drawing.start()
    trainer.fit(0, generator)
    drawing.join(300)
    assert seen == {step: step for step in (3, 6, 9, 12, 14)}
