"""A seed for every sample: two runs with one seed draw the same rollouts in whatever order vLLM serves them."""

import hashlib
import zlib
from collections import Counter
from copy import copy


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
    for index, one in enumerate(each):
        one.seed += index * 0x9E3779B1  # far apart: samples of close seeds do not meet
    return each


def seeded_by_turn(sampling_params, seed: int | None, turn: int):
    """Set, in place, the seed of a rollout's turn: with one seed all turns would draw the same random numbers."""
    sampling_params.seed = None if seed is None else seed + turn * 0x85EBCA6B
    return sampling_params
