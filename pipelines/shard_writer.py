"""Write blocks of examples as members of a tar file: one shard of a WebDataset.

In: record batches and a binary stream. Out: a USTAR archive whose members are Arrow IPC files. Deterministic:
the same blocks give the same bytes; members carry no time, user or permission of the machine.
"""

from __future__ import annotations

import tarfile
from typing import IO

import pyarrow as pa

BLOCK_SUFFIX = ".arrow"

_MODE = 0o644


class ShardWriter:
    """Appends blocks to a tar file. `num_blocks` says how many there are.

    Args:
        stream: where the bytes go; needs `write` and `tell`, and is left open.
        stem: what the members' names begin with, such as `train-00003`: unique in the dataset.
    """

    def __init__(self, stream: IO[bytes], stem: str) -> None:
        self.num_blocks = 0
        self._stem = stem
        self._archive = tarfile.open(mode="w", fileobj=stream, format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def write_block(self, block: pa.RecordBatch) -> None:
        """Append a member such as `train-00003-000017.arrow`."""
        content = serialise_block(block)
        member = tarfile.TarInfo(f"{self._stem}-{self.num_blocks:06d}{BLOCK_SUFFIX}")
        member.size = content.size
        member.mode = _MODE
        self._archive.addfile(member, pa.BufferReader(content))
        self.num_blocks += 1

    def close(self) -> None:
        """End the archive; nothing can be appended any more."""
        self._archive.close()


def serialise_block(block: pa.RecordBatch) -> pa.Buffer:
    """An Arrow IPC file with one record batch, uncompressed and without padding of examples."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, block.schema) as writer:
        writer.write_batch(block)
    return sink.getvalue()
