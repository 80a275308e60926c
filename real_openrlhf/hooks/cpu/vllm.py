"""What vLLM 0.29 to 0.32 lacks on a CPU: the policy's weights over gloo, all of them loaded again, whole prompts."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor


class GlooBroadcastGroup:
    """PyNccl's broadcast over gloo, between the policy and an engine."""

    def __init__(self, host: str, port: int, rank: int, world_size: int) -> None:
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group

        self.group = stateless_init_torch_distributed_process_group(host, port, rank, world_size, "gloo")

    def broadcast(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        self.group.broadcast(tensor, src).wait()


def take(worker: Any, name: str, weight: Tensor, last: bool) -> None:
    """Keep a sync's tensors until the last one: a packed layer cannot load a single tensor in place."""
    worker.synced = [*getattr(worker, "synced", ()), (name, weight)]
    if last:
        reload(worker.model_runner, worker.synced)
        worker.synced = []


def reload(model_runner: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """vLLM's CPU layers multiply by packed copies of their weights, and `reload_weights` packs most of them again.

    Two kinds of layers would keep an old copy, and the engine would sample from it:

    - A head tied to the embedding. The files lack it: vLLM loads the embedding and passes the head over.
    - Experts. vLLM packs them only in a layer without a kernel, which the first load makes.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    layers = list(model_runner.get_model().modules())
    for layer in layers:
        if getattr(getattr(layer, "quant_method", None), "moe_kernel", None) is not None:
            layer.quant_method.moe_kernel = None
    model_runner.reload_weights(weights_iterator=iter(weights))
    for layer in layers:
        if isinstance(layer, ParallelLMHead):
            layer.quant_method.process_weights_after_loading(layer)


def prefill_whole_prompts(platform: Any) -> None:
    """Cut no prompt into chunks.

    vLLM cuts a prompt that exceeds the tokens left in a step, and then rewinds the generator of a request
    with a seed, which a CPU generator cannot do (`CPU Generator does not use offset`): the engine dies. This can go
    when vLLM's CPU runner restores a generator's state when it drops a number.
    """
    check = platform.check_and_update_config

    def check_and_update_config(vllm_config: Any) -> None:
        check(vllm_config)
        scheduler, model = vllm_config.scheduler_config, vllm_config.model_config
        scheduler.enable_chunked_prefill = False
        scheduler.max_num_batched_tokens = max(scheduler.max_num_batched_tokens, model.max_model_len)

    platform.check_and_update_config = staticmethod(check_and_update_config)
