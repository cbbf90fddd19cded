from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainer.data import step_maker as step_maker_module
from trainer.data.dataset import open_dataset
from trainer.data.example_arrays import ExampleArrays
from trainer.data.order import START, Cursor, Order, Window, plan_order
from trainer.data.shard_source import ShardSource
from trainer.data.step_maker import StepMaker


class WatchedSource(ShardSource):
    """Writes down the windows that are read."""

    def read_window(self, window: Window) -> ExampleArrays:
        self.names = [*getattr(self, "names", []), window.name]
        return super().read_window(window)


@pytest.fixture
def source(tiny_dataset_path: Path) -> WatchedSource:
    return WatchedSource(open_dataset(str(tiny_dataset_path)), "train")


@pytest.fixture
def order(source: WatchedSource) -> Order:
    return plan_order(source.sizes(), seed=1, num_lanes=2, microbatch_size=4)


@pytest.fixture
def ahead(source: WatchedSource, order: Order) -> Iterator[StepMaker]:
    maker = StepMaker(source, order, [0], [START] * 2, pin_memory=False, read_ahead=True)
    yield maker
    maker.close()


def test_only_the_windows_of_its_lanes_are_read_each_once(source: WatchedSource, order: Order) -> None:
    maker = StepMaker(source, order, [1], [START] * 2, pin_memory=False, read_ahead=False)
    windows = order.windows_of_lane(1, 0)
    for _ in range(sum(order.num_microbatches(window) for window in windows)):
        next(maker)
    assert source.names == [window.name for window in windows]


def test_the_next_window_is_read_when_few_microbatches_are_left(
    source: WatchedSource, order: Order, ahead: StepMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_maker_module, "READ_AHEAD_MICROBATCHES", 2)
    first, second = order.windows_of_lane(0, 0)[:2]
    for _ in range(order.num_microbatches(first) - 2):
        next(ahead)
    assert not ahead._coming
    next(ahead)
    next(iter(ahead._coming.values())).result()
    assert source.names == [first.name, second.name]


def test_a_start_in_the_middle(source: WatchedSource, order: Order) -> None:
    whole = StepMaker(source, order, [0, 1], [START] * 2, pin_memory=False, read_ahead=False)
    steps = [next(whole) for _ in range(12)]
    start = [order.advance(lane, START, 10) for lane in range(2)]
    assert start != [Cursor(0, 0, 10)] * 2
    late = StepMaker(source, order, [0, 1], start, pin_memory=False, read_ahead=False)
    for expected in steps[10:]:
        for one, other in zip(expected, next(late), strict=True):
            assert torch.equal(one.input_ids, other.input_ids)
