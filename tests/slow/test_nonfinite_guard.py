"""A nan on one of two ranks stops both before a weight changes, in REAL's trainer and in upstream's."""

import math

import pytest
from every import cells

PLACES = {"loss": "the loss is", "log_probs": "the loss is", "gradient": "a gradient is", "scores": "the scores of"}
IN_ZERO_3 = (("real", "gradient"), ("real", "scores"), ("ppo", "loss"))
PLACED = (*IN_ZERO_3, ("real", "loss"), ("real", "log_probs"), ("ppo", "log_probs"), ("ppo", "gradient"))


def grid(dtype: str, zero_stage: int, placed=PLACED) -> list[tuple[dict, str]]:
    return [({"loss": loss, "dtype": dtype, "zero_stage": zero_stage}, where) for loss, where in placed]


ALWAYS = [
    *(*grid("fp32", 2), *grid("bf16", 3, IN_ZERO_3)),
    ({"loss": "ppo", "dtype": "bf16", "zero_stage": 0}, "gradient"),
    ({"loss": "gspo", "zero_stage": 2}, "log_probs"),
    ({"value": math.inf}, "gradient"),
]
OFFLOADED = [({"loss": "ppo", "dtype": "bf16", "zero_stage": stage, "offload": True}, "gradient") for stage in (2, 3)]
GRID = [*ALWAYS, *grid("fp32", 3), *grid("bf16", 2), *grid("bf16", 3, PLACED[3:]), *OFFLOADED]


@pytest.mark.parametrize("case, where", cells(GRID, ALWAYS), ids=str)
def test_a_nan_or_an_infinity_on_one_rank_changes_nothing_on_either(two_ranks, random_model, case, where):
    # DisCO's scores are log-probabilities: known from no plan, exchanged in the first step too
    objective = "disco_logl" if where == "scores" else "real"
    case = {"value": math.nan, **case}
    for report in two_ranks("poisoned", model=random_model, where=where, objective=objective, **case):
        assert set(report["compared"]) >= {"master", "exp_avg", "exp_avg_sq"}
        assert report["error"].startswith(PLACES[where])
        assert "optimizer step 3: stopped before the weights changed" in report["error"]
        assert report["changed"] == []
        assert report["steps"] == 0
