"""Decide how many pools each split of a corpus has, and deal its row groups to them.

In: a corpus manifest and a build configuration. Out: descriptors of pools, each of which becomes one shard,
and warnings. Deterministic: see `pipelines.pool_lots`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.pool_lots import deal_parts, deal_row_groups, most_pools
from pipelines.pools import (
    PoolDescriptor,
    PoolRowGroup,
    choose_num_pools,
    least_num_pools,
    most_pool_tokens,
    row_groups_of,
)
from schemas.configs import BuildConfig
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import SPLITS, CorpusManifest, Split

FEW_DOCUMENTS = 100
"""A shard of fewer documents is worth a warning, where the number of shards was chosen."""


def assign_pools(
    manifest: CorpusManifest, config: BuildConfig, examples_a_token: float | None = None
) -> tuple[list[PoolDescriptor], list[str]]:
    """Deal every row group of a corpus to a pool of its split.

    Args:
        manifest: of the corpus.
        config: seed, objective, and what was chosen of shards.
        examples_a_token: examples that a token of the corpus gives on average, as
            `pipelines.example_rate` measures it; needed for `examples_per_shard` only.

    Returns:
        The pools of `train`, then those of `validation`, and warnings for a person. A `validation` split that
        is too small for the objective is left out with a warning.

    Raises:
        ClozelineError: `train` has no document, or only one where the objective needs two.
        UsageError: the shards that were asked for would be too large for a worker's memory, or are more than
            the documents can fill.
    """
    assigned: list[PoolDescriptor] = []
    warnings: list[str] = []
    min_documents = 2 if config.objective == "next-sentence" else 1
    groups = {split: row_groups_of(manifest, split) for split in SPLITS}
    pools_a_token = _choose_density(_count_tokens(groups["train"]), config, examples_a_token)
    for split in SPLITS:
        num_documents = sum(group.num_documents for group in groups[split])
        if num_documents >= min_documents:
            assigned += _deal_split(split, groups[split], config, pools_a_token, min_documents)
        elif split == "train":
            raise ClozelineError(_explain_too_few(num_documents))
        elif num_documents:
            warnings.append(
                "validation has one document, which has no other to draw a NotNext segment from: "
                "the split is left out and the document stays unused"
            )
        else:
            warnings.append(
                "the corpus holds out no document, so the dataset has no validation split: "
                "with more documents or a larger --validation-fraction it would have one"
            )
    if pools_a_token is not None:
        warnings += _warn_of_small([pool for pool in assigned if pool.split == "train"])
    return assigned, warnings


def _choose_density(num_tokens: int, config: BuildConfig, examples_a_token: float | None) -> float | None:
    """Pools for each token of the corpus, as was asked for; None where nobody chose."""
    if config.num_shards is not None:
        return config.num_shards / max(1, num_tokens)
    if config.examples_per_shard is None:
        return None
    if examples_a_token is None:
        raise ValueError("examples_per_shard needs examples_a_token")
    return examples_a_token / config.examples_per_shard


def _deal_split(
    split: Split,
    groups: Sequence[PoolRowGroup],
    config: BuildConfig,
    pools_a_token: float | None,
    min_documents: int,
) -> list[PoolDescriptor]:
    num_tokens = _count_tokens(groups)
    if pools_a_token is None:
        num_pools = choose_num_pools(num_tokens, config.duplicate_factor)
        return deal_row_groups(split, groups, config.seed, num_pools, min_documents)
    num_pools = max(1, round(num_tokens * pools_a_token))
    most = most_pools(groups, min_documents)
    least = min(least_num_pools(num_tokens, config.duplicate_factor), most)
    if split == "train":
        _check_choice(config, num_tokens, num_tokens * pools_a_token, least, most)
    else:
        num_pools = min(max(num_pools, least), most)
    return deal_parts(split, groups, config.seed, num_pools, min_documents)


def _check_choice(config: BuildConfig, num_tokens: int, exact_pools: float, least: int, most: int) -> None:
    """Refuse a number of shards of `train` under `least` or over `most`, and say what would do."""
    num_pools = max(1, round(exact_pools))
    if least <= num_pools <= most:
        return
    if config.num_shards is not None:
        choice = f"--num-shards {num_pools}"
        fewest, largest = f"--num-shards {least} or more", f"--num-shards {most} or fewer"
    else:
        num_examples = int(exact_pools * (config.examples_per_shard or 1))
        choice = f"--examples-per-shard {config.examples_per_shard}"
        fewest = f"--examples-per-shard {num_examples // max(1, least)} or less"
        largest = f"--examples-per-shard {-(-num_examples // most)} or more"
    if num_pools < least:
        holds = most_pool_tokens(config.duplicate_factor)
        raise UsageError(
            f"{choice} makes shards of {num_tokens // num_pools:,} tokens, "
            f"but a worker holds {holds:,} at most at a time\nGive {fewest}."
        )
    raise UsageError(
        f"{choice} makes {num_pools:,} shards, but the documents in `train` can fill {most:,} at most\n"
        f"Give {largest}."
    )


def _warn_of_small(train: Sequence[PoolDescriptor]) -> Iterator[str]:
    num_documents = sum(pool.num_documents for pool in train) // len(train)
    if len(train) > 1 and num_documents < FEW_DOCUMENTS:
        yield (
            f"a shard of train holds about {num_documents} documents, among which examples are shuffled and "
            "NotNext segments drawn: fewer and larger shards mix better"
        )


def _count_tokens(groups: Sequence[PoolRowGroup]) -> int:
    return sum(group.num_tokens for group in groups)


def _explain_too_few(num_documents: int) -> str:
    if num_documents == 0:
        return (
            "the corpus has no document in `train`, so there is nothing to build\n"
            "Ingest more documents, or use a smaller --validation-fraction."
        )
    return (
        "the corpus has one document in `train`, but a NotNext segment must come from another document\n"
        "Ingest two documents or more (where each line is a document: --format text-lines), or build with "
        "`--objective mlm`."
    )
