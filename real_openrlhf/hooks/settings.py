"""What a run trains with, from its arguments: the controller and every rank make the same."""

from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import given_settings
from real_openrlhf.algorithm.objective import ObjectiveSettings


def loss_settings(args: SimpleNamespace) -> ObjectiveSettings | None:
    """An objective over the scores of a prompt's rollouts, or a loss of each rollout's tokens in the user's file. None
    for OpenRLHF's own losses."""
    real = args.algo.real
    ours = args.actor.policy_loss_type == "real"
    return ObjectiveSettings(real.objective, real.uniform_groups, given_settings(real)) if ours else None


def objective_settings(args: SimpleNamespace) -> ObjectiveSettings | None:
    """The objective over scores; None for a loss of tokens."""
    settings = loss_settings(args)
    return None if settings is None or settings.objective.of_tokens else settings
