"""CISPO and REINFORCE: the gradient of each token against hand-written weights, and against GRPO's where they meet."""

import math

import pytest
import torch

from real_openrlhf.algorithm.metrics import token_gradients
from real_openrlhf.algorithm.token_weights import TOKEN_WEIGHTS, clipped, weighted_loss

RATIOS = [0.05, 0.5, 0.9, 1.0, 1.1, 1.5, 7.0]
ADVANTAGES = [1.3, -0.7]


def gradients(loss) -> torch.Tensor:
    """(advantages, ratios): d loss(new, old, advantages) / d new, where each token is of one of the ratios."""
    old = torch.full((len(ADVANTAGES), len(RATIOS)), -1.5, dtype=torch.float64)
    new = (old + torch.tensor(RATIOS, dtype=torch.float64).log()).requires_grad_()
    advantages = torch.tensor(ADVANTAGES, dtype=torch.float64)[:, None].expand_as(old)
    return torch.autograd.grad(loss(new, old, advantages).sum(), new)[0]


def surrogate(clip):
    """GRPO's, as its paper has it: the smaller of the ratio's and the clipped ratio's product."""

    def loss(new, old, advantages):
        ratio = (new - old).exp()
        return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip[0], 1 + clip[1]) * advantages)

    return loss


def of(name, clip):
    return lambda *columns: weighted_loss(name, *columns, clip)


@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (0.2, 0.28), (10.0, 0.2)])
def test_cispo_weighs_by_the_clipped_ratio_and_lets_every_token_train(low, high):
    weights = [min(max(ratio, 1 - low), 1 + high) for ratio in RATIOS]
    expected = [[-advantage * weight for weight in weights] for advantage in ADVANTAGES]
    found = gradients(of("cispo", (low, high)))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
    assert (found != 0).all()  # where GRPO's surrogate has tokens without a gradient
    assert (gradients(surrogate((0.2, 0.28))) == 0).any()


def test_reinforce_is_grpo_without_clipping():
    found = gradients(of("reinforce", (0.2, 0.2)))
    expected = [[-advantage * ratio for ratio in RATIOS] for advantage in ADVANTAGES]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(found, gradients(surrogate((1.0, math.inf))), rtol=1e-12, atol=0)


def test_a_ratio_that_overflows_is_bounded_as_openrlhf_bounds_its_own():
    new, old = torch.tensor([0.0], requires_grad=True), torch.tensor([-800.0])
    (gradient,) = torch.autograd.grad(weighted_loss("reinforce", new, old, torch.ones(1), (0, 0)).sum(), new)
    assert gradient == pytest.approx(-math.exp(20))


def test_clipped_tokens_are_those_of_another_weight():
    log_ratio = torch.tensor(RATIOS, dtype=torch.float64).log()
    assert clipped("cispo", log_ratio, (0.2, 0.28)).tolist() == [True, True, False, False, False, True, True]
    assert clipped("cispo", log_ratio, (1.0, 4.0)).tolist() == [False] * 6 + [True]
    assert not clipped("reinforce", log_ratio, (0.2, 0.28)).any()


@pytest.mark.parametrize("name", TOKEN_WEIGHTS)
def test_table_1_has_the_magnitudes_that_the_loss_trains_with(name):
    clip = (0.2, 0.28)
    expected = gradients(of(name, clip)) / torch.tensor(ADVANTAGES, dtype=torch.float64)[:, None]
    old = torch.full((2, len(RATIOS)), -1.5, dtype=torch.float64)
    new = old + torch.tensor(RATIOS, dtype=torch.float64).log()
    columns = (new, old, torch.ones_like(old), torch.tensor([1, 0]))
    torch.testing.assert_close(token_gradients(name, *columns, clip=clip), -expected, rtol=1e-12, atol=0)
