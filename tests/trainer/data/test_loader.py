from __future__ import annotations

import gc
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import CorruptDataError, UsageError
from trainer.data import loader as loader_module
from trainer.data.batches import NO_LABEL, Batch
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.loader import StreamingLoader, iterate_once, merge_states
from trainer.data.order import WINDOW_EXAMPLES

LANES = 8
RUN: dict[str, Any] = {"lanes": LANES, "microbatch_size": 6, "seed": 5}
# Rows of 64 hold two or three examples, so that microbatches are about as large as the padded ones.
PACKED_RUN: dict[str, Any] = {"lanes": LANES, "microbatch_size": 2, "row_length": 64, "seed": 5}
both_forms = pytest.mark.parametrize("run", [RUN, PACKED_RUN], ids=["padded", "packed"])


@pytest.fixture
def dataset(tiny_dataset_path: Path) -> Dataset:
    return open_dataset(str(tiny_dataset_path))


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    alive = [thread for thread in threading.enumerate() if thread.name == loader_module.PREFETCH_THREAD_NAME]
    assert not alive


def take(loader: StreamingLoader, num_steps: int) -> list[list[Batch]]:
    return [next(loader) for _ in range(num_steps)]


def rows(batch: Batch) -> list[tuple[int, ...]]:
    """The examples of a batch by their tokens, which tell them apart."""
    if batch.packing is not None:
        flat, firsts = batch.input_ids.flatten(), batch.packing.first_positions[: batch.num_examples]
        return [
            tuple(flat[first : first + length].tolist())
            for first, length in zip(firsts, batch.lengths, strict=True)
        ]
    return [tuple(row[:length].tolist()) for row, length in zip(batch.input_ids, batch.lengths, strict=True)]


def stored_rows(dataset: Dataset, split: Any = "train") -> list[tuple[int, ...]]:
    return [
        tuple(ids)
        for shard in dataset.manifest.shards_of(split)
        for block in iterate_blocks(dataset, shard)
        for ids in block.column("input_ids").to_pylist()
    ]


def equal(one: Batch, other: Batch) -> bool:
    names = ("input_ids", "segment_ids", "masked_positions", "masked_ids", "next_sentence_labels")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def global_steps(
    dataset: Dataset | list[Dataset],
    run: dict[str, Any],
    world_size: int,
    num_steps: int,
    state: dict[str, Any] | None,
) -> tuple[list[list[Batch]], dict[str, Any]]:
    """Steps of all ranks put together in the order of their lanes, and the state afterwards."""
    ranks = [
        StreamingLoader(dataset, "train", rank=rank, world_size=world_size, state=state, **run)
        for rank in range(world_size)
    ]
    steps = []
    for _ in range(num_steps):
        by_lane = {lane: batch for rank in ranks for lane, batch in zip(rank.lanes, next(rank), strict=True)}
        assert sorted(by_lane) == list(range(LANES))
        steps.append([by_lane[lane] for lane in range(LANES)])
    states = [json.loads(json.dumps(rank.state_dict())) for rank in ranks]
    for rank in ranks:
        rank.close()
    return steps, merge_states(states[::-1])


@both_forms
def test_the_sequence_of_global_batches_does_not_depend_on_the_ranks(
    dataset: Dataset, run: dict[str, Any]
) -> None:
    with StreamingLoader(dataset, "train", **run) as alone:
        expected = take(alone, 29)
    # Steps at so many ranks, one resumed from the other.
    plan = [(4, 3), (1, 5), (8, 1), (2, 7), (3, 6), (1, 7)]
    state, found = None, []
    for world_size, num_steps in plan:
        steps, state = global_steps(dataset, run, world_size, num_steps, state)
        found += steps
    assert len(found) == len(expected)
    for one, other in zip(expected, found, strict=True):
        assert all(equal(a, b) for a, b in zip(one, other, strict=True))


