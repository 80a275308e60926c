"""Every method beside a naive graph of its own, under pairs of what can go wrong: gradient, loss and all logged means.

`differential_jobs.py` has both sides: the package's controller and trainer on ZeRO engines, and one graph in float64.
Cases cover every pair of a method with a choice, and every pair of two choices (all-pairs).
"""

import itertools
import random

import pytest
from small_world import REPOSITORY

from real_openrlhf.algorithm.formulas import OBJECTIVES

EXAMPLES = REPOSITORY / "examples/objectives"
TOKEN_MEAN = ("--actor.loss_agg_mode", "token-mean")
METHODS = {
    "grpo": {"loss": "ppo", "flags": ("--actor.loss_agg_mode", "seq-mean-token-mean")},
    "dapo": {"loss": "ppo", "flags": (*TOKEN_MEAN, "--actor.eps_clip_low_high", "0.2", "0.28")},
    "gspo": {"loss": "gspo", "flags": ("--actor.eps_clip_low_high", "3e-4", "4e-4")},
    "cispo": {"loss": "cispo", "flags": (*TOKEN_MEAN, "--actor.eps_clip_low_high", "1.0", "4.0")},
    "reinforce": {"loss": "reinforce", "flags": TOKEN_MEAN},
    **{name: {"objective": name} for name in OBJECTIVES},
    **{name: {"objective": f"{EXAMPLES / name}.py:{name}"} for name in ("nft", "icepop")},
}
KL = ("--algo.kl.use_loss", "--algo.kl.estimator", "k3", "--algo.kl.init_coef", "0.2")
CHOICES = {
    "method": tuple(METHODS),
    "kl": (False, True),
    "entropy": (None, 0.3),
    "verdicts": (True, False),
    "empty": (False, True),
    "holes": (False, True),
    "uniform": (False, True),
    "graded": (False, True),
    "skip": (False, True),
    "sampler": (False, True),
    "layout": ({"micro_batch_size": 1}, {"max_tokens": 30}),
    "ranks": (1, 2),
    "prompts": (2, 3),  # 3: the last update has one prompt
    "zero_stage": (2, 3),
    "epochs": (1, 2),
}


def all_pairs() -> list[dict]:
    """Cases that together hold every pair of values of two choices; each takes what covers most of the pairs left."""
    names, draw = list(CHOICES), random.Random(0)
    left = {
        (one, i, other, j)
        for one, other in itertools.combinations(names, 2)
        for i in range(len(CHOICES[one]))
        for j in range(len(CHOICES[other]))
    }
    cases = []
    while left:
        tried = []
        for _ in range(30):
            one, i, other, j = draw.choice(sorted(left))
            case = {one: i, other: j}
            for name in draw.sample([name for name in names if name not in case], len(names) - 2):
                gain = [sum(pair(name, i, o, k) in left for o, k in case.items()) for i in range(len(CHOICES[name]))]
                case[name] = draw.choice([i for i, value in enumerate(gain) if value == max(gain)])
            tried.append(
                (sum(pair(o, case[o], n, case[n]) in left for o, n in itertools.combinations(names, 2)), case)
            )
        case = max(tried, key=lambda one: one[0])[1]
        left -= {pair(o, case[o], n, case[n]) for o, n in itertools.combinations(names, 2)}
        cases.append({name: CHOICES[name][case[name]] for name in names})
    return cases


def pair(one: str, i: int, other: str, j: int) -> tuple:
    names = list(CHOICES)
    return (one, i, other, j) if names.index(one) < names.index(other) else (other, j, one, i)


CASES = all_pairs()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["method"])
def test_gradient_loss_and_every_logged_mean_are_the_naive_ones(start_ranks, random_model, case):
    method = METHODS[case["method"]]
    flags = (*method.get("flags", ()), *(KL if case["kl"] else ()))
    graded = case["graded"]
    if graded and method.get("objective") in OBJECTIVES and method["objective"] != "listwise":
        flags += ("--algo.real.label_threshold", "0.5")
    if case["sampler"] and method.get("objective") in OBJECTIVES:
        flags += ("--algo.real.sampler_clip", "1.3")
    how = {name: case[name] for name in ("prompts", "verdicts", "empty", "holes", "uniform", "graded")}
    found = start_ranks(case["ranks"], "zero_jobs")(
        "differential_jobs.compared",
        {**how, "levels": case["method"] == "trpa"},
        model=random_model,
        **{"deal": "groups", **method, "flags": flags, **case["layout"]},
        **{name: case[name] for name in ("skip", "zero_stage", "epochs")},
        entropy_coef=case["entropy"],
        learning_rate=2e-3,
    )
    assert len(found[0]) == case["epochs"] * -(-case["prompts"] // 2) + 1
    for step, record in enumerate(found[0]):
        assert record["gradient_error"] < 2e-5, step
        assert record["pairs"]
        for name, (logged, naive) in record["pairs"].items():
            assert naive is not None, f"nobody compares {name}"
            assert logged == pytest.approx(naive, rel=2e-4, abs=2e-5), (step, name)
    assert [record["pairs"] for record in found[0]] == [record["pairs"] for record in found[-1]]  # on every rank
