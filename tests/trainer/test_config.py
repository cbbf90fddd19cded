from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.configs import BuildConfig
from schemas.errors import UsageError
from schemas.manifests import DatasetManifest, MaskingCounts, ShardRecord, TokenizerRecord
from trainer.config import TrainConfig, TrainPlan, plan_lanes, plan_warmup


def config(**values: Any) -> TrainConfig:
    return TrainConfig(**{"data": "d", "output": "o", "steps": 10} | values)


def test_the_model_is_base_unless_weights_bring_their_sizes() -> None:
    assert config().model == "base"
    assert not config().differences(config(model="base"))
    assert config(init="w").model is None
    assert config(init="w", model="tiny").model == "tiny"
    assert TrainConfig.model_validate_json(config(init="w").model_dump_json()).model is None


def manifest(num_examples: int, num_tokens: int) -> DatasetManifest:
    shard = ShardRecord(
        name="train-00000-of-00001.tar",
        split="train",
        sha256="0" * 64,
        size_bytes=1,
        num_examples=num_examples,
        num_blocks=1,
        num_tokens=num_tokens,
        num_is_next=0,
        num_not_next=0,
        masking=MaskingCounts(
            num_maskable_tokens=0,
            num_chosen_tokens=0,
            num_masked_tokens=0,
            num_random_tokens=0,
            num_kept_tokens=0,
        ),
        num_documents=1,
        num_documents_unused=0,
    )
    return DatasetManifest(
        created_by="tests",
        config=BuildConfig(),
        tokenizer=TokenizerRecord(
            sha256="0" * 64, vocab_size=10, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4
        ),
        corpus_fingerprint="0" * 64,
        num_examples=num_examples,
        num_tokens=num_tokens,
        shards=(shard,),
    )


def test_one_dataset_may_be_given_as_a_string() -> None:
    assert config(data="there").data == ("there",)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": None}, "one of steps and minutes"),
        ({"minutes": 1.0}, "one of steps and minutes"),
        ({"batch_size": 8, "tokens_per_batch": 800}, "one of batch_size and tokens_per_batch"),
        ({"learning_rate": 0.0}, "greater than 0"),
        ({"data": ()}, "at least 1 item"),
        ({"device": "tpu"}, "give auto, cpu, cuda or cuda:N"),
        ({"learning_rate": math.inf}, "finite number"),
        ({"steps": None, "minutes": math.inf}, "finite number"),
        ({"output": "run\udcff"}, "valid string"),
        ({"data": ("a", "b"), "data_weights": (1.0,)}, "1 weights for 2 datasets: give each one"),
        ({"data_weights": (0.0,)}, "greater than 0"),
        ({"data_weights": (math.inf,)}, "finite number"),
        ({"data_weights": (1.0,), "data_schedule": "sequence"}, "in sequence have no weights"),
        ({"data_schedule": "mixed"}, "'together' or 'sequence'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_choices_that_do_not_agree_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**values)


def test_differences_name_what_is_computed_otherwise() -> None:
    other = config(steps=11, seed=3, output="elsewhere", data="moved", device="cpu", keep_checkpoints=9)
    assert config().differences(other) == ["steps 10 there, 11 now", "seed 0 there, 3 now"]
    assert config().differences(config(output="elsewhere")) == []
    mixed = config(data_schedule="sequence")
    assert config().differences(mixed) == ["data_schedule 'together' there, 'sequence' now"]
    assert config(data_weights=(2.0,)).differences(config()) == ["data_weights (2.0,) there, None now"]


@pytest.mark.parametrize(
    ("values", "world_size", "expected"),
    [
        ({"batch_size": 32}, 1, (1, 32, None)),
        ({"batch_size": 32, "gradient_accumulation": 4}, 1, (4, 8, None)),
        ({"batch_size": 32, "gradient_accumulation": 2}, 4, (8, 4, None)),
        ({}, 1, (1, 256, None)),
        # Rows of 128 tokens, as many as fit.
        ({"tokens_per_batch": 4096}, 1, (1, 32, 128)),
        ({"tokens_per_batch": 4096, "gradient_accumulation": 2}, 4, (8, 4, 128)),
        ({"tokens_per_batch": 1000, "gradient_accumulation": 3}, 1, (3, 2, 128)),
        ({"tokens_per_batch": 128}, 1, (1, 1, 128)),
    ],
)
def test_a_step_is_cut_into_lanes(
    values: dict[str, Any], world_size: int, expected: tuple[int, int, int | None]
) -> None:
    assert plan_lanes(config(**values), manifest(100, 5000), world_size) == expected


def test_a_batch_that_can_not_be_cut_equally_is_refused_with_a_size_that_can() -> None:
    with pytest.raises(UsageError, match=r"--batch-size 10 .* 4 equal .*\n.*for example 8"):
        plan_lanes(config(batch_size=10, gradient_accumulation=2), manifest(100, 5000), world_size=2)


def test_fewer_tokens_than_a_row_for_each_microbatch_are_refused_with_the_least() -> None:
    with pytest.raises(
        UsageError,
        match=r"--tokens-per-batch 511 is less than a row of 128 .* each of 4 .*\nGive 512 or more",
    ):
        plan_lanes(config(tokens_per_batch=511, gradient_accumulation=2), manifest(100, 5000), world_size=2)


def test_a_plan_counts_its_batch_in_examples_or_in_tokens() -> None:
    padded = TrainPlan(steps=1, warmup_steps=0, lanes=2, microbatch_size=4)
    packed = TrainPlan(steps=1, warmup_steps=0, lanes=2, microbatch_size=4, row_length=128)
    assert (padded.batch_size, padded.tokens_per_batch) == (8, None)
    assert (packed.batch_size, packed.tokens_per_batch) == (None, 1024)


@pytest.mark.parametrize(
    ("warmup_steps", "steps", "expected"),
    [
        (None, 1000, 100),
        (None, 1_000_000, 10_000),
        (None, 5, 0),
        (300, 1000, 300),
        (300, 100, 100),
        (0, 100, 0),
    ],
)
def test_warm_up(warmup_steps: int | None, steps: int, expected: int) -> None:
    assert plan_warmup(config(warmup_steps=warmup_steps), steps) == expected
