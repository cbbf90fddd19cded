from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as wds

import trainer.data
from schemas.errors import CorruptDataError
from trainer.data import unblock
from trainer.data.webdataset_stage import unblock as unblock_in_its_module

Examples = Callable[[int, int], list[dict[str, Any]]]


def plain(example: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in example.items() if not name.startswith("__")}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()
    }


def test_webdataset_reads_a_shard_example_by_example(
    tiny_dataset_path: Path, make_tiny_examples: Examples
) -> None:
    url = str(tiny_dataset_path / "train-00000-of-00004.tar")
    found = list(wds.WebDataset(url, shardshuffle=False).compose(unblock))
    assert [plain(example) for example in found] == make_tiny_examples(47, 0)
    assert found[0]["__key__"] == "train-00000-000000-000000"
    assert found[46]["__key__"] == "train-00000-000004-000006"
    assert found[0]["__url__"] == url
    assert found[0]["input_ids"].dtype == found[0]["masked_lm_positions"].dtype == np.uint16


def test_keys_are_unique_over_the_shards(tiny_dataset_path: Path) -> None:
    urls = [str(path) for path in sorted(tiny_dataset_path.glob("*.tar"))]
    keys = [example["__key__"] for example in wds.WebDataset(urls, shardshuffle=False).compose(unblock)]
    assert len(set(keys)) == len(keys) == 217


def test_four_byte_ids(encode_block: Callable[..., bytes], make_tiny_examples: Examples) -> None:
    examples = make_tiny_examples(3, 0)
    found = list(unblock([{"__key__": "k", "arrow": encode_block(examples, vocab_size=70_000)}]))
    assert [plain(example) for example in found] == examples
    assert found[0]["input_ids"].dtype == np.uint32


def test_examples_may_be_changed(encode_block: Callable[..., bytes], make_tiny_examples: Examples) -> None:
    content = encode_block(make_tiny_examples(2, 0))
    first, second = unblock([{"__key__": "k", "arrow": content}])
    before = second["input_ids"].tolist()
    first["input_ids"][:] = 0
    assert second["input_ids"].tolist() == before
    assert content == encode_block(make_tiny_examples(2, 0))


@pytest.mark.parametrize(
    ("sample", "complaint"),
    [
        ({"__key__": "k", "json": b"{}"}, r"k has no bytes under `arrow` but \['__key__', 'json'\]"),
        ({"__key__": "k", "arrow": "text"}, "k has no bytes under `arrow`"),
        ({"__key__": "k", "arrow": b"rubbish"}, "k is no valid block of examples: it is no Arrow IPC file"),
    ],
)
def test_what_is_no_block_is_refused(sample: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CorruptDataError, match=complaint):
        list(unblock([sample]))


def test_the_package_exports_by_name() -> None:
    assert unblock is unblock_in_its_module
    assert all(getattr(trainer.data, name) for name in trainer.data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trainer.data.nothing
