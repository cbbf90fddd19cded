"""The state of a model and its optimiser as named tensors, and back.

In: a model, an optimiser, tensors by name. Out: the same state in the other form. A weight goes by its
parameter's name, a piece of the optimiser's state as `<parameter name>/<state name>`. Deterministic: the same
bits go both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from schemas.errors import CorruptDataError


@dataclass(frozen=True)
class NamedState:
    """What training has changed so far, as tensors by name.

    Attributes:
        weights: by parameter name.
        optimiser: its state as `<parameter name>/<state name>`.
    """

    weights: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]


def name_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> NamedState:
    """The state as it is now: the tensors themselves, which the next step changes."""
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors = {}
    for parameter_name, parameter in model.named_parameters():
        for state_name, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{parameter_name}/{state_name}"] = torch.as_tensor(value)
    return NamedState(weights, tensors)


def copy_weights(model: nn.Module, tensors: dict[str, Tensor], path: str) -> None:
    """Overwrite a model's weights, in place.

    Raises:
        CorruptDataError: they are those of another model; the message names `path`.
    """
    parameters = dict(model.named_parameters())
    if parameters.keys() != tensors.keys():
        odd = sorted(parameters.keys() ^ tensors.keys())
        raise CorruptDataError(
            f"{path} is of another model: it differs in {len(odd)} weights, first {odd[0]}."
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                raise CorruptDataError(
                    f"{path}: {name} has shape {tuple(tensors[name].shape)}; this model expects "
                    f"{tuple(parameter.shape)}."
                )
            parameter.copy_(tensors[name])


def restore_optimiser(
    model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], path: str
) -> None:
    """Put the optimiser's state back, in place.

    Raises:
        CorruptDataError: a tensor belongs to no parameter, or has another shape; the message names `path`.
    """
    parameters = dict(model.named_parameters())
    optimiser.state.clear()
    for name, tensor in tensors.items():
        parameter_name, _, state_name = name.rpartition("/")
        parameter = parameters.get(parameter_name)
        if parameter is None or (tensor.ndim > 0 and tensor.shape != parameter.shape):
            raise CorruptDataError(f"{path}: {name} {tuple(tensor.shape)} fits no parameter of this model.")
        optimiser.state[parameter][state_name] = _place_state(tensor, parameter, optimiser)


def _place_state(tensor: Tensor, parameter: Tensor, optimiser: torch.optim.Optimizer) -> Tensor:
    # AdamW keeps its step count on the CPU, unless it is fused or captured in a CUDA graph.
    on_device = tensor.ndim > 0 or optimiser.defaults.get("fused") or optimiser.defaults.get("capturable")
    return tensor.to(parameter.device) if on_device else tensor.clone()
