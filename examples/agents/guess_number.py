"""Several turns in one rollout: guess a number, with a hint after each wrong guess. An environment to copy.

`--train.agent_func_path examples/agents/guess_number.py`, played by OpenRLHF's own executor; docs/change/objectives.md
says how it is trained.
"""

import re

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

GUESSES = 3


class Game(AgentInstanceBase):
    """One trajectory. What differs between prompts is in prompt and label: a prompt's rollouts play the same game."""

    def __init__(self):
        self.guesses = 0

    async def step(self, states):
        """After each turn of the model: what it is told, and after the last one whether the trajectory is right."""
        self.guesses += 1
        secret, digits = int(states["label"]), re.search(r"\d+", states["action_text"])
        guess = int(digits[0]) if digits else None
        right = guess == secret
        done = right or self.guesses == GUESSES
        hint = "?" if guess is None else "<" if secret < guess else ">"
        return {
            "rewards": torch.tensor(float(right)),  # OpenRLHF takes a tensor here
            "scores": float(right),  # of the last turn: the label of the whole trajectory
            "environment_feedback": "" if done else hint,
            "done": done,
            "extra_logs": {"agent/turns": float(self.guesses)},
        }


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(Game)
