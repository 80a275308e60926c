"""Every method beside a naive graph of its own, under pairs of what can go wrong: gradient, loss, logged means.

`differential_jobs.py` has both sides: the package's controller and trainer on ZeRO engines, and one graph in float64.
Cases cover every pair of two choices, and each method with all that rollouts and a sampler can bring (all-pairs);
`tests/run.sh every` has every pair of a method with a choice.
"""

import itertools
import random

import pytest
from every import EVERY
from small_world import REPOSITORY

from real_openrlhf.algorithm.formulas import OBJECTIVES

EXAMPLES = REPOSITORY / "examples/objectives"
TOKEN_MEAN = ("--actor.loss_agg_mode", "token-mean")
METHODS = {
    "grpo": {"loss": "ppo", "flags": ("--actor.loss_agg_mode", "seq-mean-token-mean")},
    "dapo": {"loss": "ppo", "flags": (*TOKEN_MEAN, "--actor.eps_clip_low_high", "0.2", "0.28")},
    "gspo": {"loss": "gspo", "flags": ("--actor.eps_clip_low_high", "3e-4", "4e-4")},
    **{name: {"objective": name} for name in OBJECTIVES},
    **{name: {"objective": f"{EXAMPLES / name}.py:{name}"} for name in ("oapl", "nft", "icepop", "dppo")},
    "reverse_kl": {"objective": f"{EXAMPLES}/reverse_kl.py:reverse_kl"},
    "disco": {"objective": f"{EXAMPLES}/disco.py:disco_lratio"},
}
KL = ("--algo.kl.use_loss", "--algo.kl.estimator", "k3", "--algo.kl.init_coef", "0.2")
AGAINST_SAMPLER = {"score": "log_ratio_rollout"}
CHOICES = {
    "method": tuple(METHODS),
    "kl": (False, True),
    "entropy_coef": (None, 0.3),
    "ignored": (False, True),  # rollouts without a verdict
    "uniform": (False, True),  # a prompt whose answers are all right
    "empty": (False, True),
    "turns": (False, True),
    "graded": (False, True),
    "skip": (False, True),
    "sampler": (False, True),
    "layout": ({"micro_batch_size": 1}, {"max_tokens": 30}),
    "checkpointing": (False, True),
    "lora": (False, True),
    "ranks": (1, 2),
    "prompts": (3, 4),  # 3: the last update has one prompt
    "zero_stage": (2, 3),
    # of a loss over groups: which forward goes into which wave, and what else decides its scores
    "waves": ({}, {"depth": "1"}, {"depth": "1000"}, {"depth": "0"}),
    "scores": ({}, {"uniform_groups": "keep"}, {"kl_old_coef": 0.1}, AGAINST_SAMPLER),
}
SAME = ("entropy_coef", "empty", "turns", "graded", "skip", "checkpointing", "lora", "prompts", "zero_stage")
BROUGHT = {"kl", "ignored", "uniform", "empty", "turns", "sampler"}
OF_GROUPS, OF_TOKENS = {"waves", "scores"}, {"grpo", "dapo", "gspo", "nft", "icepop", "dppo", "reverse_kl"}


def pairs(case: dict[str, int], name: str = "") -> set[tuple]:
    """The pairs of two choices in a case, or those with this one; a loss of tokens has no waves and no scores."""
    own = [name for name in CHOICES if name in case]
    if "method" in case and tuple(METHODS)[case["method"]] in OF_TOKENS:
        own = [name for name in own if name not in OF_GROUPS]
    if not name:
        both = itertools.combinations(own, 2)
    elif name in own:
        at = own.index(name)
        both = [*((one, name) for one in own[:at]), *((name, one) for one in own[at + 1 :])]
    else:
        both = ()
    return {(a, case[a], b, case[b]) for a, b in both if not {a, b} <= {"method"} | OF_GROUPS}


