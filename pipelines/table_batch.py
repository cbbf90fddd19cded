"""The element that carries Arrow tables between the steps of a job.

In: a small descriptor of the work and the tables that a step made of it. Out: the same object, by reference,
in the next step: fused steps never copy it. Deterministic: encoding writes Arrow IPC, so the same batch gives
the same bytes.

Beam's worker estimates element sizes on every edge by encoding a sample of the elements, and encodes an
object of an unknown class by pickling it, which copies the whole buffer that a slice points into. The coder
here answers the estimate from the number of bytes alone and encodes only where a runner breaks the fusion.
It is found by type: a DoFn that emits batches says so with `@beam.typehints.with_output_types(TableBatch)`.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import pyarrow as pa

_SMALL_PARTS_BYTES = 256
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class TableBatch:
    """Some tables of one piece of work, which may come in several batches.

    Attributes:
        work: what the tables belong to: a small, picklable descriptor (a read, a pool).
        tables: named tables; the names are an agreement between two steps.
        sequence: 0 for the first batch of a piece of work, then 1, 2, …
        is_last: no further batch of this piece of work follows.
        notes: small picklable extras that travel along (counts, rejected documents).
    """

    work: Any
    tables: Mapping[str, pa.Table]
    sequence: int = 0
    is_last: bool = True
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables in memory, without those of buffers that a slice merely points into."""
        return sum(table.nbytes for table in self.tables.values())


class TableBatchCoder(beam.coders.Coder):
    """Encodes a `TableBatch` as a pickled header and one Arrow IPC stream a table."""

    def encode(self, value: TableBatch) -> bytes:
        """The bytes of a batch: header length, header, then length and stream of each table."""
        header = pickle.dumps(
            (value.work, tuple(value.tables), value.sequence, value.is_last, dict(value.notes)), protocol=5
        )
        parts = [_LENGTH.pack(len(header)), header]
        for table in value.tables.values():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            stream = sink.getvalue()
            parts += [_LENGTH.pack(stream.size), stream]
        return b"".join(parts)

    def decode(self, encoded: bytes) -> TableBatch:
        """The batch that was encoded; its tables point into `encoded`."""
        buffer = pa.py_buffer(encoded)
        header, position = _take(buffer, 0)
        work, names, sequence, is_last, notes = pickle.loads(header)
        tables = {}
        for name in names:
            stream, position = _take(buffer, position)
            tables[name] = pa.ipc.open_stream(stream).read_all()
        return TableBatch(work=work, tables=tables, sequence=sequence, is_last=is_last, notes=notes)

    def estimate_size(self, value: TableBatch) -> int:
        """About the bytes of the encoded batch, without encoding it."""
        return value.nbytes + _SMALL_PARTS_BYTES

    def is_deterministic(self) -> bool:
        """False: a batch is no key to group by."""
        return False


def _take(buffer: pa.Buffer, position: int) -> tuple[pa.Buffer, int]:
    start = position + _LENGTH.size
    (length,) = _LENGTH.unpack(buffer.slice(position, _LENGTH.size))
    return buffer.slice(start, length), start + length


# Beam finds a coder by the type that a DoFn declares, in a registry of the process: there is no other place
# to say it, and every module that emits batches imports this one.
beam.coders.registry.register_coder(TableBatch, TableBatchCoder)
