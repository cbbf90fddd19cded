"""LAMB: Adam's update, scaled layer by layer to the size of the weights it changes.

In: parameters with gradients. Out: the parameters changed in place, and a state of three tensors each
(`step`, `exp_avg`, `exp_avg_sq`, named as AdamW's). Deterministic: arithmetic on the gradients alone.
Nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lamb(Optimizer):
    """LAMB with bias correction (You et al. 2020, "Large batch optimization for deep learning", algorithm 2).

    For a parameter x with gradient g, at update t:

        m = beta1 m + (1 - beta1) g          m' = m / (1 - beta1^t)
        v = beta2 v + (1 - beta2) g^2        v' = v / (1 - beta2^t)
        u = m' / (sqrt(v') + eps) + weight_decay x
        x = x - learning_rate (|x| / |u|) u

    Norms are Euclidean, over a whole parameter: query, key and value each have their own, as in Google's
    code. Where the paper leaves a choice, it is that of NVIDIA's `FusedLAMB`: the norm of the weights isn't
    bounded (phi is the identity), the trust ratio |x| / |u| is 1 where either norm is 0, and biases and layer
    norms have neither decay nor a trust ratio. The joint norm of all gradients is clipped before, by the
    caller.

    Args:
        groups: as of any optimiser of torch; a group may set any value below for itself.
        lr: the learning rate.
        betas: decay of the running mean and of the running square of the gradient.
        eps: added to the square root of the second moment.
        weight_decay: added to the update before its norm is taken.
        adapted: scale by the trust ratio; False makes the update AdamW's.
    """

    def __init__(
        self,
        groups: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        adapted: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapted": adapted}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change every parameter that has a gradient.

        Args:
            closure: not taken; there for the signature of torch.
        """
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(group, parameters)

    def _update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [self._state_of(parameter) for parameter in parameters]
        means, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        beta1, beta2 = group["betas"]
        for state in states:
            state["step"] += 1
        steps = [int(state["step"]) for state in states]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        # The one temporary copy: v', its root, then the update.
        updates = list(torch._foreach_div(squares, [1 - beta2**step for step in steps]))
        torch._foreach_sqrt_(updates)
        torch._foreach_add_(updates, group["eps"])
        torch._foreach_mul_(updates, [1 - beta1**step for step in steps])
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, means)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["adapted"]:
            torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            # Counted on the CPU, so that reading it waits for nothing.
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    weight_norms = torch.stack(list(torch._foreach_norm(parameters)))
    update_norms = torch.stack(list(torch._foreach_norm(updates)))
    has_both = (weight_norms > 0) & (update_norms > 0)
    return list(torch.where(has_both, weight_norms / update_norms, 1.0).unbind())
