"""Whether a dataset is what its manifest says, and every example what an example must be.

In: an opened dataset. Out: a `Verification`: what was counted, and the faults found, each naming the shard
and the example. Sizes, checksums, tar structure, schema and value ranges are checked by the trainer's own
reader; added here are the rules of pairing and masking, the counts of the manifest, and the shares of
masking, which must lie within six standard errors of 80/10/10 (a fault that chance makes once in 500
million times).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.configs import BuildConfig
from schemas.errors import ClozelineError
from schemas.manifests import DatasetManifest, ShardRecord, TokenizerRecord
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import NO_LABEL, ExampleArrays, arrays_from_blocks

_MASKING_SHARES = (("mask", 0.8), ("random", 0.1), ("kept", 0.1))
_STANDARD_ERRORS = 6.0


@dataclass
class ShardCounts:
    """What a shard was found to hold.

    A random replacement that happens to be the original token can't be told from a kept one, so `num_alike`
    counts both.
    """

    num_examples: int = 0
    num_blocks: int = 0
    num_tokens: int = 0
    num_is_next: int = 0
    num_not_next: int = 0
    num_chosen_tokens: int = 0
    num_masked_tokens: int = 0
    num_alike: int = 0
    num_maskable_tokens: int = 0

    def add(self, examples: ExampleArrays, tokenizer: TokenizerRecord) -> None:
        """Count one block."""
        stands = examples.input_ids[_flat_masked_positions(examples)]
        self.num_examples += len(examples)
        self.num_blocks += 1
        self.num_tokens += int(examples.lengths.sum())
        self.num_is_next += int((examples.labels == 0).sum())
        self.num_not_next += int((examples.labels == 1).sum())
        self.num_chosen_tokens += len(stands)
        self.num_masked_tokens += int((stands == tokenizer.mask_id).sum())
        self.num_alike += int((stands == examples.masked_lm_ids).sum())
        self.num_maskable_tokens += int(_num_maskable(examples).sum())


@dataclass(frozen=True)
class Verification:
    """The outcome.

    Attributes:
        num_shards: shards looked at.
        num_examples: examples looked at.
        num_tokens: tokens looked at.
        faults: one line each; none means that everything holds.
    """

    num_shards: int
    num_examples: int
    num_tokens: int
    faults: list[str] = field(default_factory=list)


def verify_dataset(dataset: Dataset, progress: Callable[[int, int], None]) -> Verification:
    """Check every shard and every example.

    Args:
        dataset: an opened dataset.
        progress: called with (shards done, shards in all).
    """
    faults: list[str] = []
    try:
        dataset.read_tokenizer()
    except ClozelineError as error:
        faults.append(_one_line(error))
    num_examples = num_tokens = 0
    shards = dataset.manifest.shards
    for done, shard in enumerate(shards, start=1):
        counts, found = verify_shard(dataset, shard)
        faults.extend(found)
        num_examples += counts.num_examples
        num_tokens += counts.num_tokens
        progress(done, len(shards))
    faults.extend(_check_shares(dataset.manifest))
    return Verification(len(shards), num_examples, num_tokens, faults)


def verify_shard(dataset: Dataset, shard: ShardRecord) -> tuple[ShardCounts, list[str]]:
    """Check one shard; a fault of its file ends the search, of the rules each is named once."""
    counts = ShardCounts()
    faults: dict[str, str] = {}
    tokenizer, config = dataset.manifest.tokenizer, dataset.manifest.config
    try:
        for block in iterate_blocks(dataset, shard, verify=True):
            examples = arrays_from_blocks([block])
            for rule, row in find_broken_rules(examples, config, tokenizer):
                faults.setdefault(rule, f"{shard.name}: example {counts.num_examples + row:,}: {rule}")
            counts.add(examples, tokenizer)
    except ClozelineError as error:
        return counts, [*faults.values(), _one_line(error)]
    return counts, [*faults.values(), *_compare_counts(shard, counts)]


def find_broken_rules(
    examples: ExampleArrays, config: BuildConfig, tokenizer: TokenizerRecord
) -> Iterator[tuple[str, int]]:
    """The rules that some examples break: (rule, number of the first example that breaks it)."""
    for rule, holds in _rules_of_layout(examples, config, tokenizer):
        if not holds.all():
            yield rule, int(np.argmin(holds))
    rows = np.repeat(np.arange(len(examples)), examples.masked_counts)
    for rule, holds in _rules_of_masking(examples, tokenizer):
        if not holds.all():
            yield rule, int(rows[np.argmin(holds)])


def _rules_of_layout(
    examples: ExampleArrays, config: BuildConfig, tokenizer: TokenizerRecord
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Rules of an example as a whole: (rule, bool [n])."""
    ids, starts, lengths = examples.input_ids, examples.starts, examples.lengths
    a_lengths = examples.segment_a_lengths
    yield "it doesn't begin with [CLS]", ids[starts] == tokenizer.cls_id
    yield "it doesn't end with [SEP]", ids[starts + lengths - 1] == tokenizer.sep_id
    yield "segment A doesn't end with [SEP]", ids[starts + a_lengths - 1] == tokenizer.sep_id
    yield "segment A has no token", a_lengths >= 3
    if config.objective == "mlm":
        yield "it has a second segment, which --objective mlm doesn't make", a_lengths == lengths
        yield "it has a label, which --objective mlm doesn't make", examples.labels == NO_LABEL
    else:
        yield "segment B has no token", lengths - a_lengths >= 2
        yield "it has no label", examples.labels != NO_LABEL
    num_separators = np.where(a_lengths == lengths, 1, 2)
    tokens = ids[: int(lengths.sum())]
    yield "it has another [CLS] than the first", _count_of(tokens, tokenizer.cls_id, examples) == 1
    yield "it has a [SEP] within a segment", _count_of(tokens, tokenizer.sep_id, examples) == num_separators
    yield "it has padding", _count_of(tokens, tokenizer.pad_id, examples) == 0
    num_masks = np.bincount(
        np.repeat(np.arange(len(examples)), examples.masked_counts),
        weights=ids[_flat_masked_positions(examples)] == tokenizer.mask_id,
        minlength=len(examples),
    )
    yield (
        "it has a [MASK] where nothing was chosen",
        _count_of(tokens, tokenizer.mask_id, examples) == num_masks,
    )
    yield "nothing was chosen in it", examples.masked_counts >= 1
    expected = _expected_predictions(_num_maskable(examples), config)
    if config.whole_word_mask:
        yield "more tokens were chosen than the configuration says", examples.masked_counts <= expected
    else:
        yield (
            "another number of tokens was chosen than the configuration says",
            examples.masked_counts == expected,
        )


