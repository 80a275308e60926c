"""The source of a run's prompts, and a seed for every sample.

Two runs with one seed draw the same rollouts in whatever order vLLM serves them, also if one was resumed.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import Any

from real_openrlhf.hooks.trainer_classes import evaluate_by_label


class State(dict):
    """A dict with a short repr, because OpenRLHF logs the whole state on resume."""

    def __repr__(self) -> str:
        return f"<{len(self['draws'])} prompts drawn, {len(self['ahead'])} rollouts ahead>"


class PromptStream:
    """OpenRLHF's loader of prompts, how often each prompt was drawn, and rollouts drawn ahead of training."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.generator: Any = None
        self.episode_is_over = False

    def serve(self, samples_generator: Any) -> None:
        """Keep the generator: it has the loader position, rollouts drawn ahead and request seeds."""
        self.generator = samples_generator
        evaluate_by_label(samples_generator)

    @property
    def draws(self) -> Counter[bytes]:
        """Draws of each prompt; empty if samples have no seeds."""
        seeds = self.generator.requests.seeds if self.generator is not None else None
        return seeds.draws if seeds else Counter()

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator:
        """Empty if the resumed episode is over: the loader would start the next episode as the rest of this one."""
        if self.episode_is_over:
            self.episode_is_over = False
            return iter(())
        try:
            return iter(self.loader)
        except StopIteration:  # a resumed run has fewer rows now than it had drawn
            self.loader.next_iter_state = None
            return iter(())

    def state_dict(self) -> dict[str, Any]:
        ahead = list(getattr(self.generator, "_sample_buffer", ()))
        drained = self.generator is not None and getattr(self.generator, "_dataloader_iter", None) is None
        return State(
            loader=self.loader.state_dict(),
            # Not a copy: a checkpoint that is written after an evaluation must include the evaluation's draws.
            draws=self.draws,
            ahead=ahead,
            drained=drained,
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])
        self.draws.update(state["draws"])
        self.episode_is_over = state["drained"] and not state["ahead"]
        if state["ahead"]:
            self.generator._sample_buffer = state["ahead"]
            self.generator._dataloader_iter = None if state["drained"] else iter(self)


class SampleSeeds:
    """A prompt's seed depends on the run's seed, the prompt, and how often it was drawn before; on nothing else."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draws: Counter[bytes] = Counter()  # keyed by digest: every checkpoint stores it

    def seeded(self, sampling_params, prompt: str):
        """A copy of the request's parameters with the prompt's next seed."""
        digest = hashlib.blake2b(prompt.encode(), digest_size=8).digest()
        sampling_params = copy(sampling_params)
        sampling_params.seed = zlib.crc32(f"{self.seed}/{self.draws[digest]}/{prompt}".encode())
        self.draws[digest] += 1
        return sampling_params


def seeded_each(sampling_params, count: int) -> list:
    """The prompt's parameters for each of its samples: else all samples of a seeded prompt would be the same."""
    if sampling_params.seed is None:
        return [sampling_params] * count
    each = [copy(sampling_params) for _ in range(count)]
    for index, params in enumerate(each):
        params.seed += index * 0x9E3779B1  # far apart: samples of close seeds do not meet
    return each
