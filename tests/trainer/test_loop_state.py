from __future__ import annotations

import dataclasses

import pytest

from trainer.loop_state import LoopState
from trainer.step_result import StepResult

RESULT = StepResult(
    num_examples=4,
    num_tokens=50,
    sum_squared_lengths=700,
    num_masked_tokens=8,
    num_labelled=4,
    num_stop_wishes=0,
    masked_lm_loss=3.0,
    next_sentence_loss=0.5,
    num_masked_correct=2,
    num_next_sentence_correct=3,
    gradient_norm=2.0,
    is_skipped=False,
)


def test_a_window_gives_means_of_losses_and_shares_of_all_its_tokens_and_pairs() -> None:
    state = LoopState()
    state.add(RESULT)
    state.add(
        dataclasses.replace(
            RESULT, num_masked_tokens=24, num_masked_correct=10, masked_lm_loss=2.0, gradient_norm=1.0
        )
    )
    assert state.close_window() == {
        "loss": 3.0,
        "masked_lm_loss": 2.5,
        "masked_lm_accuracy": 12 / 32,
        "next_sentence_loss": 0.5,
        "next_sentence_accuracy": 6 / 8,
        "gradient_norm": 1.5,
    }
    assert (state.num_examples, state.num_tokens, state.num_masked_tokens) == (8, 100, 32)
    assert state.sum_squared_lengths == 1400


def test_what_was_skipped_is_counted_as_seen_and_leaves_the_means_alone() -> None:
    state = LoopState()
    state.add(RESULT)
    state.add(dataclasses.replace(RESULT, masked_lm_loss=float("nan"), is_skipped=True))
    assert state.close_window()["masked_lm_loss"] == 3.0
    assert (state.num_skipped_steps, state.num_tokens) == (1, 100)


def test_a_mean_over_nothing_is_null() -> None:
    state = LoopState()
    state.add(dataclasses.replace(RESULT, is_skipped=True))
    assert set(state.close_window().values()) == {None}
    state.add(
        dataclasses.replace(RESULT, num_labelled=0, num_next_sentence_correct=0, next_sentence_loss=0.0)
    )
    metrics = state.close_window()
    assert (metrics["next_sentence_loss"], metrics["next_sentence_accuracy"]) == (None, None)
    assert metrics["loss"] == 3.0


def test_the_state_comes_back_from_json_to_the_last_bit() -> None:
    state = LoopState(seconds=0.1 + 0.2)
    state.add(dataclasses.replace(RESULT, masked_lm_loss=1 / 3))
    assert LoopState.model_validate_json(state.model_dump_json()) == state
    assert LoopState.model_validate_json(state.model_dump_json()).window.masked_lm_loss == pytest.approx(
        1 / 3, rel=0, abs=0
    )