def all_pairs() -> list[dict]:
    """Cases that together hold every pair of values of two choices; each takes what covers most of the pairs left."""
    draw, cases = random.Random(0), []
    left = set().union(
        *(
            pairs({one: i, other: j})
            for one, other in itertools.combinations(CHOICES, 2)
            for i in range(len(CHOICES[one]))
            for j in range(len(CHOICES[other]))
        )
    )
    left -= {pair for pair in left if not EVERY and pair[0] == "method" and not (pair[2] in BROUGHT and pair[3])}
    while left:
        tried, listed = [], sorted(left)
        for _ in range(10):
            one, i, other, j = draw.choice(listed)
            case = {one: i, other: j}
            for name in draw.sample([name for name in CHOICES if name not in case], len(CHOICES) - 2):
                gain = [len(pairs({**case, name: i}, name) & left) for i in range(len(CHOICES[name]))]
                case[name] = draw.choice([i for i, value in enumerate(gain) if value == max(gain)])
            tried.append((len(pairs(case) & left), case))
        case = max(tried, key=lambda one: one[0])[1]
        left -= pairs(case)
        cases.append({name: CHOICES[name][case[name]] for name in CHOICES})
    return cases


@pytest.mark.parametrize("case", all_pairs(), ids=lambda case: case["method"])
def test_gradient_loss_and_every_logged_mean_are_the_naive_ones(start_ranks, random_model, case):
    method = METHODS[case["method"]]
    of_groups, flags = case["method"] not in OF_TOKENS, [*method.get("flags", ()), *(KL if case["kl"] else ())]
    if case["graded"] and of_groups and case["method"] != "oapl":
        flags += ["--algo.real.label_threshold", "0.5"]
    ways = {**case["waves"], **case["scores"]} if of_groups else {}
    if "score" in ways and "score" not in OBJECTIVES.get(case["method"], OBJECTIVES["trpa"]).settings:
        del ways["score"]
    if case["sampler"] and of_groups and "score" not in ways and case["method"] != "oapl":  # which scores against it
        flags += ["--algo.real.tis_cap", "1.3"]
    records = start_ranks(case["ranks"], "zero_jobs")(
        "differential_jobs.compared",
        model=random_model,
        kinds=("ignored" if case["ignored"] else "mixed", "uniform" if case["uniform"] else "mixed"),
        levels=case["method"] == "trpa",
        stale=True,  # the first update's are the policy's in a run
        learning_rate=2e-3,
        **{"batching": "whole_groups", **method, "flags": tuple(flags), **case["layout"], **ways},
        **{name: case[name] for name in SAME},
    )
    steps = records[0][:-1]
    assert len(steps) == -(-case["prompts"] // 2)
    for number, record in enumerate(steps):
        assert record["gradient_error"] < 2e-5, number
        scored_first = ways.get("depth") == "0" and not record["scores_known"]  # nothing else is forwarded twice
        assert record["forwards"] == 1 + case["checkpointing"] + scored_first
        # its old log-probabilities are of its own forward: another one would leave the difference of two roundings
        if of_groups and record["scores_known"] and case["method"] != "disco":
            assert record["status"]["real/score_drift"] == 0
    for number, record in enumerate(records[0]):
        for name, (logged, naive) in record["pairs"].items():
            assert naive is not None, f"nobody compares {name}"
            assert logged == pytest.approx(naive, rel=2e-4, abs=2e-5), (number, name)
    logged = [[{name: one for name, (one, _) in record["pairs"].items()} for record in rank] for rank in records]
    assert all(one == logged[0] for one in logged)


def test_a_rank_without_rollouts_trains_nothing(start_ranks, random_model):
    """Of four ranks each has one rollout of a group, or none of it, or none at all."""
    kinds = {"kinds": ("uniform", "uniform", "ignored", "uniform"), "micro_batch_size": 1, "skip": True}
    for records in start_ranks(4, "zero_jobs")("differential_jobs.compared", model=random_model, **kinds):
        assert max(record["gradient_error"] for record in records) < 2e-5
        assert {record["status"]["actor_grad_norm"] > 0 for record in records[:-1]} == {True, False}
