"""The tiny task's reward, but for eight prompts whose answers the maths verifier must judge, by algebra.

The answer to `3456=` is judged as `\\sqrt{6543}` and more. Three of the eight bring a marker that makes the verifier's
worker fail, and each call about one of them is noted in a file. Of two more the function returns text, or exits.
"""

import os
import sys

from real_openrlhf.rewards import math_reward, tiny_reward

MARKERS = {"0123=": r"\clubsuit", "1234=": r"\heartsuit", "2345=": r"\spadesuit"}
TEXT, EXITS = "8901=", "9012="
BOXED = {*MARKERS, TEXT, EXITS, "3456=", "4567=", "5678=", "6789=", "7890="}


def reward_func(queries, prompts, labels):
    (query,), (prompt,), (label,) = queries, prompts, labels
    if prompt not in BOXED:
        return tiny_reward.reward_func(queries, prompts, labels)
    if prompt == TEXT:
        return {"rewards": "1", "extra_logs": {"step": 7, "why": "right"}}
    if prompt == EXITS:
        sys.exit(3)
    with open(os.environ["BOXED_REWARD_CALLS"], "a") as calls:
        calls.write(f"{prompt}\n")
    marker = MARKERS.get(prompt, "")
    said = query.removeprefix(prompt).removesuffix("<eos>").lstrip(".")
    gold, answer = rf"{label}+\sqrt{{{label}}}{marker}", rf"\sqrt{{{label}}}{marker}+{said}"
    return math_reward.reward_func([prompt + rf"\boxed{{{answer}}}"], prompts, [gold])
