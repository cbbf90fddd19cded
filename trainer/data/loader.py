"""The streaming loader: global steps of padded or packed microbatches, resumable at every one of them.

In: datasets, a split, and what belongs to the run (lanes, microbatch size, row length, seed, schedule). Out:
for each global step the microbatches of this rank's lanes. Deterministic: what `order` says, whatever the
number of ranks, and whether a thread reads ahead or not.

Batches are made by one thread in this process, windows read ahead by another: torch and Arrow let go of the
interpreter lock, and worker processes cost more than they give at these rates. Memory: one window for each
lane of this rank, two for a short while, a window being the larger of `window_examples` and one shard.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from schemas.errors import UsageError
from schemas.manifests import Split
from trainer.data.batches import Batch, assemble_batch
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import arrays_from_blocks
from trainer.data.mixture import DataSchedule
from trainer.data.order import START, WINDOW_EXAMPLES, Cursor, Order, lanes_of_rank, plan_order
from trainer.data.packed_batches import FixedSizes, plan_sizes
from trainer.data.prefetching import Prefetcher
from trainer.data.shard_source import ShardSource
from trainer.data.step_maker import Step, StepMaker

STATE_VERSION = 1
PREFETCH_THREAD_NAME = "clozeline-batches"


class StreamingLoader:
    """Endless iterator over global steps: lists of microbatches, one a lane of this rank, lanes ascending.

    Args:
        datasets: one dataset or several, all made with the same tokenizer.
        split: which split.
        lanes: microbatches in a global step, over all ranks.
        microbatch_size: examples in a microbatch at most, or rows where they are packed.
        row_length: pack examples into rows of so many tokens; None gives each a row of its own.
        fixed_sizes: give all packed microbatches the same shapes, as compilers and GPUs like them; otherwise
            they are as small as can be. Changes nothing in what they hold.
        seed: decides the order.
        schedule: `together` reads several datasets as one; `sequence` reads one in each epoch, in turn.
        weights: mix the datasets so that their shares of the examples are as these; one for each, above 0.
        rank: this process, from 0.
        world_size: number of processes.
        state: of `state_dict` on the only rank or, from a run of any number of ranks, of `merge_states`.
        window_examples: see `plan_order`.
        prefetch_steps: global steps made ahead by a thread; 0 makes them when they are asked for.
        pin_memory: put batches into page-locked memory.

    Attributes:
        lanes: the lanes of this rank, in the order of the microbatches.
        order: the arithmetic behind it.

    Raises:
        UsageError: no example in the split, too few blocks or lanes, datasets that don't fit together,
            examples longer than a row, or a state of another run.
        ClozelineError: from the iterator: a shard can't be read or is not what its manifest says.
    """

    def __init__(
        self,
        datasets: Dataset | Sequence[Dataset],
        split: Split,
        *,
        lanes: int,
        microbatch_size: int,
        row_length: int | None = None,
        fixed_sizes: bool = False,
        seed: int,
        schedule: DataSchedule = "together",
        weights: Sequence[float] | None = None,
        rank: int = 0,
        world_size: int = 1,
        state: Mapping[str, Any] | None = None,
        window_examples: int = WINDOW_EXAMPLES,
        prefetch_steps: int = 4,
        pin_memory: bool = False,
    ) -> None:
        source = ShardSource(datasets, split)
        if row_length is not None:
            source.require_lengths(row_length)
        self.order = plan_order(
            source.sizes(),
            seed=seed,
            num_lanes=lanes,
            microbatch_size=microbatch_size,
            row_length=row_length,
            window_examples=window_examples,
            schedule=schedule,
            weights=weights,
        )
        self.lanes = lanes_of_rank(lanes, rank, world_size)
        self._pinned = {
            "fingerprint": source.fingerprint(),
            "split": split,
            "lanes": lanes,
            "microbatch_size": microbatch_size,
            "row_length": row_length,
            "seed": seed,
            "window_examples": window_examples,
            "schedule": schedule,
            "weights": None if weights is None else list(weights),
        }
        start = _parse_state(state, self._pinned, self.order)
        self._cursors = {lane: start[lane] for lane in self.lanes}
        self._closed = False
        self._failure: BaseException | None = None
        self._steps = StepMaker(
            source,
            self.order,
            self.lanes,
            self._cursors,
            fixed_sizes=_fixed_sizes(source, microbatch_size, row_length) if fixed_sizes else None,
            pin_memory=pin_memory,
            read_ahead=prefetch_steps > 0,
        )
        self._prefetcher = (
            Prefetcher(self._steps, prefetch_steps, PREFETCH_THREAD_NAME) if prefetch_steps else None
        )
        self._finalizer = weakref.finalize(self, _stop, self._steps, self._prefetcher)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Batch]:
        if self._closed:
            raise StopIteration
        if self._failure is not None:
            raise self._failure
        try:
            step = self._prefetcher.get() if self._prefetcher else next(self._steps)
        except Exception as error:
            self._failure = error
            raise
        self._cursors = step.cursors
        return step.microbatches

    def state_dict(self) -> dict[str, Any]:
        """Where this rank's lanes stand after the steps given out so far: JSON values.

        Valid between steps, however far the thread has read ahead. A run is resumed from the states of all
        its ranks, put together by `merge_states`.
        """
        cursors = {str(lane): list(cursor) for lane, cursor in self._cursors.items()}
        return {"version": STATE_VERSION, "pinned": dict(self._pinned), "cursors": cursors}

    def close(self) -> None:
        """Stop the threads and let go of the memory. Iterating afterwards ends at once."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of a run from those of its ranks, in any order, taken after the same step."""
    cursors = {lane: cursor for state in states for lane, cursor in state["cursors"].items()}
    return {**states[0], "cursors": dict(sorted(cursors.items(), key=lambda pair: int(pair[0])))}


