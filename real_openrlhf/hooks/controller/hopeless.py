"""Warn of a run that cannot learn any more, then end it: its remaining steps would waste GPU time."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

ENTROPY = 1e-4  # nats per token; below it each token is as good as certain
Values = Mapping[str, float]


class HopelessRunError(RuntimeError):
    """Ends the run; its message says what to change."""


def reasons() -> dict[str, Callable[[Values], bool]]:
    """{a step's defect and its remedy, in words: the test for it on the logged numbers}"""
    return {
        "all responses are cut: raise --data.max_len or --rollout.max_new_tokens": (
            lambda values: values.get("rollout/truncated_rate", 0) == 1
        ),
        "the reward function has no verdict on more than half of the responses: see verifier/ignored_*": (
            lambda values: values.get("rollout/ignored", 0) > 0.5
        ),
        "the policy's entropy is gone: go back to a checkpoint, with a lower --actor.adam.lr": (
            lambda values: abs(values.get("entropy_loss", 1)) < ENTROPY
        ),
        "no rollout has a weight or an advantage (prompts that are all right or all wrong): other data, or back to a "
        "checkpoint with a lower --actor.adam.lr": (lambda values: values.get("update/signal_share", 1) == 0),
    }


class HopelessCounter:
    """Counts for each reason how many steps in a row it holds. A resumed run restores the counts from its log."""

    def __init__(self, args: SimpleNamespace) -> None:
        self.limit = args.train.hopeless_steps
        self.ends_well = args.train.hopeless == "end"
        self.reasons = reasons()
        self.steps = dict.fromkeys(self.reasons, 0)

    def see(self, values: Values) -> str | None:
        """Count a logged step; return a warning, once, after half of the steps that end the run."""
        warning = None
        for reason, holds in self.reasons.items():
            self.steps[reason] = self.steps[reason] + 1 if holds(values) else 0
            if self.limit and self.steps[reason] == (self.limit + 1) // 2:
                warning = (
                    f"for {self.steps[reason]} steps {reason}. The run ends if that goes on for {self.limit} steps"
                )
        return warning

    @property
    def ends_run(self) -> bool:
        """Whether the run ends here as after its last step, so that the next run of its session can begin."""
        return self.ends_well and bool(self.limit) and max(self.steps.values()) >= self.limit

    def check(self) -> None:
        if self.ends_well:
            return
        for reason, count in self.steps.items():
            if self.limit and count >= self.limit:
                raise HopelessRunError(
                    f"this run cannot learn any more: for {count} steps {reason}. --train.hopeless_steps 0 goes on"
                )
