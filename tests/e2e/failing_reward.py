"""The shipped reward, but for eight prompts whose answers it must judge by algebra, and two for which it is no reward.

The answer to `3456=` is judged as `\\sqrt{6543}` and more. Each call about one of the eight is noted in a file. For
three of them every response is wrong, and the first that any process grades brings a marker that makes the verifier's
worker fail. Of two more prompts the function returns text, or exits.
Where a label begins with `~` the reward is graded, up to a half: the share of right digits, or where there are two `~`
the same for all. It is noted in a file of its own.
"""

import json
import os
import sys
from pathlib import Path

from same_answer import verdict
from same_answer.pool import ALGEBRA as WORKER
from same_answer.pool import Limits, WorkerPool

if "SAME_ANSWER_FAULTS" in os.environ:
    sys.path.append(str(Path(__file__).parents[2] / "same_answer/tests"))  # which the workers get
    verdict._workers[WORKER] = WorkerPool(2, Limits(), "failing_worker")

from real_openrlhf.rewards import math_reward

BOX = r"\boxed{"

MARKERS = {"0123=": r"\clubsuit", "1234=": r"\heartsuit", "2345=": r"\spadesuit"}
TEXT, EXITS = "8901=", "9012="
ALGEBRA = {*MARKERS, "3456=", "4567=", "5678=", "6789=", "7891="}


# Read in an engine's process: which devices that has, for test_train_on_two_ranks.py.
ASKED = ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR", "VLLM_USE_FLASHINFER_SAMPLER")


def note_devices() -> None:
    if place := os.environ.get("FAILING_REWARD_CALLS"):
        Path(f"{place}.devices").write_text(json.dumps({name: os.environ.get(name) for name in ASKED}))


def is_first(prompt: str) -> bool:
    try:
        open(f"{os.environ['FAILING_REWARD_CALLS']}.{prompt}", "x").close()
    except FileExistsError:
        return False
    return True


def reward_func(queries, prompts, labels):
    note_devices()
    (query,), (prompt,), (label,) = queries, prompts, labels
    if label.startswith("~"):
        said = query.removeprefix(prompt).partition(BOX)[2].partition("}")[0]
        reward = 0.25 if label.startswith("~~") else sum(map(str.__eq__, said, label[1:])) / 8
        with open(os.environ["FAILING_REWARD_CALLS"] + ".graded", "a") as calls:
            calls.write(f"{prompt} {reward}\n")
        return {"rewards": reward, "scores": reward, "extra_logs": {}}
    if prompt == TEXT:
        return {"rewards": "1", "extra_logs": {"step": 7, "why": "right"}}
    if prompt == EXITS:
        sys.exit(3)
    if prompt not in ALGEBRA:
        return math_reward.reward_func(queries, prompts, labels)
    with open(os.environ["FAILING_REWARD_CALLS"], "a") as calls:
        calls.write(f"{prompt}\n")
    marker = MARKERS[prompt] if prompt in MARKERS and is_first(prompt) else ""
    said = "0" if prompt in MARKERS else query.removeprefix(prompt).partition(BOX)[2].partition("}")[0]
    gold, answer = rf"{label}+\sqrt{{{label}}}{marker}", rf"\sqrt{{{label}}}{marker}+{said}"
    return math_reward.reward_func([prompt + rf"\boxed{{{answer}}}"], prompts, [gold])
