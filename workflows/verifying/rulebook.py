"""What every example of a dataset is held to: its configuration, its special ids, its vocabulary.

In: a manifest and the bytes of `tokenizer.json`. Out: a `Rulebook`, which holds tables by token id so that a
block of examples is looked up at once. Deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pipelines.examples import masking_vocabulary
from schemas.configs import BuildConfig
from schemas.manifests import DatasetManifest, TokenizerRecord
from trainer.data.example_arrays import ExampleArrays

NUM_ID_RANGES = 16
"""Ranges of the ids that may replace a token, by which their draws are counted."""

NO_RANGE = NUM_ID_RANGES
"""Where the ids are counted that may not replace one."""


@dataclass(frozen=True)
class VocabularyRules:
    """What a vocabulary says of its ids.

    Attributes:
        num_replacements: ids that may replace a token: neither special nor `[unusedN]`.
        range_of_id: uint8 [V], which range of those an id lies in; `NO_RANGE` for all others.
        range_sizes: int64 [NUM_ID_RANGES], ids in each range.
        is_continuation: bool [V], whether an id is a `##` piece.
    """

    num_replacements: int
    range_of_id: NDArray[np.uint8]
    range_sizes: NDArray[np.int64]
    is_continuation: NDArray[np.bool_]


@dataclass(frozen=True)
class Rulebook:
    """How the examples of a dataset were to be made.

    Attributes:
        config: of the build.
        tokenizer: its special ids.
        vocabulary: None where `tokenizer.json` is damaged; its rules are left out then.
    """

    config: BuildConfig
    tokenizer: TokenizerRecord
    vocabulary: VocabularyRules | None

    @cached_property
    def is_reserved(self) -> NDArray[np.bool_]:
        """Bool [V], the ids that no text has: `[PAD]`, `[CLS]`, `[SEP]`, `[MASK]`."""
        tokenizer = self.tokenizer
        table = np.zeros(tokenizer.vocab_size, np.bool_)
        table[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]] = True
        return table

    def budget(self, num_maskable: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens to choose in examples with so many maskable ones: int64 [n].

        `max(1, round(masked_lm_prob x maskable))`, at most `max_predictions_per_seq`, as in Google's
        `create_pretraining_data.py`; a half is rounded to the even neighbour.
        """
        wanted = np.maximum(1, np.rint(num_maskable * self.config.masked_lm_prob)).astype(np.int64)
        return np.minimum(np.minimum(wanted, self.config.prediction_limit), num_maskable)


def count_maskable(examples: ExampleArrays) -> NDArray[np.int64]:
    """Tokens of each example that are neither `[CLS]` nor `[SEP]`: int64 [n]."""
    return examples.lengths - np.where(examples.segment_a_lengths == examples.lengths, 2, 3)


def make_rulebook(manifest: DatasetManifest, tokenizer_json: bytes | None) -> Rulebook:
    """The rules of a dataset.

    Args:
        manifest: its manifest.
        tokenizer_json: its tokenizer; None where that is damaged.
    """
    vocabulary = None
    if tokenizer_json is not None:
        tokenizer = Tokenizer.from_str(tokenizer_json.decode())
        vocabulary = describe_vocabulary(tokenizer, manifest.tokenizer)
    return Rulebook(manifest.config, manifest.tokenizer, vocabulary)


def describe_vocabulary(tokenizer: Tokenizer, record: TokenizerRecord) -> VocabularyRules:
    """Tables by token id, from a tokenizer and the manifest's record of it."""
    masking = masking_vocabulary(tokenizer, record)
    ranges = np.arange(len(masking.random_ids)) * NUM_ID_RANGES // max(1, len(masking.random_ids))
    range_of_id = np.full(record.vocab_size, NO_RANGE, np.uint8)
    range_of_id[masking.random_ids] = ranges
    return VocabularyRules(
        num_replacements=len(masking.random_ids),
        range_of_id=range_of_id,
        range_sizes=np.bincount(ranges, minlength=NUM_ID_RANGES),
        is_continuation=masking.is_continuation,
    )
