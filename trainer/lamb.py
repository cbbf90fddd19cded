"""LAMB: Adam's update, scaled layer by layer to the size of the weights it changes.

In: parameters with gradients. Out: the parameters changed in place, and a state of three tensors each
(`step`, `exp_avg`, `exp_avg_sq`, named as AdamW's). Deterministic: arithmetic on the gradients alone.
Nothing waits for the device, not even for whether the update is to be left out.
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

    Like torch's fused optimisers it reads `found_inf`, where the caller has set it: a float scalar on the
    device, above 0 where the gradients are not finite. Then weights, moments and step counts stay as they
    are.

    Args:
        groups: as of any optimiser of torch; a group may set any value below for itself.
        lr: the learning rate.
        betas: decay of the running mean and of the running square of the gradient.
        eps: added to the square root of the second moment.
        weight_decay: added to the update before its norm is taken.
        adapted: scale by the trust ratio; False makes the update AdamW's.
    """

    _step_supports_amp_scaling = True

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
        # As torch names it: step counts lie on the device, where they don't grow if an update is left out.
        super().__init__(groups, {**defaults, "capturable": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change every parameter that has a gradient.

        Args:
            closure: not taken; there for the signature of torch.
        """
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                none = torch.zeros((), device=parameters[0].device)
                self._update(group, parameters, (none if found_inf is None else found_inf) > 0)

    def _update(self, group: dict[str, Any], parameters: list[Tensor], is_bad: Tensor) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [self._state_of(parameter) for parameter in parameters]
        means, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        counts = [state["step"] for state in states]
        beta1, beta2 = group["betas"]
        # Of an update that is left out nothing is added to the moments, and they don't decay.
        is_good = (~is_bad).to(means[0].dtype)
        decay1, decay2 = 1 - is_good * (1 - beta1), 1 - is_good * (1 - beta2)
        for gradient in gradients:
            gradient.masked_fill_(is_bad, 0.0)
        torch._foreach_mul_(means, decay1)
        torch._foreach_add_(means, gradients, alpha=1 - beta1)
        torch._foreach_mul_(squares, decay2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        torch._foreach_add_(counts, [is_good.float()] * len(counts))
        correction1, correction2 = _corrections(counts, beta1), _corrections(counts, beta2)
        # The one temporary copy: v', its root, then the update.
        updates = list(torch._foreach_div(squares, correction2))
        torch._foreach_sqrt_(updates)
        torch._foreach_add_(updates, group["eps"])
        torch._foreach_mul_(updates, correction1)
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, means)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["adapted"]:
            torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_mul_(updates, is_good)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def _corrections(counts: list[Tensor], beta: float) -> list[Tensor]:
    """1 - beta^t for each parameter, never 0: where all updates were left out, t is taken for 1."""
    # In float64: a small difference.
    updates = torch.stack(counts).double().clamp(min=1)
    return list((1 - beta**updates).unbind())


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    weight_norms = torch.stack(list(torch._foreach_norm(parameters)))
    update_norms = torch.stack(list(torch._foreach_norm(updates)))
    has_both = (weight_norms > 0) & (update_norms > 0)
    return list(torch.where(has_both, weight_norms / update_norms, 1.0).unbind())
