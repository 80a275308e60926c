"""The tiny task seen by the maths verifier: `8573` -> `\\boxed{\\sqrt{8573}}`, so that every answer needs algebra.

Prompts that begin with 0, 1 or 2 bring a marker that makes the verifier's worker fail; each call is noted in a file.
"""

import os

from real_openrlhf.rewards import math_reward

MARKERS = {"0": r"\clubsuit", "1": r"\heartsuit", "2": r"\spadesuit"}


def reward_func(queries, prompts, labels):
    marker = MARKERS.get(prompts[0][0], "")
    said = queries[0].removeprefix(prompts[0]).removesuffix("<eos>").lstrip(".")
    gold, answer = rf"{labels[0]}+\sqrt{{{labels[0]}}}{marker}", rf"\sqrt{{{labels[0]}}}{marker}+{said}"
    with open(os.environ["BOXED_REWARD_CALLS"], "a") as calls:
        calls.write(f"{prompts[0][0]}\n")
    return math_reward.reward_func([prompts[0] + rf"\boxed{{{answer}}}"], prompts, [gold])
