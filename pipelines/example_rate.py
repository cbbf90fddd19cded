"""How many examples the tokens of a corpus give, measured on a few of its row groups.

In: a corpus and a build configuration. Out: examples a token. Deterministic: the row groups are those that
come first by a hash of their digests. The configuration's seed plays no part, so that datasets of different
seeds have as many shards.
"""

from __future__ import annotations

from pipelines.pairing import sample_pairs
from pipelines.pool_lots import order_row_groups
from pipelines.pool_reader import read_pool
from pipelines.pools import PoolDescriptor, row_groups_of
from schemas.configs import BuildConfig
from schemas.manifests import CorpusManifest
from schemas.seeding import RandomStream

SAMPLED_ROW_GROUPS = 8
SAMPLED_DOCUMENTS = 100
"""The sample ends with the row group by which it has so many of both."""

_SEED = 0


def measure_examples_a_token(corpus: str, manifest: CorpusManifest, config: BuildConfig) -> float:
    """Examples for each token of `train`, copies counted in; 0 where it has less than two documents.

    Raises:
        CorruptDataError: a row group isn't what the manifest says.
        ClozelineError: a file can't be opened.
    """
    groups = order_row_groups(row_groups_of(manifest, "train"), "train", _SEED)
    num_sampled = num_documents = 0
    for group in groups:
        if num_sampled >= SAMPLED_ROW_GROUPS and num_documents >= SAMPLED_DOCUMENTS:
            break
        num_sampled += 1
        num_documents += group.num_documents
    if num_documents < 2:
        return 0.0
    pool = PoolDescriptor("train", 0, 1, tuple(sorted(groups[:num_sampled])))
    tokens = read_pool(corpus, pool, manifest.tokenizer.vocab_size)
    once = config.model_copy(update={"duplicate_factor": 1})
    pairs = sample_pairs(tokens, once, RandomStream(_SEED, "pairs", "example rate"))
    return config.duplicate_factor * len(pairs) / len(tokens.token_ids)
