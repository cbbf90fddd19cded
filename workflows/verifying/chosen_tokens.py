"""The tokens chosen for prediction, gathered once for everything that looks at them.

In: examples. Out: `ChosenTokens`. Deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trainer.data.example_arrays import ExampleArrays
from workflows.verifying.rulebook import Rulebook
from workflows.verifying.whole_words import Words, find_words


@dataclass(frozen=True)
class ChosenTokens:
    """The positions chosen for prediction, M in all, of some examples.

    Attributes:
        rows: int64 [M], the example.
        positions: int64 [M], the position within it.
        places: int64 [M], the place in the examples' `input_ids`.
        stands: [M], the id that stands there now.
        stood: [M], the id that stood there before.
        words: the words that they lie in; None where words aren't chosen whole or the vocabulary isn't known.
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    places: NDArray[np.int64]
    stands: NDArray[Any]
    stood: NDArray[Any]
    words: Words | None

    @classmethod
    def of(cls, examples: ExampleArrays, rulebook: Rulebook) -> Self:
        """Gather them."""
        rows = np.repeat(np.arange(len(examples)), examples.masked_counts)
        positions = examples.masked_lm_positions.astype(np.int64)
        places = examples.starts[rows] + positions
        stands, stood = examples.input_ids[places], examples.masked_lm_ids
        words = None
        if rulebook.config.whole_word_mask and rulebook.vocabulary is not None:
            words = find_words(examples, places, stood, rulebook.vocabulary.is_continuation)
        return cls(rows, positions, places, stands, stood, words)
