"""A single-player game of TextArena as a trajectory. Install textarena; the label of a row is the game's seed.

`--train.agent_func_path examples/agents/textarena_game.py`, with `--no-data.apply_chat_template`.
docs/change/agents.md explains each part.
"""

import os

import textarena
from chat_agents import ChatAgent, executor_of

NAME = os.environ.get("GAME", "GuessTheNumber-v0")


class Game(ChatAgent):
    turns = 12

    def start(self, prompt, label):
        self.game, self.seen, self.won = textarena.make(NAME), "", 0.0
        self.game.reset(num_players=1, seed=int(label))
        return [{"role": "user", "content": f"{prompt}{self.news()}"}]

    def reply(self, turn):
        over, _ = self.game.step(action=turn)
        if over:
            self.won = float(self.game.close()[0][0] >= 1)
            return None
        return [{"role": "user", "content": self.news()}]

    def news(self) -> str:
        """An observation repeats the whole history, which the model has read before."""
        _, seen = self.game.get_observation()
        new = seen.removeprefix(self.seen)
        self.seen = seen
        return new

    def score(self, turn):
        return self.won


AgentExecutor = executor_of(Game)
