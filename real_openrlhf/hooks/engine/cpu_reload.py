"""Reload all weights of a vLLM engine on a CPU, with what vLLM 0.29 to 0.32 forgets there.

vLLM's CPU layers multiply by packed copies of their weights. `reload_weights` packs most of them again. Two kinds of
layers would keep an old copy, and the engine would sample from it:

- A head tied to the embedding. The files have no weights for it, so vLLM loads the embedding and passes the head over.
- Experts. vLLM packs them only in a layer without a kernel, which the first load makes.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor


def take(worker: Any, name: str, weight: Tensor, last: bool) -> None:
    """Keep a sync's tensors until the last one: a packed layer cannot load a single tensor in place."""
    worker.synced = [*getattr(worker, "synced", ()), (name, weight)]
    if last:
        reload(worker.model_runner, worker.synced)
        worker.synced = []


def reload(model_runner: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    layers = list(model_runner.get_model().modules())
    for layer in layers:
        if getattr(getattr(layer, "quant_method", None), "moe_kernel", None) is not None:
            layer.quant_method.moe_kernel = None
    model_runner.reload_weights(weights_iterator=iter(weights))
    for layer in layers:
        if isinstance(layer, ParallelLMHead):
            layer.quant_method.process_weights_after_loading(layer)
