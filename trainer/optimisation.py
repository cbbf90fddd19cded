"""AdamW as BERT uses it or LAMB, the learning-rate schedule, and clipping.

In: a model and numbers. Out: an optimiser, and pure functions of the step. Deterministic: the learning rate
is arithmetic on the step, so that a resumed run needs no scheduler state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from trainer.config import OptimizerName
from trainer.lamb import Lamb


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    kind: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
) -> Optimizer:
    """AdamW with decoupled weight decay (Loshchilov and Hutter 2019), or LAMB (see `trainer.lamb`).

    The defaults are those of Devlin et al. 2018, A.2. Unlike in Google's script, the moments are corrected
    for their start at zero, as in the paper of Adam. AdamW runs as one fused kernel where torch has it.

    Args:
        model: all its parameters that require a gradient are taken.
        learning_rate: the peak; `set_learning_rate` sets the one of a step.
        kind: `adamw`, or `lamb` for batches of thousands of examples.
        weight_decay: for weight matrices and embeddings; biases and layer norms are never decayed.
        betas: decay of the running mean and of the running square of the gradient.
        eps: added to the square root of the second moment.
    """
    groups = parameter_groups(model, weight_decay)
    if kind == "lamb":
        adapted, not_adapted = groups
        groups = [{**adapted, "adapted": True}, {**not_adapted, "adapted": False}]
        return Lamb(groups, lr=learning_rate, betas=betas, eps=eps)
    return AdamW(groups, lr=learning_rate, betas=betas, eps=eps, fused=_can_fuse(model))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two groups, each in the order of the model: what is decayed, and biases and layer norms, which aren't.

    The second are exactly the parameters of one dimension.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def learning_rate_at(step: int, *, peak: float, num_warmup_steps: int, num_steps: int) -> float:
    """Linear warm-up to the peak and linear decay towards 0 (Devlin et al. 2018, A.2).

    Args:
        step: updates made before this one: 0 for the first.
        peak: reached by update number `num_warmup_steps`.
        num_warmup_steps: updates of the warm-up; the first already moves.
        num_steps: updates in all; one after them would have learning rate 0.

    Returns:
        The learning rate of this update, above 0 for every `step` below `num_steps`.
    """
    if step < num_warmup_steps:
        return peak * (step + 1) / num_warmup_steps
    return peak * max(0, num_steps - step) / max(1, num_steps - num_warmup_steps)


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def clip_gradients(model: nn.Module, max_norm: float) -> Tensor:
    """Scale all gradients so that their joint Euclidean norm is at most `max_norm`, in place.

    Returns:
        The norm before: float32 scalar; not finite where a gradient isn't (then the update must be left out
        or the run ended: clipping can't mend it).
    """
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def _can_fuse(model: nn.Module) -> bool:
    devices = {parameter.device.type for parameter in model.parameters()}
    return devices <= {"cpu"} or (devices <= {"cuda"} and torch.cuda.is_available())
