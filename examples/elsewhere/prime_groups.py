"""REAL as an algorithm of prime-rl, exact for one optimizer step per rollout batch; docs/change/elsewhere.md."""

from prime_rl.orchestrator.algo.base import Algorithm, iter_trainable_traces
from prime_rl.orchestrator.algo.routing import assign_advantages

from real_openrlhf import group_weights

USUAL = 1000  # tokens of a usual answer: the loss keeps about the size of prime-rl's own


class RealAlgorithm(Algorithm):
    async def score_group(self, episodes):
        traces = [trace for _, trace in iter_trainable_traces(episodes)]
        weights = group_weights([trace.reward for trace in traces], [0] * len(traces), objective="real")
        for trace, weight in zip(traces, weights.tolist(), strict=True):
            tokens = sum(sum(node.mask) for node in trace.nodes)
            assign_advantages(trace, [USUAL * weight / tokens] * tokens)
