"""Several turns in one rollout: OpenRLHF's own executor plays an agent's file, with an engine that has a script.

From the request to the label.
"""

import asyncio
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from openrlhf.cli.train_ppo_ray import parse_args
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from vllm import SamplingParams

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE
from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.controller.labels import label_rollouts
from real_openrlhf.hooks.engine.requests import AGENT, executor
from real_openrlhf.hooks.rollout.agents import TURNS, AgentError
from real_openrlhf.training.tasks.tiny_model import make_tokenizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "guess_number.py"
sys.path.append(str(EXAMPLE.parent))
from tiny_guesser import GuessTask  # noqa: E402

TOKENIZER = make_tokenizer(GuessTask)
AGENT_FILE = """
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
class Agent(AgentInstanceBase):
    def __init__(self):
        self.turn = 0
    async def step(self, states):
        self.turn += 1
        {body}
class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(Agent)
"""
TOLD = '"environment_feedback": "<", "done": self.turn == 3'


class Engine:
    """Answers each turn with the next text, and keeps what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = list(texts), []

    async def generate(self, tokens, params, multi_modal_data=None):
        self.asked.append((tokens, params))
        ids = TOKENIZER(self.texts.pop(0)).input_ids[: params.max_tokens]
        logprobs = None if params.logprobs is None else [{token: SimpleNamespace(logprob=-0.5)} for token in ids]
        reason = "length" if len(ids) == params.max_tokens else "stop"
        text = TOKENIZER.decode(ids, skip_special_tokens=True)
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=ids, text=text, logprobs=logprobs, finish_reason=reason)]
        )


def play(engine: Engine, path: Path = EXAMPLE, label="5", max_length=32, seed=7, **params) -> dict:
    params = SamplingParams(**({"max_tokens": 3, "min_tokens": 1, "logprobs": 0, "seed": seed} | params))
    params.extra_args = {AGENT: (str(path), None)}
    request = {"label": label, "max_length": max_length, "hf_tokenizer": TOKENIZER, "images": None}
    return asyncio.run(executor("unused").execute(prompt="8:", sampling_params=params, llm_engine=engine, **request))


def rollout(response: dict):
    """As OpenRLHF's sampler makes one of it."""
    return SamplesGenerator._process_response_into_experience(None, response, max_len=32)


def labels(*responses: dict, **real) -> list[int]:
    args = arguments(EXAMPLE)
    args.rollout.n_samples_per_prompt = len(responses)
    vars(args.algo.real).update(real)
    return label_rollouts([rollout(response) for response in responses], args, TOKENIZER)[0].tolist()


def arguments(path: Path | str, *flags: str, loss="real") -> SimpleNamespace:
    words = ["--actor.model_name_or_path", "model", "--actor.policy_loss_type", loss]
    return parse_args([*words, "--rollout.n_samples_per_prompt", "4", "--train.agent_func_path", str(path), *flags])


def written(tmp_path: Path, body: str) -> Path:
    (tmp_path / "agent.py").write_text(AGENT_FILE.format(body=body))
    return tmp_path / "agent.py"


def test_a_trajectory_is_one_rollout_of_the_policys_own_tokens():
    engine = Engine("9<eos>", "3<eos>", "5<eos>")
    won, lost = play(engine), play(Engine("9<eos>", "?", "3<eos>"))
    sample = rollout(won)
    said = TOKENIZER.convert_ids_to_tokens(sample.sequences[0][1:][sample.action_mask[0].bool()])
    assert said == ["9", "<eos>", "3", "<eos>", "5", "<eos>"]
    assert TOKENIZER.decode(sample.sequences[0]) == "8:9<eos><3<eos>>5<eos>"
    assert sample.rollout_log_probs[0].tolist() == [-0.5 if mine else 0 for mine in sample.action_mask[0]]
    assert labels(won, lost) == [POSITIVE, NEGATIVE]
    assert (won["extra_logs"][TURNS], lost["extra_logs"][TURNS]) == (3, 3)
    samples = [rollout(won), rollout(lost)]
    args = arguments(EXAMPLE)
    args.rollout.n_samples_per_prompt = 2
    label_rollouts(samples, args, TOKENIZER)
    assert [int(one.response_length) for one in samples] == [6, 5]  # upstream's has the hints too