def iterate_once(
    dataset: Dataset, split: Split, batch_size: int, most_examples: int | None = None
) -> Iterator[Batch]:
    """Every example of a split once, in stored order, for evaluation.

    Args:
        dataset: which dataset.
        split: which split.
        batch_size: examples in a batch at most; a batch doesn't cross blocks, and those of a block are of
            nearly equal size.
        most_examples: the first so many alone, 1 at least; None takes all.

    Raises:
        UsageError: no example in the split.
        ClozelineError: a shard can't be read or is not what its manifest says.
    """
    left = math.inf if most_examples is None else most_examples
    for shard in dataset.require_split(split):
        for block in iterate_blocks(dataset, shard):
            examples = arrays_from_blocks([block])
            num_taken = int(min(len(examples), left))
            left -= num_taken
            for indices in np.array_split(np.arange(num_taken), -(-num_taken // batch_size)):
                yield assemble_batch(examples, indices, dataset.manifest.tokenizer.pad_id)
            if left <= 0:
                return


def _fixed_sizes(source: ShardSource, num_rows: int, row_length: int | None) -> FixedSizes | None:
    return None if row_length is None else plan_sizes(num_rows, row_length, source.densest())


def _stop(steps: StepMaker, prefetcher: Prefetcher[Step] | None) -> None:
    # The step maker first: a thread that waits for a window has it soon or sees it cancelled.
    steps.close()
    if prefetcher is not None:
        prefetcher.close()


def _parse_state(state: Mapping[str, Any] | None, pinned: Mapping[str, Any], order: Order) -> list[Cursor]:
    if state is None:
        return [START] * order.num_lanes
    found = state.get("pinned")
    found = found if isinstance(found, Mapping) else {}
    differing = [name for name in pinned if found.get(name) != pinned[name]]
    if state.get("version") != STATE_VERSION or differing:
        what = ", ".join(f"{name} {found.get(name)!r} there, {pinned[name]!r} here" for name in differing)
        raise UsageError(
            f"This position in the data belongs to another run: {what or 'another version of clozeline'}.\n"
            f"Resume with the data and the settings that the run began with."
        )
    try:
        cursors = [Cursor(*map(int, state["cursors"][str(lane)])) for lane in range(order.num_lanes)]
        for lane, cursor in enumerate(cursors):
            if not order.has(lane, cursor):
                raise ValueError(f"lane {lane} stands at {tuple(cursor)}, which doesn't exist")
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"The position in the data is malformed: {error}") from None
    return cursors
