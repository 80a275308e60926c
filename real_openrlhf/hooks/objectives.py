"""What a run trains with, from its arguments: the controller and every rank make the same."""

from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import given_settings
from real_openrlhf.algorithm.objective import ObjectiveSettings


def objectives_of(args: SimpleNamespace) -> tuple[ObjectiveSettings | None, ObjectiveSettings | None]:
    """(over the scores of a prompt's rollouts, of each rollout's tokens): at most one; none for OpenRLHF's losses."""
    real = args.algo.real
    if args.actor.policy_loss_type != "real":
        return None, None
    chosen = ObjectiveSettings(real.objective, real.uniform_groups, given_settings(real))
    return (None, chosen) if chosen.objective.of_tokens else (chosen, None)
