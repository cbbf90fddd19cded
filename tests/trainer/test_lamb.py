"""LAMB against a first step by hand and against a plain one in Python's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trainer.lamb import Lamb


class PlainLamb:
    """Algorithm 2 of You et al. 2020 for one parameter, written out number by number."""

    def __init__(self, weights: Sequence[float], betas: tuple[float, float], eps: float) -> None:
        self.weights = list(weights)
        self.means = [0.0] * len(weights)
        self.squares = [0.0] * len(weights)
        self.steps = 0
        self.betas = betas
        self.eps = eps

    def step(self, gradient: Sequence[float], rate: float, decay: float, *, adapted: bool) -> None:
        beta1, beta2 = self.betas
        self.steps += 1
        update = []
        for index, slope in enumerate(gradient):
            self.means[index] = beta1 * self.means[index] + (1 - beta1) * slope
            self.squares[index] = beta2 * self.squares[index] + (1 - beta2) * slope**2
            mean = self.means[index] / (1 - beta1**self.steps)
            square = self.squares[index] / (1 - beta2**self.steps)
            update.append(mean / (math.sqrt(square) + self.eps) + decay * self.weights[index])
        weight_norm, update_norm = math.hypot(*self.weights), math.hypot(*update)
        ratio = weight_norm / update_norm if adapted and weight_norm > 0 and update_norm > 0 else 1.0
        self.weights = [w - rate * ratio * u for w, u in zip(self.weights, update, strict=True)]


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_first_step_by_hand() -> None:
    """Adam's first update is the sign of the gradient; (3, 4) has norm 5.

    With decay 0.5 the update is (1 + 1.5, -1 + 2) = (2.5, 1), whose norm is sqrt(7.25).
    """
    weights = parameter(3.0, 4.0)
    weights.grad = torch.tensor([0.25, -8.0], dtype=torch.float64)
    Lamb([weights], lr=0.1, eps=0.0, weight_decay=0.5).step()
    scale = 0.1 * 5 / math.sqrt(7.25)
    assert weights.tolist() == pytest.approx([3 - scale * 2.5, 4 - scale * 1.0], abs=1e-12)


def test_two_steps_by_hand() -> None:
    """One weight of 2, gradients 1 and -3, betas 1/2 and 3/4, no decay.

    Step 1: m' = 1, v' = 1, update 1, ratio 2: 2 - 0.1 * 2 = 1.8.
    Step 2: m = 0.5 / 2 - 3 / 2 = -1.25, m' = -1.25 / 0.75; v = 0.25 * 0.75 + 9 / 4 = 2.4375,
    v' = 2.4375 / 0.4375 = 39 / 7. The ratio makes the update as large as the weight: 1.8 + 0.1 * 1.8 = 1.98.
    Without it: 2 - 0.1 * 1 = 1.9, then 1.9 + 0.1 * (5 / 3) / sqrt(39 / 7).
    """
    adapted, plain = parameter(2.0), parameter(2.0)
    values = {"lr": 0.1, "betas": (0.5, 0.75), "eps": 0.0, "weight_decay": 0.0}
    optimiser = Lamb([{"params": [adapted]}, {"params": [plain], "adapted": False}], **values)  # type: ignore[arg-type]
    for slope in (1.0, -3.0):
        for weight in (adapted, plain):
            weight.grad = torch.tensor([slope], dtype=torch.float64)
        optimiser.step()
    assert adapted.item() == pytest.approx(1.98, abs=1e-12)
    assert plain.item() == pytest.approx(1.9 + 0.1 * (5 / 3) / math.sqrt(39 / 7), abs=1e-12)


numbers = st.floats(-10, 10, allow_nan=False).map(lambda value: round(value, 3))


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(numbers, min_size=1, max_size=4),
    other=st.lists(numbers, min_size=1, max_size=3),
    draw=st.randoms(use_true_random=False),
    decay=st.sampled_from([0.0, 0.01, 0.7]),
)
def test_equals_a_plain_one(weights: list[float], other: list[float], draw: object, decay: float) -> None:
    """Several parameters at once, as the one-parameter version does them one by one."""
    betas, eps, rate = (0.9, 0.98), 1e-6, 0.05
    matrix, bias = parameter(*weights), parameter(*other)
    groups = [{"params": [matrix, second := parameter(*other[::-1])]}, {"params": [bias], "adapted": False}]
    optimiser = Lamb(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay)
    plain = [(p, PlainLamb(p.tolist(), betas, eps)) for p in (matrix, second, bias)]
    for _ in range(5):
        for ours, theirs in plain:
            gradient = [draw.choice([-2.0, -0.5, 0.0, 1e-3, 3.0]) for _ in theirs.weights]  # type: ignore[attr-defined]
            ours.grad = torch.tensor(gradient, dtype=torch.float64)
            theirs.step(gradient, rate, decay, adapted=ours is not bias)
        optimiser.step()
        for ours, theirs in plain:
            assert ours.tolist() == pytest.approx(theirs.weights, abs=1e-12, rel=1e-12)


def test_a_norm_of_zero_leaves_the_update_as_it_is() -> None:
    """Weights of 0 would never move if the ratio were theirs; a gradient of 0 must not be divided by."""
    zeros, still = parameter(0.0, 0.0), parameter(1.0, 2.0)
    zeros.grad = torch.tensor([1.0, -1.0], dtype=torch.float64)
    still.grad = torch.zeros(2, dtype=torch.float64)
    Lamb([zeros, still], lr=0.1, eps=1e-20, weight_decay=0.0).step()
    assert zeros.tolist() == pytest.approx([-0.1, 0.1], abs=1e-12)
    assert still.tolist() == [1.0, 2.0]


def test_the_update_is_as_large_as_the_weights_say() -> None:
    """|change| = rate * |weights| for every parameter, however large its gradient is."""
    weights = [parameter(1.0, 2.0, 2.0), parameter(30.0, 40.0)]
    before = [weight.detach().clone() for weight in weights]
    for weight, size in zip(weights, (1e-4, 1e4), strict=True):
        weight.grad = torch.full_like(weight, size)
    Lamb(weights, lr=0.01).step()
    changes: list[Tensor] = [old - new.detach() for old, new in zip(before, weights, strict=True)]
    assert [float(change.norm()) for change in changes] == pytest.approx([0.03, 0.5], abs=1e-12)


def test_a_parameter_without_a_gradient_stays() -> None:
    moved, still = parameter(1.0), parameter(1.0)
    moved.grad = torch.ones(1, dtype=torch.float64)
    optimiser = Lamb([moved, still], lr=0.1)
    optimiser.step()
    assert (moved.item() < 1.0, still.item()) == (True, 1.0)
    assert set(optimiser.state) == {moved}


@pytest.mark.parametrize("num_before", [0, 2], ids=["at once", "after two updates"])
def test_an_update_that_is_left_out_leaves_no_trace(num_before: int) -> None:
    """As if it had never come: not even the correction for the start at zero counts it."""
    skipping, plain = (
        [parameter(3.0, 4.0), parameter(0.5, 0.0)],
        [parameter(3.0, 4.0), parameter(0.5, 0.0)],
    )
    optimisers = [
        Lamb([{"params": [a]}, {"params": [b], "adapted": False}], lr=0.1) for a, b in (skipping, plain)
    ]

    def update(which: int, slope: float) -> None:
        for weight in (skipping, plain)[which]:
            weight.grad = torch.tensor([slope, -2 * slope], dtype=torch.float64)
        optimisers[which].step()

    for slope in (1.0, 0.25)[:num_before]:
        update(0, slope)
        update(1, slope)
    optimisers[0].found_inf = torch.ones(())  # type: ignore[attr-defined]
    update(0, math.nan)
    update(0, math.inf)
    assert [weight.tolist() for weight in skipping] == [weight.tolist() for weight in plain]
    optimisers[0].found_inf = torch.zeros(())  # type: ignore[attr-defined]
    update(0, -0.5)
    update(1, -0.5)
    assert [weight.tolist() for weight in skipping] == [weight.tolist() for weight in plain]
    for ours, theirs in zip(skipping, plain, strict=True):
        for name, value in optimisers[1].state[theirs].items():
            assert torch.equal(optimisers[0].state[ours][name], value)


def test_nothing_waits_for_the_device() -> None:
    # A tensor of the meta device has no values: whatever would wait for one fails.
    weights = nn.Parameter(torch.ones(2, device="meta"))
    weights.grad = torch.ones(2, device="meta")
    optimiser = Lamb([weights], lr=0.1)
    optimiser.found_inf = torch.ones((), device="meta")  # type: ignore[attr-defined]
    optimiser.step()
    assert optimiser.state[weights]["step"].is_meta
