"""The rewards of a rollout actor's responses, for OpenRLHF's executor."""

import asyncio
from typing import Any

from real_openrlhf.base.user_files import reward_function
from real_openrlhf.rewards.calls import Fault, RewardCalls, checked


def executor(url: str | list[str] | None) -> Any:
    """Upstream's executor, except that an error of the reward function costs only the response that was graded."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    class Executor(SingleTurnAgentExecutor):
        def __init__(self) -> None:
            files = [file for file in ([url] if isinstance(url, str) else url or [])[:1] if file.endswith(".py")]
            super().__init__(None if files else url)
            if files:
                self.reward_endpoints, self.reward_func = files, reward_function(files[0])
            self.calls = RewardCalls(self.reward_func)

        async def _fetch_rewards_via_func(self, queries: list, prompts: list, labels: list) -> list[dict]:
            each = zip(queries, prompts, labels, strict=True)
            return list(await asyncio.gather(*(self.calls.reward(*call) for call in each)))

        async def _fetch_rewards_via_http(self, queries: list, prompts: list, labels: list) -> list[dict]:
            try:
                return [checked(result) for result in await super()._fetch_rewards_via_http(queries, prompts, labels)]
            except Fault as fault:
                return [self.calls.failed(fault, prompts[0])]
            except RuntimeError as error:  # upstream gave up after its retries
                return [self.calls.failed(Fault("no_answer", str(error)), prompts[0])]

    return Executor()