def _rules_of_masking(
    examples: ExampleArrays, tokenizer: TokenizerRecord
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Rules of a chosen position: (rule, bool [M])."""
    rows = np.repeat(np.arange(len(examples)), examples.masked_counts)
    positions = examples.masked_lm_positions.astype(np.int64)
    inside = (positions > 0) & (positions < examples.lengths[rows] - 1)
    yield "[CLS] or the last [SEP] was chosen", inside
    yield "the [SEP] after segment A was chosen", positions != examples.segment_a_lengths[rows] - 1
    never_text = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    yield "a special token is to be predicted", ~np.isin(examples.masked_lm_ids, never_text)
    stands = examples.input_ids[_flat_masked_positions(examples)]
    never_random = np.isin(stands, [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id])
    yield "a special token other than [MASK] was put in", ~never_random


def _expected_predictions(num_maskable: NDArray[np.int64], config: BuildConfig) -> NDArray[np.int64]:
    wanted = np.maximum(1, np.rint(num_maskable * config.masked_lm_prob)).astype(np.int64)
    return np.minimum(np.minimum(wanted, config.prediction_limit), num_maskable)


def _num_maskable(examples: ExampleArrays) -> NDArray[np.int64]:
    return examples.lengths - np.where(examples.segment_a_lengths == examples.lengths, 2, 3)


def _flat_masked_positions(examples: ExampleArrays) -> NDArray[np.int64]:
    rows = np.repeat(np.arange(len(examples)), examples.masked_counts)
    return examples.starts[rows] + examples.masked_lm_positions.astype(np.int64)


def _count_of(tokens: NDArray[Any], token_id: int, examples: ExampleArrays) -> NDArray[np.int64]:
    return np.add.reduceat(tokens == token_id, examples.starts, dtype=np.int64)


def _compare_counts(shard: ShardRecord, found: ShardCounts) -> Iterator[str]:
    masking = shard.masking
    expected = {
        "num_examples": shard.num_examples,
        "num_blocks": shard.num_blocks,
        "num_tokens": shard.num_tokens,
        "num_is_next": shard.num_is_next,
        "num_not_next": shard.num_not_next,
        "num_maskable_tokens": masking.num_maskable_tokens,
        "num_chosen_tokens": masking.num_chosen_tokens,
        "num_masked_tokens": masking.num_masked_tokens,
    }
    for name, number in expected.items():
        if getattr(found, name) != number:
            yield f"{shard.name}: {name} is {getattr(found, name):,}, the manifest says {number:,}"
    if not masking.num_kept_tokens <= found.num_alike <= masking.num_kept_tokens + masking.num_random_tokens:
        yield (
            f"{shard.name}: {found.num_alike:,} chosen tokens stand as they stood, the manifest says "
            f"{masking.num_kept_tokens:,} were kept and {masking.num_random_tokens:,} drawn at random"
        )
    if (
        masking.num_masked_tokens + masking.num_random_tokens + masking.num_kept_tokens
        != masking.num_chosen_tokens
    ):
        yield f"{shard.name}: masked, random and kept tokens don't add up to {masking.num_chosen_tokens:,}"


def _check_shares(manifest: DatasetManifest) -> Iterator[str]:
    records = [shard.masking for shard in manifest.shards]
    num_chosen = sum(record.num_chosen_tokens for record in records)
    counts = {
        "mask": sum(record.num_masked_tokens for record in records),
        "random": sum(record.num_random_tokens for record in records),
        "kept": sum(record.num_kept_tokens for record in records),
    }
    for name, share in _MASKING_SHARES:
        allowed = _STANDARD_ERRORS * math.sqrt(share * (1 - share) * num_chosen) + 1
        if abs(counts[name] - share * num_chosen) > allowed:
            yield (
                f"{name} tokens are {counts[name] / max(1, num_chosen):.2%} of {num_chosen:,} chosen ones, "
                f"expected {share:.0%}"
            )


def _one_line(error: ClozelineError) -> str:
    return " ".join(str(error).split())
