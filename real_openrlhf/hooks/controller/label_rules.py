"""Labels by a function of the user's own: a prompt's rollouts in, 1 (positive), 0 (negative) or None (ignored) out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from real_openrlhf.base.user_files import load, raised

Label = int | None
Rule = Callable[[Sequence["Rollout"]], Sequence[Label]]


@dataclass(frozen=True)
class Rollout:
    """The columns of a rollout for a rule. Rollouts without verdict or tokens are ignored and never reach the rule."""

    reward: float  # the verifier's score
    tokens: int  # of the answer
    truncated: bool  # cut at the length limit
    prompt: str
    answer: str


# Groups that a rule is tried on: mixed with a truncated answer, all right, all wrong, graded, one rollout only.
TRIALS = [
    [Rollout(reward, 20 * (place + 1), place == 3, "2+3=", f"answer {place}") for place, reward in enumerate(rewards)]
    for rewards in ((1, 0, 1, 0), (1, 1), (0, 0, 0), (0.25, 0.5, 0.75), (1,))
]


def find_rule(name: str) -> Rule:
    rule = load(name)
    if not callable(rule):
        raise ValueError(
            f"{name.rpartition(':')[2]!r} is no function. Give the name of a function (rollouts) in the file"
        )
    return rule


def apply(rule: Rule, rollouts: Sequence[Rollout]) -> list[Label]:
    """The rule's labels of a group; a ValueError if they are no labels."""
    try:
        labels = list(rule(tuple(rollouts)))  # a rule that sorts them in place would mix up the labels
    except Exception as error:
        raise ValueError(f"it raises {raised(error)}. Change it so that it takes any group") from error
    if len(labels) != len(rollouts):
        raise ValueError(f"it returns {len(labels)} labels for {len(rollouts)} rollouts. Return one for each")
    for label in labels:
        if label is not None and label not in (0, 1):
            raise ValueError(f"it returns {label!r}. Use 1 (positive), 0 (negative) or None (ignored)")
    return [None if label is None else int(label) for label in labels]


def problems(name: str, two_sides: bool) -> Iterator[str]:
    """The defect of this rule in one line, if no run can be trained with it, as if equal labels train nothing."""
    try:
        rule = find_rule(name)
        labels = [apply(rule, group) for group in TRIALS]
        if labels != [apply(rule, group) for group in TRIALS]:
            raise ValueError(
                "it labels the same rollouts differently when called again: no run could be repeated. Make chance a "
                "function of prompt and answer, as examples/labels/rules.py does"
            )
    except ValueError as error:
        yield f"--algo.real.labels {name}: {error}"
        return
    seen = [{label for label in group if label is not None} for group in labels]
    if not any(seen):
        yield f"--algo.real.labels {name}: it ignores all rollouts of {len(TRIALS)} groups. Let some count"
    elif two_sides and not any(len(sides) == 2 for sides in seen):
        yield (
            f"--algo.real.labels {name}: none of {len(TRIALS)} groups gets positives and negatives, and others train "
            "nothing. Use another rule, or an objective over groups with --algo.real.uniform_groups keep"
        )
