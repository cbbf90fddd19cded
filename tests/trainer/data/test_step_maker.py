from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from schemas.errors import UsageError
from trainer.data import step_maker as step_maker_module
from trainer.data.dataset import open_dataset
from trainer.data.example_arrays import ExampleArrays
from trainer.data.order import START, Cursor, Order, Window, plan_order
from trainer.data.packed_batches import FixedSizes
from trainer.data.shard_source import ShardSource
from trainer.data.step_maker import StepMaker


class WatchedSource(ShardSource):
    """Writes down the windows that are read."""

    def read_window(self, window: Window) -> ExampleArrays:
        self.names = [*getattr(self, "names", []), window.name]
        return super().read_window(window)


def count_microbatches(window: Window) -> int:
    """In microbatches of 4 examples."""
    return -(-window.num_examples // 4)


@pytest.fixture
def source(tiny_dataset_path: Path) -> WatchedSource:
    return WatchedSource(open_dataset(str(tiny_dataset_path)), "train")


@pytest.fixture
def order(source: WatchedSource) -> Order:
    return plan_order(source.sizes(), seed=1, num_lanes=2, microbatch_size=4)


@pytest.fixture
def ahead(source: WatchedSource, order: Order) -> Iterator[StepMaker]:
    maker = StepMaker(source, order, [0], {0: START, 1: START}, pin_memory=False, read_ahead=True)
    yield maker
    maker.close()


def test_only_the_windows_of_its_lanes_are_read_each_once(source: WatchedSource, order: Order) -> None:
    maker = StepMaker(source, order, [1], {0: START, 1: START}, pin_memory=False, read_ahead=False)
    windows = order.windows_of_lane(1, 0)
    for _ in range(sum(count_microbatches(window) for window in windows)):
        next(maker)
    assert source.names == [window.name for window in windows]


def test_the_next_window_is_read_when_few_microbatches_are_left(
    source: WatchedSource, order: Order, ahead: StepMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_maker_module, "READ_AHEAD_MICROBATCHES", 2)
    first, second = order.windows_of_lane(0, 0)[:2]
    for _ in range(count_microbatches(first) - 2):
        next(ahead)
    assert not ahead._coming
    next(ahead)
    next(iter(ahead._coming.values())).result()
    assert source.names == [first.name, second.name]


@pytest.mark.parametrize("row_length", [None, 32])
def test_a_start_where_a_step_ended(source: WatchedSource, row_length: int | None) -> None:
    order = plan_order(source.sizes(), seed=1, num_lanes=2, microbatch_size=4, row_length=row_length)
    options = {"pin_memory": False, "read_ahead": False}
    whole = StepMaker(source, order, [0, 1], {0: START, 1: START}, **options)
    steps = [next(whole) for _ in range(30)]
    for number, step in enumerate(steps[:-1]):
        late = StepMaker(source, order, [0, 1], step.cursors, **options)
        for one, other in zip(steps[number + 1].microbatches, next(late).microbatches, strict=True):
            assert torch.equal(one.input_ids, other.input_ids)
    assert any(cursor.offset > 0 for step in steps for cursor in step.cursors.values())
    assert any(cursor.position > 0 for step in steps for cursor in step.cursors.values())


def test_a_start_beyond_the_end_of_a_window_is_refused(source: WatchedSource, order: Order) -> None:
    last = count_microbatches(order.window_at(0, START))
    maker = StepMaker(source, order, [0], {0: Cursor(0, 0, last)}, pin_memory=False, read_ahead=False)
    with pytest.raises(
        UsageError, match=rf"lane 0 stands at \(0, 0, {last}\), but its window has {last} micro"
    ):
        next(maker)


def test_packed_batches_of_fixed_sizes(source: WatchedSource) -> None:
    order = plan_order(source.sizes(), seed=1, num_lanes=1, microbatch_size=3, row_length=32)
    sizes = FixedSizes(rows=3, examples=8, masked=24)
    maker = StepMaker(source, order, [0], {0: START}, fixed_sizes=sizes, pin_memory=False, read_ahead=False)
    shapes = {
        (*batch.input_ids.shape, *batch.masked_ids.shape, *batch.next_sentence_labels.shape)
        for batch in (next(maker).microbatches[0] for _ in range(60))
    }
    assert shapes == {(3, 32, 24, 8)}
