"""A prompt is read before its answers, once for all of them; with the real engine: tests/e2e/test_long_prompts.py."""

import asyncio
from types import SimpleNamespace

from real_openrlhf.hooks.fixes.repeatable_engine import READING
from real_openrlhf.hooks.rollout.read_once import ReadOnce


class Engine:
    """Keeps what it was asked, in the order in which it answered."""

    def __init__(self) -> None:
        self.answered: list[tuple[list[int], SimpleNamespace]] = []

    async def generate(self, tokens, params, multi_modal_data=None):
        await asyncio.sleep(0.01)
        if tokens == [0]:
            raise RuntimeError("the engine died")
        self.answered.append((tokens, params))
        return params.seed


def params(seed: int) -> SimpleNamespace:
    return SimpleNamespace(seed=seed, max_tokens=9, min_tokens=1, logprobs=0, temperature=1.0, extra_args=None)


async def answers(reader: ReadOnce, prompts: list[list[int]], each: int) -> list:
    asked = [reader.generate(prompt, params(number)) for prompt in prompts for number in range(each)]
    return await asyncio.gather(*asked, return_exceptions=True)


def test_each_prompt_is_read_once_before_its_answers_and_again_for_the_next_ones():
    reader = ReadOnce(engine := Engine())
    for _ in range(2):
        assert asyncio.run(answers(reader, [[1, 2], [3, 4]], 3)) == [0, 1, 2, 0, 1, 2]
    assert not reader.readings
    names = set()
    for start in (0, 8):
        readings, rest = engine.answered[start : start + 2], engine.answered[start + 2 : start + 8]
        assert [(tokens, one.max_tokens, one.seed) for tokens, one in readings] == [
            ([1, 2], 1, None),
            ([3, 4], 1, None),
        ]
        for tokens, read in readings:
            names.add(read.extra_args[READING])
            own = [one for others, one in rest if others == tokens]
            assert [(one.max_tokens, one.seed, one.extra_args) for one in own] == [
                (9, n, read.extra_args) for n in range(3)
            ]
    assert len(names) == 4


def test_an_engine_that_dies_while_it_reads_is_told_to_all():
    reader = ReadOnce(Engine())
    found = asyncio.run(answers(reader, [[0], [5]], 2))
    assert [str(one) for one in found] == ["the engine died", "the engine died", "0", "1"]
    assert not reader.readings


def test_pictures_are_not_read_for_others():
    reader = ReadOnce(engine := Engine())
    mine = params(7)
    assert asyncio.run(reader.generate([1], mine, multi_modal_data={"image": []})) == 7
    assert engine.answered == [([1], mine)]