def test_each_turn_has_the_runs_limit_and_draws_of_its_own():
    engine, long = Engine("9<eos>", "3<eos>", "5<eos>"), Engine(*["1234678"] * 3)
    play(engine)
    seeds = [params.seed for _, params in engine.asked]
    assert seeds[0] == 7 and len(set(seeds)) == 3  # the first turn is the single turn's
    asked = [(params.max_tokens, params.min_tokens, params.extra_args) for _, params in engine.asked]
    assert set(asked) == {(3, 0, None)}
    play(long, seed=None, max_tokens=4)
    assert {params.max_tokens for _, params in long.asked} == {4} and {p.seed for _, p in long.asked} == {None}
    play(free := Engine("5"), max_tokens=None)
    assert free.asked[0][1].max_tokens == 30  # what the context has left


def test_sampling_parameters_of_a_step_keep_what_the_run_asks_of_the_engine(tmp_path):
    body = f'from vllm import SamplingParams; return {{"rewards": 0.0, "sampling_params": SamplingParams(), {TOLD}}}'
    response = play(Engine(*["1"] * 3), written(tmp_path, body))
    assert len(response["rollout_log_probs"]) == len(response["observation_tokens"])


def test_a_trajectory_without_room_for_its_next_turn_is_truncated():
    cut = play(Engine("9<eos>", "3"), max_length=6, max_tokens=4)
    assert cut["truncated"] is True and cut["extra_logs"]["agent/unfinished"] == 1
    assert labels(cut, truncated="ignore") == [IGNORED] and labels(cut) == [NEGATIVE]
    assert play(Engine("5<eos>"))["truncated"] is False


@pytest.mark.parametrize(
    "rewards, scores, label",
    [
        ("float(self.turn == 2)", None, POSITIVE),  # the sum over turns
        ("0.5", "1.0", POSITIVE),  # the last turn's score, whatever the rewards are
        ("1.0", "[float(self.turn < 3)]", NEGATIVE),
        ("0.0", "float('nan')", IGNORED),  # the environment cannot judge
    ],
)
def test_the_label_is_the_last_score_or_the_sum_of_rewards(tmp_path, rewards, scores, label):
    given = f'"rewards": {rewards}, {TOLD}' + (f', "scores": {scores}' if scores else "")
    response = play(Engine(*["1"] * 3), written(tmp_path, f"return {{{given}}}"))
    assert labels(response) == [label]
    assert not math.isnan(response["reward"])


@pytest.mark.parametrize(
    "body, told",
    [
        ('raise KeyError("door")', ": line 8, KeyError: 'door', after turn 1 of prompt '8:'"),
        ("exit(3)", ": line 8, SystemExit: 3"),
        (f'return {{"rewards": 1.0, {TOLD}}} | {{"rewards": "much"}}', "Fault: rewards is a str, not a number"),
        (f'return {{"rewards": float("inf"), {TOLD}}}', "Fault: rewards inf"),
        ('return {"rewards": 1.0, "done": True}', "KeyError: 'environment_feedback'"),
        ("return 1.0", "Fault: it returned a float, not a dict"),
    ],
)
def test_an_environment_that_raises_is_named_with_line_turn_and_prompt(tmp_path, body, told):
    path = written(tmp_path, body)
    with pytest.raises(AgentError) as refused:
        play(Engine(*["1"] * 3), path)
    assert str(refused.value).startswith(f"the agent {path}") and told in str(refused.value)
    assert "\n" not in str(refused.value) and "returns scores nan" in str(refused.value)


def test_an_engine_that_dies_is_no_fault_of_the_agent():
    class Dead(Engine):
        async def generate(self, *_, **named):
            raise RuntimeError("the engine is dead")

    with pytest.raises(RuntimeError, match="^the engine is dead$"):
        play(Dead())


@pytest.mark.parametrize(
    "text, told",
    [
        ("AgentExecutor = 1", "it defines no AgentExecutor. Derive one from"),
        ("import no_such_module", "line 1, ModuleNotFoundError"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_file_that_is_no_agent_is_refused_before_the_run(tmp_path, text, told):
    path = tmp_path / "agent.py"
    if text:
        path.write_text(text)
    for flags in ((), ("--train.deal", "groups", "--algo.advantage.estimator", "group_norm")):
        with pytest.raises(UserError) as refused:
            arguments(path, *flags, loss="ppo" if flags else "real")
        assert any(one.startswith("--train.agent_func_path") and told in one for one in refused.value.problems)


def test_our_executor_plays_it_where_updates_are_dealt_and_upstreams_elsewhere():
    ours, upstreams = arguments(EXAMPLE), arguments(EXAMPLE, loss="ppo")
    assert (ours.rollout.agent, ours.train.agent_func_path) == (str(EXAMPLE), None)
    assert (upstreams.rollout.agent, upstreams.train.agent_func_path) == (None, str(EXAMPLE))
