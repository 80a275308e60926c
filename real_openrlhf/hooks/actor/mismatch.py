"""Is vLLM the policy that is trained? Each step answers; a step in which the two are unrelated ends the run."""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace

from real_openrlhf.algorithm.metrics import STOP_ABOVE, WARN_ABOVE

LOOK_AT = (
    "Look at the weight sync (with LoRA: are the adapters in it?), at whether --actor.model_name_or_path and the "
    "checkpoint are the same model, and at what changes the policy's own numbers: --ds.packing_samples, "
    "--ds.attn_implementation, --ds.logit_free"
)


class MismatchError(RuntimeError):
    """vLLM draws from another model than the one that is trained."""


class Mismatch:
    """Judges each step's gap, the same on every rank; a warning is repeated when the gap has doubled since."""

    def __init__(self, args: SimpleNamespace, say: Callable[[str], None]) -> None:
        self.stops = args.rollout.mismatch == "stop"
        self.say = say
        # with top_p below 1 vLLM's probabilities are of what is kept: each is up to 1/top_p larger
        cut = -math.log(args.rollout.top_p)
        self.warn_above = WARN_ABOVE / args.rollout.temperature + cut
        self.stop_above = STOP_ABOVE / args.rollout.temperature + cut

    def judge(self, found: Mapping[str, float], step: int) -> None:
        """Warn of a gap in these logged numbers that rounding does not explain; raise if it says that the models are
        unrelated."""
        if "mismatch/mean" not in found:
            return
        mean = found["mismatch/mean"]
        if not mean <= self.stop_above and self.stops:
            raise MismatchError(
                f"vLLM and the policy are unrelated in optimizer step {step}: log-probabilities of the sampled tokens "
                f"differ by {mean:.3g} on average, {self.warn_above:.2g} is what the number format explains. "
                f"{LOOK_AT}. --rollout.mismatch log never ends the run"
            )
        if mean > self.warn_above:
            self.say(
                f"warning: log-probabilities of vLLM and of the policy differ by {mean:.3g} on average in optimizer "
                f"step {step}; above {self.warn_above:.2g} it is more than rounding. {LOOK_AT}"
            )
            self.warn_above = 2 * mean
