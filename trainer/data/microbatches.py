"""A window's examples cut into microbatches: by their number and padded, or by tokens and packed into rows.

In: the lengths of a window's examples and a stream of random draws. Out: a list of `Microbatch`. Each example
is in exactly one of them. Deterministic for a stream: the same on every device and any number of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.seeding import RandomStream
from trainer.data.packing import pack_rows


class Microbatch(NamedTuple):
    """The examples of a microbatch.

    Attributes:
        examples: int64 [E], their numbers in the window.
        offsets: int64 [E], ascending: where each begins in the flattened rows; None where each example has a
            row of its own.
    """

    examples: NDArray[np.int64]
    offsets: NDArray[np.int64] | None = None


def cut_by_examples(lengths: NDArray[np.int64], most_examples: int, stream: RandomStream) -> list[Microbatch]:
    """Microbatches of examples that are about as long as each other.

    The examples are permuted, then sorted by length so that little is padded, cut into microbatches of nearly
    equal size, and these permuted: which of several equally long examples meet is random.

    Args:
        lengths: int64 [n], tokens of the examples in stored order.
        most_examples: in a microbatch.
        stream: of the window.
    """
    shuffled = stream.permutation(len(lengths))
    by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    chunks = np.array_split(by_length, -(-len(lengths) // most_examples))
    return [Microbatch(chunks[number]) for number in stream.permutation(len(chunks))]


def cut_by_rows(
    lengths: NDArray[np.int64], most_rows: int, row_length: int, stream: RandomStream
) -> list[Microbatch]:
    """Microbatches of rows that are filled with whole examples.

    The examples are permuted and packed (see `packing`); which of several equally long ones lie together is
    random. Rows are dealt to microbatches by their number of examples, so that all microbatches have about
    as many examples and masked positions, and at random beyond that.

    Args:
        lengths: int64 [n], tokens of the examples in stored order, each at most `row_length`.
        most_rows: in a microbatch; those of a window differ by one row at most.
        row_length: tokens of a row.
        stream: of the window.
    """
    shuffled = stream.permutation(len(lengths))
    by_length = shuffled[np.argsort(-lengths[shuffled], kind="stable")]
    placement = pack_rows(lengths[by_length], row_length)

    num_microbatches = -(-placement.num_rows // most_rows)
    row_order = stream.permutation(placement.num_rows)
    num_examples = np.bincount(placement.rows, minlength=placement.num_rows)
    row_order = row_order[np.argsort(num_examples[row_order], kind="stable")]
    # Like cards: one row to each microbatch, then the next round.
    rounds, turns = np.divmod(np.arange(placement.num_rows), num_microbatches)
    base_of_row = np.empty(placement.num_rows, dtype=np.int64)
    microbatch_tokens = most_rows * row_length
    base_of_row[row_order] = (
        stream.permutation(num_microbatches)[turns] * microbatch_tokens + rounds * row_length
    )
    places = base_of_row[placement.rows] + placement.columns
    in_order = np.argsort(places, kind="stable")
    numbers, offsets = np.divmod(places[in_order], microbatch_tokens)
    cuts = np.searchsorted(numbers, np.arange(1, num_microbatches))
    return [
        Microbatch(*pair)
        for pair in zip(np.split(by_length[in_order], cuts), np.split(offsets, cuts), strict=True)
    ]
