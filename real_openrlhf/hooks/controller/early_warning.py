"""A step that takes the policy far from the one that drew its rollouts is told: most runs that do so collapse.

Found and counted in docs/results.md, "What says a collapse beforehand?". It sees all updates of a step but the last.
"""

from collections.abc import Mapping

FAR = 0.23  # nats a token, the mean of a step


class EarlyWarning:
    """Once a run; a resumed run has been told what its log says."""

    def __init__(self) -> None:
        self.told = False

    def see(self, values: Mapping[str, float]) -> str | None:
        far = values.get("ppo_kl", 0)
        if self.told or not far > FAR:
            return None
        self.told = True
        return (
            f"within this step the policy went {far:.2f} nats a token away from the one that drew its rollouts. Of "
            f"the runs in docs/results.md that went beyond {FAR} most collapsed. A lower --actor.adam.lr or fewer "
            "updates a step (a larger --train.batch_size) keep it nearer"
        )
