"""Calls of the user's reward function. If a call fails, its response is ungraded, and the run goes on.

The rollout actors make one call per response. `REAL_REWARD_SECONDS` limits the time of a call.
"""

import asyncio
import contextlib
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from real_openrlhf.base.user_files import raised

logger = logging.getLogger(__name__)

SECONDS = 300.0
AT_ONCE = min(32, (os.cpu_count() or 1) + 4)  # threads, as upstream
# Keys of `extra_logs`. The first is in metrics.jsonl: the share of each kind of fault. The second is not: 1 for an
# incorrect response without a readable answer, TRPA's lowest level, which any reward function may return.
FAILED, NO_ANSWER = "reward/failed_", "label/no_answer"
WARNING = "the reward function failed ("  # the beginning of a line in train.log, which `train` shows


class Fault(Exception):
    """A fault of a reward function; `kind` is a short name for counting."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class RewardCalls:
    """The calls of one rollout actor. A call that hangs keeps its thread, and nobody waits for it."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.seconds = self.limit = float(os.environ.get("REAL_REWARD_SECONDS", SECONDS))
        self.turns = asyncio.Semaphore(AT_ONCE)
        self.faults: Counter[str] = Counter()
        self.details: dict[str, str] = {}  # of the first of each kind

    async def reward(self, query: str, prompt: str, label: Any) -> dict:
        """The reward as OpenRLHF expects it; after a fault the score is nan, which means: ungraded."""
        try:
            async with self.turns:
                return checked(await self._call(query, prompt, label))
        except Fault as fault:
            return self.failed(fault, prompt)

    def failed(self, fault: Fault, prompt: str) -> dict:
        self.faults[fault.kind] += 1
        self.details.setdefault(fault.kind, str(fault))
        count = self.faults[fault.kind]
        if str(count).strip("0") == "1":  # the 1st, 10th, 100th
            logger.warning(
                WARNING + "%s): %.500s; prompt %.80r; its response is ungraded, %d so far",
                *(fault.kind, " ".join(str(fault).split()), prompt, count),
            )
        return {"rewards": 0.0, "scores": math.nan, "extra_logs": {FAILED + fault.kind: 1.0}}

    async def _call(self, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future = loop.create_future()
        threading.Thread(target=self._run, args=(loop, answer, arguments), name="reward", daemon=True).start()
        try:
            return await asyncio.wait_for(answer, self.seconds)
        except TimeoutError:
            message = f"no reward in {self.seconds:g} s; a run's limit, REAL_REWARD_SECONDS, is {self.limit:g}"
            raise Fault("hangs", message) from None

    def _run(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future, arguments: tuple) -> None:
        process, value, fault = os.getpid(), None, None
        try:
            value = self.function(*([argument] for argument in arguments))
        except SystemExit as end:
            fault = Fault("exits", f"it called exit({end.code!r})")
        except BaseException as error:
            code = getattr(self.function, "__code__", None)
            fault = Fault("raises", raised(error, code.co_filename if code else ""))
        if os.getpid() != process:  # a child that the function forked: it must end here
            os._exit(0)

        def tell() -> None:
            if not answer.done():
                answer.set_exception(fault) if fault else answer.set_result(value)

        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(tell)


def checked(value: Any) -> dict:
    """A reward function's result as numbers; raises `Fault` for anything else."""
    if not isinstance(value, dict) or "rewards" not in value:
        raise Fault("no_reward", f"it returned {_kind(value)}, not a dict with rewards, scores and extra_logs")
    reward = number("rewards", value["rewards"])
    score = number("scores", value.get("scores", reward))
    logs = value.get("extra_logs")
    if not math.isfinite(reward) or math.isinf(score):
        raise Fault("not_finite", f"rewards {reward}, scores {score}; a score of nan alone means: ungraded")
    return {"rewards": reward, "scores": score, "extra_logs": dict(logged(logs if isinstance(logs, dict) else {}))}


def number(name: str, value: Any) -> float:
    """Convert a number, alone or as the only entry of a list, array or tensor: a call grades one response."""
    value = value.tolist() if hasattr(value, "tolist") else value
    while isinstance(value, list | tuple):
        if len(value) != 1:
            raise Fault("wrong_length", f"{name} has {len(value)} values for one response")
        value = value[0]
    if value is None and name == "scores":
        return math.nan  # ungraded, as JSON says it
    if not isinstance(value, bool | int | float):
        raise Fault("no_number", f"{name} is {_kind(value)}, not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def logged(logs: dict) -> Iterator[tuple[str, float]]:
    for key, value in logs.items():
        with contextlib.suppress(Fault):
            yield str(key), number(str(key), value)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict with {', '.join(sorted(map(str, value)))[:200] or 'nothing'}"
    return "None" if value is None else f"a {type(value).__name__}"
