"""What a trained model is to be compared with: guessing without reading, and published figures.

In: an opened dataset. Out: how well its held-out masks and labels are guessed from their frequencies alone,
from a sample that is the same every time; and the held-out perplexities that were published for BERT.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

import numpy as np

from schemas.manifests import Split
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import arrays_from_blocks
from workflows.report.sampling import plan_blocks
from workflows.report.token_tally import Vocabulary

_SAMPLE_TOKENS = 2_000_000

PUBLISHED_SOURCE = "Devlin et al. 2019, BERT, table 6"


@dataclass(frozen=True)
class PublishedModel:
    """A row of that table: sizes, and the perplexity of the masked LM on held-out training data."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    perplexity: float


PUBLISHED = (
    PublishedModel("", 3, 768, 12, 5.84),
    PublishedModel("", 6, 768, 3, 5.24),
    PublishedModel("", 6, 768, 12, 4.68),
    PublishedModel("BERT-base", 12, 768, 12, 3.99),
    PublishedModel("", 12, 1024, 16, 3.54),
    PublishedModel("BERT-large", 24, 1024, 16, 3.23),
)
PUBLISHED_BASE = PUBLISHED[3]


@dataclass(frozen=True)
class GuessingBaseline:
    """What is reached without reading the text around a mask.

    Attributes:
        split: whose masks and labels were counted.
        num_masked: positions that were counted.
        token: the most frequent token there.
        accuracy: of always guessing it.
        loss: in nats, of guessing by the frequencies: their entropy.
        label_accuracy: of always guessing the more frequent label; None where there are no labels.
    """

    split: Split
    num_masked: int
    token: str
    accuracy: float
    loss: float
    label_accuracy: float | None


def guess_from_frequencies(dataset: Dataset, vocabulary: Vocabulary) -> GuessingBaseline | None:
    """Count the masks of held-out examples, or of training ones where none were held out.

    The frequencies are those of the counted positions themselves, which flatters the guess a little.

    Returns:
        None where nothing is masked.

    Raises:
        CorruptDataError: a block is damaged.
        ClozelineError: it can't be read.
    """
    manifest = dataset.manifest
    split: Split = "validation" if manifest.shards_of("validation") else "train"
    counts = np.zeros(manifest.tokenizer.vocab_size, dtype=np.int64)
    for plan in plan_blocks(manifest, _SAMPLE_TOKENS):
        if plan.shard.split == split:
            for block in islice(iterate_blocks(dataset, plan.shard, verify=False), plan.num_blocks):
                counts += np.bincount(arrays_from_blocks([block]).masked_lm_ids, minlength=len(counts))
    if not counts.any():
        return None
    shares = counts[counts > 0] / counts.sum()
    labels = Counter(
        is_next=sum(shard.num_is_next for shard in manifest.shards_of(split)),
        not_next=sum(shard.num_not_next for shard in manifest.shards_of(split)),
    )
    return GuessingBaseline(
        split=split,
        num_masked=int(counts.sum()),
        token=vocabulary.name(int(counts.argmax())),
        accuracy=float(shares.max()),
        loss=float(-(shares * np.log(shares)).sum()),
        label_accuracy=max(labels.values()) / labels.total() if labels.total() else None,
    )
