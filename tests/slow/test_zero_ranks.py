"""Two ZeRO ranks train as one does: the same seed and data give the same losses and gradient norms.

float32 shows it to rounding, at a rate at which the policy moves. bf16 does so only while the updates are as small as the
paper's: at larger rates its own rounding decides, and one rank with half the micro-batch differs from one rank as much
as two ranks do.
"""

import pytest

STEPS = 4
# 16 rollouts: GRPO takes all of them in each of four epochs, so that a step is the same set whatever the ranks; REAL's
# plan keeps its steps anyway, two an epoch.
LAYOUT = {"ppo": {"epochs": 4, "groups_per_step": 4}, "real": {"epochs": 2, "groups_per_step": 2}}


@pytest.mark.parametrize("loss", ["ppo", "real"])
@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("dtype, rate, tolerance", [("fp32", 1e-4, 1e-5), ("bf16", 1e-6, 1e-3)])
def test_losses_and_gradient_norms_of_four_steps(
    one_rank, two_ranks, random_model, loss, zero_stage, dtype, rate, tolerance
):
    case = {"model": random_model, "loss": loss, "zero_stage": zero_stage, "dtype": dtype, "learning_rate": rate}
    (one,) = one_rank("curve", **case, **LAYOUT[loss])
    first, second = two_ranks("curve", **case, **LAYOUT[loss])
    assert first == second
    assert len(one) == STEPS
    for (loss_of_one, norm_of_one), (loss_of_two, norm_of_two) in zip(one, first, strict=True):
        assert loss_of_two == pytest.approx(loss_of_one, rel=tolerance)
        assert norm_of_two == pytest.approx(norm_of_one, rel=tolerance)
    assert one[0] != one[-1]  # it has trained
