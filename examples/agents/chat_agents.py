"""Several turns with tools: an agent of chat messages and Python functions, in the model's own chat template.

Copy it beside your file, which derives `ChatAgent`, says `AgentExecutor = executor_of(Derived)` and is given to
`--train.agent_func_path`, as calculator.py and textarena_game.py.
Tokens in, tokens out: the model reads exactly the tokens that it drew before, and these are trained.
"""

import asyncio
import inspect
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

from real_openrlhf.hooks.rollout.agents import UNFINISHED
from real_openrlhf.hooks.rollout.reward_calls import number

Message = dict[str, Any]
CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)  # of Hermes, Qwen and many others
SAID = "\ue000the model's turn\ue001"  # stands in a template for what the model drew


class ChatAgent:
    """One trajectory. Methods may be coroutines. A game depends on `prompt` and `label` alone, not on chance."""

    tools: Sequence[Callable] = ()  # with types and a docstring that describes each argument, for the chat template
    tool_role = "tool"  # of the messages with results
    turns = 8  # of the model, at most

    def start(self, prompt: str, label: Any) -> list[Message]:
        """The messages before the model's first turn."""
        self.label = label
        return [{"role": "user", "content": prompt}]

    def reply(self, turn: str) -> list[Message] | None:
        """The messages after a turn without a tool call; None ends the trajectory."""
        return None

    def score(self, turn: str) -> float:
        """The trajectory's label, after its last turn: 0, 1, nan for ungraded; graded objectives take any number."""
        raise NotImplementedError


class Template:
    """The tokenizer's chat template, with these tools."""

    def __init__(self, tokenizer: Any, tools: Sequence[Callable]) -> None:
        self.tokenizer, self.tools = tokenizer, [*tools] or None

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return self._tokens(self._text(messages))

    def between(self, messages: Sequence[Message], drawn: Sequence[int] = ()) -> list[int]:
        """The tokens after the model's turn up to its next: the turn's end if it was not drawn, messages, markers."""
        texts = []
        for turn in (SAID, f"{SAID} {SAID}"):  # a template must not read from a turn what it writes after it
            turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": turn}]
            _, mark, after = self._text([*turns, *messages]).rpartition(SAID)
            if not mark or SAID in after:
                raise ValueError("the model's chat template changes what an assistant said, so turns cannot follow it")
            texts.append(after)
        lost = [message for message in messages if str(message["content"]).strip() not in texts[0]]
        if lost or texts[0] != texts[1]:
            role = lost[0]["role"] if lost else "assistant"
            raise ValueError(
                f"the model's chat template has no turn for the role {role!r}. Use another role: for tools "
                '`tool_role = "user"`'
            )
        tokens = self._tokens(texts[0])
        return tokens[1:] if drawn and tokens[:1] == [*drawn][-1:] else tokens

    def _text(self, messages: Sequence[Message]) -> str:
        # a template would read a text letter by letter, and find neither role nor content
        if not (messages and all(isinstance(message, dict) and "role" in message for message in messages)):
            raise ValueError("messages are a list of {'role': ..., 'content': ...}. Return such a list")
        return self.tokenizer.apply_chat_template(
            messages, tools=self.tools, tokenize=False, add_generation_prompt=True
        )

    def _tokens(self, text: str) -> list[int]:
        return list(self.tokenizer(text=text, add_special_tokens=False)["input_ids"])


def tool_calls(text: str) -> list[tuple[str, dict] | str]:
    """(name, arguments) of each call in the text; for a call that cannot be read, what is wrong with it."""
    calls: list[tuple[str, dict] | str] = []
    for body in CALL.findall(text):
        try:
            call = json.loads(body)
            named = call["name"], call.get("arguments", {})
            right = isinstance(named[0], str) and isinstance(named[1], dict)
            calls.append(named if right else "a call needs a name and an object of arguments")
        except (ValueError, TypeError, KeyError, AttributeError):
            calls.append('a call is not {"name": ..., "arguments": {...}}')
    return calls


async def _result(call: tuple[str, dict] | str, tools: Sequence[Callable]) -> str:
    """What the model reads of a call. A tool that raises is no fault of the run: the model may try again."""
    if isinstance(call, str):
        return f"error: {call}"
    known = {tool.__name__: tool for tool in tools}
    if call[0] not in known:
        return f"error: no tool {call[0]!r}. There are: {', '.join(known)}"
    try:
        return str(await _now(asyncio.to_thread(known[call[0]], **call[1])))
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"