def test_states_of_ranks_make_one(dataset: Dataset) -> None:
    with StreamingLoader(dataset, "train", **RUN) as alone:
        take(alone, 9)
        expected = alone.state_dict()
    _, state = global_steps(dataset, RUN, 3, 9, None)
    assert state == expected
    assert list(state["cursors"]) == [str(lane) for lane in range(LANES)]


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("window_examples", [20, 65_536])
@both_forms
def test_each_example_once_an_epoch(
    dataset: Dataset, run: dict[str, Any], lanes: int, window_examples: int
) -> None:
    run = {**run, "lanes": lanes, "window_examples": window_examples}
    epochs: dict[int, Counter[tuple[int, ...]]] = {0: Counter(), 1: Counter()}
    with StreamingLoader(dataset, "train", **run) as loader:
        cursors = [(0, 0, 0)] * lanes
        while min(epoch for epoch, _, _ in cursors) < 2:
            for (epoch, _, _), batch in zip(cursors, next(loader), strict=True):
                if epoch in epochs:
                    epochs[epoch].update(rows(batch))
            cursors = [tuple(cursor) for cursor in loader.state_dict()["cursors"].values()]
    assert epochs[0] == epochs[1] == Counter(stored_rows(dataset))


@both_forms
def test_a_step_is_resumable_wherever_the_thread_has_read_to(dataset: Dataset, run: dict[str, Any]) -> None:
    with StreamingLoader(dataset, "train", prefetch_steps=16, **run) as whole:
        steps, states = [], []
        for _ in range(12):
            states.append(whole.state_dict())
            steps.append(next(whole))
    for number, state in enumerate(states):
        with StreamingLoader(dataset, "train", state=state, prefetch_steps=0, **run) as resumed:
            for expected in steps[number : number + 2]:
                assert all(equal(a, b) for a, b in zip(expected, next(resumed), strict=True))


@pytest.mark.parametrize("prefetch_steps", [1, 5])
@both_forms
def test_reading_ahead_changes_nothing(dataset: Dataset, run: dict[str, Any], prefetch_steps: int) -> None:
    with (
        StreamingLoader(dataset, "train", prefetch_steps=0, **run) as plain,
        StreamingLoader(dataset, "train", prefetch_steps=prefetch_steps, **run) as ahead,
    ):
        for one, other in zip(take(plain, 40), take(ahead, 40), strict=True):
            assert all(equal(a, b) for a, b in zip(one, other, strict=True))


def test_fixed_sizes_change_the_shapes_alone(dataset: Dataset) -> None:
    with (
        StreamingLoader(dataset, "train", **PACKED_RUN) as exact,
        StreamingLoader(dataset, "train", fixed_sizes=True, **PACKED_RUN) as fixed,
    ):
        pairs = [pair for _ in range(40) for pair in zip(next(exact), next(fixed), strict=True)]
    for one, other in pairs:
        assert rows(one) == rows(other)
        assert torch.equal(one.masked_ids, other.masked_ids[other.masked_ids != NO_LABEL])
    shapes = {(*b.input_ids.shape, *b.masked_ids.shape, *b.next_sentence_labels.shape) for _, b in pairs}
    assert len(shapes) == 1
    assert {one.input_ids.shape[0] for one, _ in pairs} == {1, 2}


def test_rows_shorter_than_the_examples_are_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match=r"examples of up to 32 tokens, which rows of 16 can't hold"):
        StreamingLoader(dataset, "train", **{**PACKED_RUN, "row_length": 16})


def test_a_padded_position_is_refused_by_a_packed_run(dataset: Dataset) -> None:
    with StreamingLoader(dataset, "train", **RUN) as loader:
        state = loader.state_dict()
    run = {**RUN, "row_length": 64}
    with pytest.raises(UsageError, match="another run: row_length None there, 64 here"):
        StreamingLoader(dataset, "train", state=state, **run)


def test_another_seed_is_another_order(dataset: Dataset) -> None:
    with (
        StreamingLoader(dataset, "train", **RUN) as one,
        StreamingLoader(dataset, "train", **{**RUN, "seed": 6}) as other,
    ):
        assert not any(equal(a, b) for a, b in zip(next(one), next(other), strict=True))


