"""The words of examples whose tokens were chosen by whole words.

In: examples, what was chosen in them and what stood there, and which ids are `##` pieces. Out: `Words`. A
word is a piece and the `##` pieces that follow it within its segment (Google's whole-word masking); pieces
at the front of a segment whose beginning was cut off are a word too. Deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.example_arrays import ExampleArrays
from workflows.verifying.rulebook import count_maskable


@dataclass(frozen=True)
class Words:
    """W words of n examples, in the order in which they stand.

    Attributes:
        num_examples: n.
        rows: int64 [W], the example.
        sizes: int64 [W], pieces of each word.
        num_chosen: int64 [W], pieces of it that were chosen.
    """

    num_examples: int
    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    num_chosen: NDArray[np.int64]

    def rows_with_a_part(self, num_chosen: NDArray[np.int64], budget: NDArray[np.int64]) -> NDArray[np.int64]:
        """Examples in which a word was chosen in part, though some word would have fitted as a whole.

        Args:
            num_chosen: int64 [n], tokens chosen in each example.
            budget: int64 [n], tokens to choose.
        """
        is_part = (self.num_chosen > 0) & (self.num_chosen < self.sizes)
        if not is_part.any():
            return self.rows[:0]
        num_touched = np.bincount(self.rows[self.num_chosen > 0], minlength=self.num_examples)
        fits = np.zeros(self.num_examples, np.bool_)
        fits[self.rows[self.sizes <= budget[self.rows]]] = True
        may_cut = ~fits & (num_touched == 1) & (num_chosen == budget)
        rows = self.rows[is_part]
        return rows[~may_cut[rows]]

    def rows_with_room(self, num_chosen: NDArray[np.int64], budget: NDArray[np.int64]) -> NDArray[np.int64]:
        """Examples in which another word would have fitted into what is left of the budget."""
        left = (budget - num_chosen)[self.rows]
        return self.rows[(self.num_chosen == 0) & (self.sizes <= left)]

    def ranks_of_single_pieces(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Of each word of one piece its rank among those of its example, their number, if it was chosen.

        Words of one size are alike to the draw, so each rank is as likely as any other.
        """
        is_single = self.sizes == 1
        rows = self.rows[is_single]
        counts = np.bincount(rows, minlength=self.num_examples)
        ranks = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        return ranks, counts[rows], self.num_chosen[is_single] == 1


def find_words(
    examples: ExampleArrays,
    places: NDArray[np.int64],
    stood: NDArray[Any],
    is_continuation: NDArray[np.bool_],
) -> Words:
    """Put the original tokens back and find the words.

    Args:
        examples: n examples.
        places: int64 [M], the chosen places in their `input_ids`.
        stood: [M], the ids that stood there.
        is_continuation: bool [V], whether an id is a `##` piece.
    """
    num_tokens = int(examples.lengths.sum())
    ids = examples.input_ids[:num_tokens].copy()
    ids[places] = stood
    is_text = np.ones(num_tokens, np.bool_)
    is_text[examples.starts] = False
    is_text[examples.starts + examples.segment_a_lengths - 1] = False
    is_text[examples.starts + examples.lengths - 1] = False
    begins = ~is_continuation[ids]
    begins[1:] |= ~is_text[:-1]
    begins = begins[is_text]
    first_pieces = np.flatnonzero(begins)
    # Of each chosen place its rank among all tokens of text, then the word that this one belongs to.
    chosen_text = np.searchsorted(np.flatnonzero(is_text), places[is_text[places]])
    words_of_chosen = (np.cumsum(begins, dtype=np.int32) - 1)[chosen_text]
    return Words(
        num_examples=len(examples),
        rows=np.repeat(np.arange(len(examples)), count_maskable(examples))[first_pieces],
        sizes=np.diff(first_pieces, append=len(begins)),
        num_chosen=np.bincount(words_of_chosen, minlength=len(first_pieces)),
    )
