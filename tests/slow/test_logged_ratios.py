"""The paper's Table 1 of upstream's own trainer is that of all ranks' tokens."""

import pytest


@pytest.mark.parametrize("loss", ["ppo", "gspo", "cispo"])
def test_each_rank_logs_the_tokens_of_both(two_ranks, random_model, tmp_path, loss):
    reports = two_ranks(
        "logged_ratios", model=random_model, loss=loss, groups_per_step=4, zero_stage=2, run_dir=str(tmp_path)
    )
    assert reports[0]["status"] == reports[1]["status"]
    for side, score in (("pos", 1.0), ("neg", 0.0)):
        same, smaller = (report["tokens"][score] for report in reports)  # the ratio is 1 on the first rank, else 1/e
        share = {name: reports[0]["status"][f"ratio/{side}/{name}/share"] for name in ("below", "low", "high")}
        assert same and smaller
        assert share["below"] == pytest.approx(100 * smaller / (same + smaller))
        assert share["low"] + share["high"] == pytest.approx(100 * same / (same + smaller))


def test_without_a_run_dir_nothing_is_added(two_ranks, random_model):
    for report in two_ranks("logged_ratios", model=random_model, loss="ppo", groups_per_step=4, zero_stage=2):
        assert report["status"] == {}
