"""`eval --agent FILE`: trajectories of an agent's file, as in training, on an engine of the evaluation."""

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.evaluation.store import Sample, sample_seed
from real_openrlhf.evaluation.tasks import Task, context_of

if TYPE_CHECKING:
    from vllm import LLM

LONGEST = 4096  # tokens of a trajectory if --max-len does not say
IDLE_SECONDS = 0.05  # between two looks at environments while no request waits for the engine


def trajectory_length(model: Path, agent: str, asked: int | None) -> int:
    """Tokens of a trajectory, at most. Raises a UserError of one line if the file has no agent."""
    from real_openrlhf.hooks.rollout import agents  # imports OpenRLHF

    try:
        agents.find_agent(agent)
    except ValueError as error:
        raise UserError(f"--agent {agent}: {error}") from None
    limit = context_of(model)
    if asked and limit and asked > limit:
        raise UserError(f"--max-len is {asked}, but the model's context is {limit}. Use {limit} or less")
    return asked or min(limit or LONGEST, LONGEST)


class Requests:
    """The engine as an agent awaits it: a request for each turn."""

    def __init__(self, llm: "LLM") -> None:
        self.llm = llm
        self.waiting: dict[str, asyncio.Future] = {}

    async def generate(self, tokens: list[int], params: Any, **_: Any) -> Any:
        from vllm import TokensPrompt

        (name,) = self.llm.enqueue([TokensPrompt(prompt_token_ids=list(tokens))], [params], use_tqdm=False)
        answer = self.waiting[name.partition("-")[0]] = asyncio.get_running_loop().create_future()
        return await answer

    def step(self) -> None:
        for output in self.llm.llm_engine.step():
            if output.finished:
                self.waiting.pop(output.request_id).set_result(output)


def trajectories(
    llm: "LLM", pairs: list[tuple[Task, int]], settings: Any, wanted: Callable[[], bool]
) -> Iterator[Sample]:
    """Yield finished trajectories until all are played, or until `wanted` is false."""
    from vllm import SamplingParams

    from real_openrlhf.hooks.rollout.agents import play  # imports OpenRLHF

    requests, tokenizer, loop = Requests(llm), llm.get_tokenizer(), asyncio.new_event_loop()
    tasks = {}
    for task, number in pairs:
        seed = sample_seed(settings.seed, task.identity, number) >> 1  # each turn adds to it
        params = SamplingParams(
            temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.max_new_tokens, seed=seed
        )
        named = {"label": task.label, "max_length": settings.max_model_len, "hf_tokenizer": tokenizer, "images": None}
        played = play(str(settings.agent), None, task.prompt, params, llm_engine=requests, **named)
        tasks[loop.create_task(played)] = (task, number, seed)
    while tasks and wanted():
        rest = 0 if requests.waiting else IDLE_SECONDS
        loop.run_until_complete(asyncio.wait(tasks, timeout=rest, return_when=asyncio.FIRST_COMPLETED))
        if requests.waiting:
            requests.step()
        for done in [one for one in tasks if one.done()]:
            task, number, seed = tasks.pop(done)
            yield _sample(task.identity, number, seed, done.result(), tokenizer)


def _sample(identity: str, number: int, seed: int, played: dict, tokenizer: Any) -> Sample:
    score = float(played["reward"] if played.get("scores") is None else played["scores"])
    if not (math.isnan(score) or score in (0.0, 1.0)):
        raise UserError(
            f"the agent gave score {score:g}, and pass@1 needs 0 or 1. Return these, or nan for no verdict"
        )
    begin = played["action_ranges"][0][0] if played["action_ranges"] else 0
    return Sample(
        id=identity,
        sample=number,
        seed=seed,
        response=tokenizer.decode(played["observation_tokens"][begin:], skip_special_tokens=False),
        tokens=sum(end - start for start, end in played["action_ranges"]),
        truncated=bool(played["truncated"]),
        score=None if math.isnan(score) else score,
    )
