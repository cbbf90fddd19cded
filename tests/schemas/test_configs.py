"""Configurations check themselves once, at the edge."""

import os

import pytest
from pydantic import ValidationError

from schemas.configs import BuildConfig, IngestConfig


@pytest.mark.parametrize(
    ("max_seq_length", "masked_lm_prob", "expected"),
    [(128, 0.15, 20), (512, 0.15, 77), (100, 0.15, 15), (64, 0.15, 10), (20, 0.05, 1)],
)
def test_prediction_limit_defaults_to_googles_figures(
    max_seq_length: int, masked_lm_prob: float, expected: int
) -> None:
    config = BuildConfig(max_seq_length=max_seq_length, masked_lm_prob=masked_lm_prob)
    assert config.prediction_limit == expected


def test_prediction_limit_is_what_was_asked_for() -> None:
    assert BuildConfig(max_predictions_per_seq=7).prediction_limit == 7


def test_the_number_of_shards_is_chosen_once() -> None:
    assert BuildConfig(num_shards=3).examples_per_shard is None
    with pytest.raises(ValidationError, match="--num-shards and --examples-per-shard both decide"):
        BuildConfig(num_shards=3, examples_per_shard=1000)


def test_the_order_of_inputs_and_repeats_do_not_matter() -> None:
    assert IngestConfig(inputs=("b", "a", "b")) == IngestConfig(inputs=("a", "b"))


@pytest.mark.parametrize("field", ["inputs", "text_field", "id_field"])
def test_names_that_no_manifest_could_hold_are_refused(field: str) -> None:
    name = os.fsdecode(b"caf\xe9")
    values = {"inputs": ("a",), field: (name,) if field == "inputs" else name}
    with pytest.raises(ValidationError, match=r"holds bytes that are no UTF-8; write \? for each"):
        IngestConfig.model_validate(values)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_seq_length": 7},
        {"max_seq_length": 4096},
        {"masked_lm_prob": 0.0},
        {"masked_lm_prob": 1.0},
        {"short_seq_prob": 1.5},
        {"duplicate_factor": 0},
        {"objective": "permutation"},
        {"seed": -1},
        {"num_shards": 0},
        {"examples_per_shard": 0},
        {"no_such_option": 1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_values_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BuildConfig.model_validate(wrong)
