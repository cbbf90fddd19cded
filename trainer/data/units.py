"""Shards cut into units: what an order permutes.

In: how many examples and blocks each shard holds. Out: runs of blocks, each block in exactly one of them.
Deterministic: arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class ShardSize(NamedTuple):
    """What the order needs to know of a shard: all blocks but the last hold `examples_per_block` examples.

    Attributes:
        num_examples: in it.
        num_blocks: in it.
        examples_per_block: but for the last block.
        num_tokens: of its examples, without padding.
        dataset: the number of its dataset, from 0; shards come in the order of their datasets.
    """

    num_examples: int
    num_blocks: int
    examples_per_block: int
    num_tokens: int
    dataset: int = 0


class BlockRun(NamedTuple):
    """The blocks `first_block` … `first_block + num_blocks - 1` of the shard of this number."""

    shard: int
    first_block: int
    num_blocks: int
    num_examples: int


def cut_units(shards: Sequence[tuple[int, ShardSize]], num_units: int) -> tuple[BlockRun, ...]:
    """Cut shards into whole shards where these are enough, else into the longest runs of blocks that are.

    Args:
        shards: numbers and sizes.
        num_units: how many runs are wanted at least; where there are not so many blocks, each block is one.
    """
    low, high = 1, max(shard.num_blocks for _, shard in shards)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(-(-shard.num_blocks // middle) for _, shard in shards) >= num_units:
            low = middle
        else:
            high = middle - 1
    return tuple(run for number, shard in shards for run in _cut_shard(number, shard, low))


def _cut_shard(number: int, shard: ShardSize, blocks_per_run: int) -> list[BlockRun]:
    num_runs = -(-shard.num_blocks // blocks_per_run)
    bounds = [shard.num_blocks * run // num_runs for run in range(num_runs + 1)]
    return [
        BlockRun(
            shard=number,
            first_block=first,
            num_blocks=end - first,
            num_examples=min(shard.num_examples, end * shard.examples_per_block)
            - first * shard.examples_per_block,
        )
        for first, end in pairwise(bounds)
    ]
