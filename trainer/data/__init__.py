"""From a dataset's URL to padded or packed batches, in an order that is arithmetic.

The way of the data, a module a step:

    opener              bytes of a local, gs://, s3:// or https:// file, read again from where a read failed
    dataset             `dataset.json` -> Dataset
    tar_stream          the members of a shard, nothing trusted
    block_format        one member -> a checked Arrow record batch
    blocks              a shard, or a run of its blocks, checked against the manifest
    example_arrays      record batches -> flat NumPy arrays
    units               shards -> whole ones or runs of their blocks
    mixture             which units an epoch takes of each of several datasets
    order               which examples come when: pure functions of the manifest and the seed
    packing             lengths -> which examples lie side by side in rows of one length
    microbatches        the examples of a window -> microbatches, padded or packed
    batches             examples -> padded torch tensors
    packed_batches      examples -> rows filled with them
    shard_source        the shards of a split, and their windows
    step_maker          the global steps of one rank
    prefetching         any iterator in a thread
    loader              all of it, resumable at every global step
    webdataset_stage    `unblock`, for those who read the shards with webdataset

The names below are loaded when they are first used, so that `import trainer.data.dataset` leaves torch out.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.data.batches import Batch
    from trainer.data.blocks import iterate_blocks, read_shard
    from trainer.data.dataset import Dataset, open_dataset
    from trainer.data.loader import StreamingLoader, iterate_once, merge_states
    from trainer.data.webdataset_stage import unblock

__all__ = [
    "Batch",
    "Dataset",
    "StreamingLoader",
    "iterate_blocks",
    "iterate_once",
    "merge_states",
    "open_dataset",
    "read_shard",
    "unblock",
]

_HOMES = {
    "Batch": "trainer.data.batches",
    "Dataset": "trainer.data.dataset",
    "StreamingLoader": "trainer.data.loader",
    "iterate_blocks": "trainer.data.blocks",
    "iterate_once": "trainer.data.loader",
    "merge_states": "trainer.data.loader",
    "open_dataset": "trainer.data.dataset",
    "read_shard": "trainer.data.blocks",
    "unblock": "trainer.data.webdataset_stage",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
