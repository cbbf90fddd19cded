from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.model.accuracy import count_correct


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_by_hand(dtype: torch.dtype) -> None:
    logits = torch.tensor(
        [[-3.0, -1.0, -2.0], [0.5, 0.25, -7.0], [2.0, 2.0, 1.0], [-0.5, 1.0, 3.0], [9.0, 1.0, 2.0]],
        dtype=dtype,
    )
    # The fourth guess is wrong, and the fifth row has no label; of two equal scores the first one counts.
    assert count_correct(logits, torch.tensor([1, 0, 0, 1, -100])).item() == 3
    assert count_correct(logits, torch.tensor([1, 0, 1, 2, 0])).item() == 4


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 40), st.sampled_from(["f", "b"]))
def test_it_counts_as_argmax_does(seed: int, num_rows: int, num_classes: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Few values, so that many are equal; negative rows too, whose bits lie in reverse order.
    logits = torch.randint(-6, 3, (num_rows, num_classes), generator=generator) / 2
    logits = logits.to(torch.bfloat16 if kind == "b" else torch.float32)
    labels = torch.randint(0, num_classes, (num_rows,), generator=generator)
    guesses = [row.index(max(row)) for row in logits.tolist()]
    assert count_correct(logits, labels).item() == sum(
        guess == label for guess, label in zip(guesses, labels.tolist(), strict=True)
    )


def test_counting_leaves_the_gradient_alone() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    assert not count_correct(logits, torch.tensor([0, 1])).requires_grad
