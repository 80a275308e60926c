"""An objective of your own, in a file of your own. From this folder:

    real-openrlhf train --algo examples/objectives/hinge.py:hinge

It is one function (scores, groups, settings) -> loss per group. A score says how far a rollout has moved from the old
policy; `groups` knows which rollouts are positive, negative or valid, and sums over each group; `settings.tau` is the
temperature. The gradient is autograd's. To give it a temperature of its own or another score, name an `Objective`.
"""

import torch

from real_openrlhf.algorithm.formulas import Objective, temperature


def hinge(scores, groups, settings):
    """Ask every score to be beyond a margin of tau on its own side of 0."""
    signed = torch.where(groups.positive, scores, -scores)
    return groups.sum(torch.relu(settings.tau - signed), groups.valid)


narrow_hinge = Objective(hinge, about="the same with a margin of 0.1", settings=temperature(0.1))
