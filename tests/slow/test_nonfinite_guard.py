"""A nan on one of two ranks stops both before a weight changes, in REAL's trainer and in upstream's."""

import math

import pytest
from every import cells

PLACES = {"loss": "the loss is", "log_probs": "the loss is", "gradient": "a gradient is", "scores": "the scores of"}


PLACED = [(loss, where) for loss in ("real", "ppo") for where in ("loss", "log_probs", "gradient")]
GRID = [
    ({"loss": loss, "dtype": dtype, "zero_stage": stage}, where)
    for loss, where in (*PLACED, ("real", "scores"))
    for dtype in ("bf16", "fp32")
    for stage in (2, 3)
]
IN_ZERO_3 = (("real", "gradient"), ("real", "scores"), ("ppo", "loss"))
ALWAYS = [
    (case, where)
    for case, where in GRID
    if (case["dtype"], case["zero_stage"]) == ("fp32", 2)
    or ((case["dtype"], case["zero_stage"]) == ("bf16", 3) and (case["loss"], where) in IN_ZERO_3)
]
OTHERS = ({"zero_stage": 2, "offload": True}, {"zero_stage": 3, "offload": True}, {"zero_stage": 0})
GRID += [({"loss": "ppo", "dtype": "bf16", **case}, where) for case in OTHERS for where in ("loss", "gradient")]
GRID += [({"loss": "gspo", "zero_stage": 2}, "log_probs"), *(({"value": math.inf}, at) for at in ("loss", "gradient"))]
ALWAYS += [GRID[-5], GRID[-3], GRID[-1]]


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