async def _now(value: Any) -> Any:
    """The value of a coroutine, of a coroutine's thread, or a value as it is."""
    while inspect.isawaitable(value):
        value = await value
    return value


def executor_of(agent: type[ChatAgent]) -> type[AgentExecutorBase]:
    """The `AgentExecutor` of an agent's file. Raises at its loading if it has no score or a tool no description."""
    from transformers.utils import get_json_schema

    if not (isinstance(agent, type) and issubclass(agent, ChatAgent)):
        raise TypeError(f"executor_of({agent!r}) is not of a class that derives ChatAgent. Give the class itself")
    if agent.score is ChatAgent.score:
        raise NotImplementedError(f"{agent.__name__} has no method `score`, which says how right the answer is")
    for tool in agent.tools:
        get_json_schema(tool)

    class ChatExecutor(AgentExecutorBase):
        async def execute(
            self, prompt, label, sampling_params, max_length: int, hf_tokenizer, llm_engine, images=None
        ) -> dict:
            played = Trajectory(agent(), hf_tokenizer, max_length)
            await played.play(prompt, label, sampling_params, llm_engine)
            return played.response(prompt, label, images, sampling_params.logprobs is not None)

    return ChatExecutor


class Trajectory:
    def __init__(self, agent: ChatAgent, tokenizer: Any, max_length: int) -> None:
        self.agent, self.tokenizer, self.max_length = agent, tokenizer, max_length
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.ranges: list[tuple[int, int]] = []
        self.calls = self.failed = 0
        self.score, self.is_cut, self.is_finished = 0.0, False, False

    async def play(self, prompt: str, label: Any, params: Any, engine: Any) -> None:
        messages = await _now(self.agent.start(prompt, label))
        template = Template(self.tokenizer, self.agent.tools)
        self._read(template.prompt(messages))
        if len(self.tokens) >= self.max_length:
            raise ValueError(
                f"its prompt has {len(self.tokens)} tokens and --data.max_len is {self.max_length}. Raise that"
            )
        turn = ""
        while len(self.tokens) < self.max_length and not self.is_finished:
            params.max_tokens = self.max_length - len(self.tokens)
            turn = self._draw(await engine.generate(self.tokens, params, multi_modal_data=None))
            messages = None if self.is_cut else await self._answer(turn)
            if messages is None or len(self.ranges) >= self.agent.turns:
                self.is_finished = not self.is_cut
                break
            self._read(template.between(messages, self.tokens))
        self.score = number("scores", await _now(self.agent.score(turn)))

    def _read(self, tokens: list[int]) -> None:
        self.tokens = [*self.tokens, *tokens]
        self.log_probs += [0.0] * len(tokens)

    def _draw(self, output: Any) -> str:
        sample, begin = output.outputs[0], len(self.tokens)
        drawn = list(sample.token_ids)
        self.ranges.append((begin, begin + len(drawn)))
        self.tokens = [*self.tokens, *drawn]
        self.log_probs += [
            by_token[token].logprob for token, by_token in zip(drawn, sample.logprobs or (), strict=False)
        ]
        self.is_cut = sample.finish_reason == "length"
        if isinstance(sample.stop_reason, int):  # an end of turn that is not the tokenizer's, as Gemma's
            drawn.pop()
        text = self.tokenizer.decode(drawn, skip_special_tokens=False)
        return text.removesuffix(self.tokenizer.eos_token or "")

    async def _answer(self, turn: str) -> list[Message] | None:
        calls = tool_calls(turn) if self.agent.tools else []
        if not calls:
            return await _now(self.agent.reply(turn))
        results = [await _result(call, self.agent.tools) for call in calls]
        self.calls += len(calls)
        self.failed += sum(result.startswith("error: ") for result in results)
        return [{"role": self.agent.tool_role, "content": result} for result in results]

    def response(self, prompt: str, label: Any, images: Any, logged: bool) -> dict:
        """In the form of OpenRLHF's executors."""
        return {
            "prompt": prompt,
            "label": label,
            "images": images,
            "mm_train_inputs": None,
            "reward": 0.0 if math.isnan(self.score) else self.score,
            "scores": self.score,
            "observation_tokens": self.tokens,
            "action_ranges": self.ranges,
            "truncated": self.is_cut,
            "rollout_log_probs": self.log_probs if logged else None,
            "extra_logs": {
                UNFINISHED: float(not self.is_finished),
                "agent/calls": float(self.calls),
                "agent/failed_calls": float(self.failed),
            },
        }
