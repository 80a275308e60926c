"""Check in each step that vLLM samples from the trained policy. If the two are unrelated, the run ends."""

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
    """vLLM samples from another model than the trained policy."""


class Mismatch:
    """Judges each step's mean gap, equal on every rank. After a warning it warns again once the gap has doubled."""

    def __init__(self, args: SimpleNamespace, say: Callable[[str], None]) -> None:
        self.stops = args.rollout.mismatch == "stop"
        self.say = say
        # with top_p below 1 vLLM renormalizes over the kept tokens: a probability grows by a factor up to 1/top_p
        cut = -math.log(args.rollout.top_p)
        self.warn_above = WARN_ABOVE / args.rollout.temperature + cut
        self.stop_above = STOP_ABOVE / args.rollout.temperature + cut

    def judge(self, logged: Mapping[str, float], step: int) -> None:
        """Warn if the gap in these logged numbers is more than rounding explains; raise if the models look
        unrelated."""
        if "mismatch/mean" not in logged:
            return
        mean = logged["mismatch/mean"]
        if not mean <= self.stop_above and self.stops:
            raise MismatchError(
                f"vLLM and the policy are unrelated in optimizer step {step}: log-probabilities of the sampled tokens "
                f"differ by {mean:.3g} on average, {self.warn_above:.2g} is the most that rounding explains. "
                f"{LOOK_AT}. --rollout.mismatch log never ends the run"
            )
        if mean > self.warn_above:
            self.say(
                f"warning: log-probabilities of vLLM and of the policy differ by {mean:.3g} on average in optimizer "
                f"step {step}; above {self.warn_above:.2g} it is more than rounding. {LOOK_AT}"
            )
            self.warn_above = 2 * mean