@pytest.mark.parametrize("name", ["seed", "lanes", "microbatch_size", "window_examples"])
def test_a_state_of_another_run_is_refused_by_what_differs(dataset: Dataset, name: str) -> None:
    with StreamingLoader(dataset, "train", **RUN) as loader:
        state = loader.state_dict()
    run = {"window_examples": WINDOW_EXAMPLES, **RUN}
    with pytest.raises(UsageError, match=rf"another run: {name} {run[name]} there, {run[name] - 1} here"):
        StreamingLoader(dataset, "train", state=state, **{**run, name: run[name] - 1})


def test_a_state_of_other_data_is_refused(dataset: Dataset) -> None:
    with StreamingLoader(dataset, "validation", lanes=1, microbatch_size=6, seed=5) as loader:
        state = loader.state_dict()
    with pytest.raises(UsageError, match="fingerprint"):
        StreamingLoader(dataset, "train", state=state, **RUN)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"cursors": {}}, id="lanes missing"),
        pytest.param({"cursors": {str(lane): [0, 0, 999] for lane in range(LANES)}}, id="no such microbatch"),
        pytest.param({"cursors": {str(lane): [0, 999, 0] for lane in range(LANES)}}, id="no such window"),
        pytest.param({"cursors": {str(lane): [-1, 0, 0] for lane in range(LANES)}}, id="negative"),
        pytest.param({"cursors": {str(lane): ["x"] for lane in range(LANES)}}, id="no numbers"),
        pytest.param({"cursors": {str(lane): [0, 0, 10**30] for lane in range(LANES)}}, id="endless"),
        pytest.param({"pinned": 3}, id="nothing pinned"),
        pytest.param({"version": 99}, id="another version"),
    ],
)
def test_a_malformed_state_is_refused(dataset: Dataset, change: dict[str, Any]) -> None:
    with StreamingLoader(dataset, "train", **RUN) as loader:
        state = {**loader.state_dict(), **change}
    with pytest.raises(UsageError, match=r"position in the data"):
        StreamingLoader(dataset, "train", state=state, **RUN)


@pytest.mark.parametrize("prefetch_steps", [0, 3])
def test_an_error_of_the_thread_comes_out_again_and_again(
    tiny_dataset_path: Path, tmp_path: Path, prefetch_steps: int
) -> None:
    folder = shutil.copytree(tiny_dataset_path, tmp_path / "damaged")
    shard = folder / "train-00002-of-00004.tar"
    shard.write_bytes(shard.read_bytes()[:-512])
    dataset = open_dataset(str(folder))
    loader = StreamingLoader(dataset, "train", prefetch_steps=prefetch_steps, **RUN)
    for _ in range(2):
        with pytest.raises(CorruptDataError, match=r"train-00002-of-00004\.tar is truncated"):
            take(loader, 1000)
    loader.close()


def test_closing_ends_the_iteration_and_is_repeatable(dataset: Dataset) -> None:
    loader = StreamingLoader(dataset, "train", **RUN)
    next(loader)
    loader.close()
    loader.close()
    assert list(loader) == []


def test_a_forgotten_loader_takes_its_thread_along(dataset: Dataset) -> None:
    loader = StreamingLoader(dataset, "train", **RUN)
    next(loader)
    del loader
    gc.collect()  # The fixture looks for the thread.


def test_two_datasets_are_read_as_one(
    dataset: Dataset,
    tmp_path: Path,
    write_tiny_dataset: Callable[..., Path],
    make_tiny_examples: Callable[[int, int], Any],
) -> None:
    shards = {"train": [make_tiny_examples(30, 50)]}
    other = open_dataset(str(write_tiny_dataset(tmp_path / "other", shards, examples_per_block=7)))
    seen: Counter[tuple[int, ...]] = Counter()
    with StreamingLoader([dataset, other], "train", lanes=1, microbatch_size=6, seed=5) as loader:
        while loader.state_dict()["cursors"]["0"][0] == 0:
            seen.update(rows(next(loader)[0]))
    assert seen == Counter(stored_rows(dataset) + stored_rows(other))


SCHEDULES: list[Any] = [
    pytest.param({"schedule": "together"}, id="together"),
    pytest.param({"schedule": "sequence"}, id="sequence"),
    pytest.param({"weights": (1.0, 3.0, 0.5)}, id="weights"),
]
SEVERAL_SIZES = (30, 45, 70)


