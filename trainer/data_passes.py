"""How often a run goes through each of its datasets, and what a person should know of that beforehand.

In: what a run was told, and the manifests of its data. Out: passes over each dataset, and notes. Pure
arithmetic: before the run from its steps, afterwards from the examples that it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.manifests import DatasetManifest
from trainer.config import TrainConfig
from trainer.data.mixture import WINDOWS_PER_LANE, count_passes
from trainer.run_folder import RunRecord

# Google's own script makes ten maskings of each document by default.
MANY_PASSES_WITH_SAME_MASKS = 10


def count_passes_made(
    config: TrainConfig, manifests: Sequence[DatasetManifest], num_seen: float
) -> tuple[float, ...]:
    """Passes over each dataset once so many examples were seen.

    Args:
        config: of the run.
        manifests: of its datasets.
        num_seen: examples, each counted every time.
    """
    num_examples = [_count_examples(manifest) for manifest in manifests]
    return tuple(count_passes(num_examples, num_seen, config.data_schedule, config.data_weights))


def estimate_passes(record: RunRecord, manifests: Sequence[DatasetManifest]) -> tuple[float, ...]:
    """Passes over each dataset that a whole run will make, but for batches that are not quite full."""
    plan, config = record.plan, record.config
    if plan.batch_size is not None:
        return count_passes_made(config, manifests, plan.steps * plan.batch_size)
    assert plan.tokens_per_batch is not None
    lengths = [
        sum(shard.num_tokens for shard in manifest.shards_of("train")) / _count_examples(manifest)
        for manifest in manifests
    ]
    weights = config.data_weights or tuple(float(_count_examples(manifest)) for manifest in manifests)
    mean_length = sum(weight * length for weight, length in zip(weights, lengths, strict=True)) / sum(weights)
    return count_passes_made(config, manifests, plan.steps * plan.tokens_per_batch / mean_length)


def describe_data(record: RunRecord, manifests: Sequence[DatasetManifest]) -> tuple[str, ...]:
    """Notes for a person, before the first step."""
    return (*_describe_passes(record, manifests), *_describe_shards(record, manifests))


def format_passes(passes: float) -> str:
    """A number of passes in two digits, or whole."""
    return f"{passes:,.0f}" if passes >= 9.95 else f"{passes:.2g}"


def _describe_passes(record: RunRecord, manifests: Sequence[DatasetManifest]) -> tuple[str, ...]:
    passes = estimate_passes(record, manifests)
    urls = record.config.data
    repeats = max(passes) >= MANY_PASSES_WITH_SAME_MASKS
    if len(urls) == 1 and not repeats:
        return ()
    each = ", ".join(f"{url} {format_passes(count)}" for url, count in zip(urls, passes, strict=True))
    note = f"Passes over the data in this run, about: {each}."
    if repeats:
        note += (
            " Masks are the same in every pass: `clozeline build` with other seeds gives others, to be read "
            "in turn by --data-schedule sequence."
        )
    return (note,)


def _describe_shards(record: RunRecord, manifests: Sequence[DatasetManifest]) -> tuple[str, ...]:
    lanes = record.plan.lanes
    counts = [len(manifest.shards_of("train")) for manifest in manifests]
    if record.config.data_schedule == "together":
        counts = [sum(counts)]
    if min(counts) >= lanes:
        return ()
    return (
        f"Shards are fewer than lanes ({min(counts)}, {lanes}): lanes read runs of their blocks. "
        f"`clozeline build --num-shards {lanes * WINDOWS_PER_LANE}` would let them read whole shards.",
    )


def _count_examples(manifest: DatasetManifest) -> int:
    return sum(shard.num_examples for shard in manifest.shards_of("train"))
