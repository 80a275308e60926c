"""LoRA with vLLM: send vLLM the base model's weights with the adapters merged in.

OpenRLHF sends every parameter under its name in training. With adapters these are PEFT's names and the adapters' own
matrices, which vLLM does not know (OpenRLHF issue 1349).
"""

from collections.abc import Iterator

import deepspeed
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

PEFT_PREFIX, BASE_LAYER = "base_model.model.", ".base_layer"


class SharedAdapterError(RuntimeError):
    """An adapter sits on a weight that another layer shares, so vLLM cannot have one without the other."""


def refuse_shared_weights(model: torch.nn.Module) -> None:
    """Raise if an adapted layer shares its weight, as head and embedding do in small models."""
    adapted = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    for name, layer in adapted.items():
        places = owners.get(id(getattr(layer.get_base_layer(), "weight", None)), [])
        if others := [other for other in places if not other.startswith(f"{name}.") and other != name]:
            raise SharedAdapterError(
                f"--ds.lora.target_modules: {name} shares its weight with {others[0]}, so vLLM would draw from "
                "another model than the trained one. Leave it out of the targets; all-linear does"
            )


class MergedWeights:
    """(name in the base model, weight) of every parameter, one merged weight at a time; ZeRO-3 shards are gathered."""

    def __init__(self, model: PeftModel) -> None:
        refuse_shared_weights(model)
        adapted = [module for module in model.modules() if isinstance(module, LoraLayer)]
        # PEFT wraps a layer of experts once for each of its tensors, and names the tensor.
        self.layers = {
            getattr(layer.get_base_layer(), getattr(layer, "parameter_name", "weight")): layer for layer in adapted
        }
        own = {parameter for layer in adapted for parameter in layer.parameters()}
        base = {parameter for layer in adapted for parameter in layer.get_base_layer().parameters()}
        adapters = own - base
        self.parameters = [(name, p) for name, p in model.named_parameters() if p not in adapters]

    def __len__(self) -> int:
        return len(self.parameters)

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.parameters:
            layer = self.layers.get(parameter)
            weight = parameter if layer is None else _merged(layer, parameter)
            yield name.removeprefix(PEFT_PREFIX).replace(BASE_LAYER, ""), weight


@torch.no_grad()
def _merged(layer: LoraLayer, parameter: torch.Tensor) -> torch.Tensor:
    """The weight plus its adapters, summed in fp32 so that it is rounded once; the training weights do not change."""
    with deepspeed.zero.GatheredParameters(list(layer.parameters()), enabled=hasattr(parameter, "ds_id")):
        weight = parameter.data.float()
        for adapter in layer.active_adapters:
            weight = weight + layer.get_delta_weight(adapter).float()
    merged = weight.to(parameter.dtype)
    setattr(merged, "ds_shape", merged.shape)  # noqa: B010  OpenRLHF reads `ds_shape` under ZeRO-3
    return merged