@pytest.fixture(scope="module")
def several(
    tmp_path_factory: pytest.TempPathFactory,
    write_tiny_dataset: Callable[..., Path],
    make_tiny_examples: Callable[[int, int], Any],
) -> list[Dataset]:
    """Three datasets of 30, 45 and 70 examples, in blocks of 3."""
    folder = tmp_path_factory.mktemp("several")
    return [
        open_dataset(
            str(
                write_tiny_dataset(
                    folder / str(size), {"train": [make_tiny_examples(size, 60 + size)]}, examples_per_block=3
                )
            )
        )
        for size in SEVERAL_SIZES
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@both_forms
def test_with_several_datasets_too_the_sequence_does_not_depend_on_the_ranks(
    several: list[Dataset], run: dict[str, Any], schedule: dict[str, Any]
) -> None:
    run = {**run, **schedule}
    with StreamingLoader(several, "train", prefetch_steps=0, **run) as alone:
        expected = take(alone, 24)
    state, found = None, []
    for world_size, num_steps in [(2, 5), (3, 1), (8, 3), (1, 4), (4, 6), (3, 5)]:
        steps, state = global_steps(several, run, world_size, num_steps, state)
        found += steps
    for one, other in zip(expected, found, strict=True):
        assert all(equal(a, b) for a, b in zip(one, other, strict=True))


@given(st.permutations([1, 2, 3, 4, 8]), st.sampled_from([0, 2]), st.sampled_from(SCHEDULES))
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_succession_of_ranks_reads_the_same(
    several: list[Dataset], succession: list[int], prefetch_steps: int, schedule: Any
) -> None:
    run = {**RUN, **schedule.values[0], "prefetch_steps": prefetch_steps}
    with StreamingLoader(several, "train", **run) as alone:
        expected = [[rows(batch) for batch in step] for step in take(alone, 10)]
    state, found = None, []
    for world_size in succession:
        steps, state = global_steps(several, run, world_size, 2, state)
        found += steps
    assert [[rows(batch) for batch in step] for step in found] == expected


@pytest.mark.parametrize("lanes", [1, 4])
@both_forms
def test_in_sequence_each_epoch_has_each_example_of_its_dataset_once(
    several: list[Dataset], run: dict[str, Any], lanes: int
) -> None:
    run = {**run, "lanes": lanes, "schedule": "sequence", "window_examples": 20}
    epochs: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(7)]
    with StreamingLoader(several, "train", **run) as loader:
        cursors = [(0, 0, 0)] * lanes
        while min(epoch for epoch, _, _ in cursors) < len(epochs):
            for (epoch, _, _), batch in zip(cursors, next(loader), strict=True):
                if epoch < len(epochs):
                    epochs[epoch].update(rows(batch))
            cursors = [tuple(cursor) for cursor in loader.state_dict()["cursors"].values()]
    expected = [Counter(stored_rows(dataset)) for dataset in several]
    assert epochs == [expected[epoch % 3] for epoch in range(7)]


@both_forms
def test_weights_are_the_shares_of_examples(several: list[Dataset], run: dict[str, Any]) -> None:
    run = {**run, "lanes": 2, "weights": (1.0, 3.0, 0.5)}
    owner = {row: number for number, dataset in enumerate(several) for row in stored_rows(dataset)}
    seen: Counter[int] = Counter()
    with StreamingLoader(several, "train", **run) as loader:
        cursors = [(0, 0, 0)] * 2
        while min(epoch for epoch, _, _ in cursors) < 18:
            for (epoch, _, _), batch in zip(cursors, next(loader), strict=True):
                if epoch < 18:
                    seen.update(owner[row] for row in rows(batch))
            cursors = [tuple(cursor) for cursor in loader.state_dict()["cursors"].values()]
    # 18 epochs of 145 examples; off by a run of blocks of its dataset at most.
    for number, share in enumerate((1 / 4.5, 3 / 4.5, 0.5 / 4.5)):
        assert abs(seen[number] - 18 * 145 * share) <= SEVERAL_SIZES[number] / 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_rank_is_ever_without_examples(several: list[Dataset], schedule: dict[str, Any]) -> None:
    # The first dataset has 10 blocks for 10 lanes: one window of one block a lane in each of its epochs.
    run = {**RUN, "lanes": 10, **schedule}
    for rank in range(8):
        with StreamingLoader(several, "train", rank=rank, world_size=8, **run) as loader:
            for step in take(loader, 30):
                assert len(step) == len(loader.lanes) >= 1
                assert all(batch.num_examples > 0 and batch.num_masked_tokens > 0 for batch in step)


@pytest.mark.parametrize(
    ("schedule", "numbers"),
    [
        ({}, "49 lanes need 49 blocks of examples at least; the data has 49"),
        ({"schedule": "sequence"}, "11 lanes need 11 blocks of examples at least; dataset 1 of 3 has 10"),
    ],
)
def test_more_lanes_than_blocks_are_refused_at_once(
    several: list[Dataset], schedule: dict[str, Any], numbers: str
) -> None:
    lanes = int(numbers.split()[0])
    if not schedule:
        StreamingLoader(several, "train", **{**RUN, "lanes": lanes}).close()
        lanes, numbers = 50, numbers.replace("49 lanes need 49", "50 lanes need 50")
    with pytest.raises(UsageError, match=numbers):
        StreamingLoader(several, "train", **{**RUN, "lanes": lanes, **schedule})


@pytest.mark.parametrize(
    ("there", "here", "differing"),
    [
        ({"schedule": "sequence"}, {}, "schedule 'sequence' there, 'together' here"),
        ({"weights": (1.0, 2.0, 3.0)}, {}, r"weights \[1.0, 2.0, 3.0\] there, None here"),
        (
            {"weights": (1.0, 2.0, 3.0)},
            {"weights": (1.0, 2.0, 4.0)},
            r"weights \[1.0, 2.0, 3.0\] there, \[1.0, 2.0, 4.0\] here",
        ),
    ],
)
def test_a_position_under_another_schedule_is_refused(
    several: list[Dataset], there: dict[str, Any], here: dict[str, Any], differing: str
) -> None:
    with StreamingLoader(several, "train", **RUN, **there) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
    StreamingLoader(several, "train", state=state, **RUN, **there).close()
    with pytest.raises(UsageError, match=differing):
        StreamingLoader(several, "train", state=state, **RUN, **here)


def test_datasets_of_two_tokenizers_are_refused(
    dataset: Dataset,
    tmp_path: Path,
    write_tiny_dataset: Callable[..., Path],
    make_tiny_examples: Callable[[int, int], Any],
) -> None:
    shards = {"train": [make_tiny_examples(10, 50)]}
    other = open_dataset(str(write_tiny_dataset(tmp_path / "other", shards, tokenizer_json=b"{}")))
    with pytest.raises(UsageError, match="different tokenizers"):
        StreamingLoader([dataset, other], "train", **RUN)


def test_iterate_once_gives_the_held_out_examples_in_stored_order(dataset: Dataset) -> None:
    batches = list(iterate_once(dataset, "validation", 4))
    assert [row for batch in batches for row in rows(batch)] == stored_rows(dataset, "validation")
    # Blocks of 10, 10 and 5, each cut into as few batches of at most 4 as it takes.
    assert [batch.num_examples for batch in batches] == [4, 3, 3, 4, 3, 3, 3, 2]


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, [1]), (10, [4, 3, 3]), (13, [4, 3, 3, 3]), (99, None)], ids=str
)
def test_iterate_once_ends_after_so_many_examples(
    dataset: Dataset, most: int, sizes: list[int] | None
) -> None:
    batches = list(iterate_once(dataset, "validation", 4, most))
    assert [row for batch in batches for row in rows(batch)] == stored_rows(dataset, "validation")[:most]
    assert sizes is None or [batch.num_examples for batch in batches] == sizes


def test_a_split_without_examples_is_named(
    tmp_path: Path, write_tiny_dataset: Callable[..., Path], make_tiny_examples: Callable[[int, int], Any]
) -> None:
    folder = write_tiny_dataset(tmp_path / "set", {"train": [make_tiny_examples(10, 1)]})
    with pytest.raises(UsageError, match="no validation examples"):
        next(iterate_once(open_dataset(str(folder)), "validation", 4))
