from __future__ import annotations

import threading

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.launching import IN_PROCESS_RUNNER
from pipelines.table_batch import TableBatch, TableBatchCoder


def make_batch(num_rows: int = 3) -> TableBatch:
    documents = pa.table({"text": pa.array(["a", "bé", ""] * (num_rows // 3), pa.large_string())})
    lengths = pa.table({"lengths": pa.array([[1, 2], [], [3]], pa.list_(pa.int32()))})
    return TableBatch(
        work=("read", 7),
        tables={"documents": documents, "lengths": lengths},
        sequence=4,
        is_last=False,
        notes={"rejected": ("x", "y"), "num_text_bytes": 12},
    )


def test_a_batch_survives_encoding() -> None:
    coder = TableBatchCoder()
    batch = make_batch()
    decoded = coder.decode(coder.encode(batch))
    assert decoded == batch
    assert list(decoded.tables) == ["documents", "lengths"]


def test_a_slice_is_encoded_without_the_rest_of_its_buffer() -> None:
    table = pa.table({"text": ["word " * 20] * 10_000})
    piece = TableBatch(work=None, tables={"t": table.slice(5, 2)})
    assert len(TableBatchCoder().encode(piece)) < 2_000
    assert TableBatchCoder().estimate_size(piece) < 2_000
    assert TableBatchCoder().decode(TableBatchCoder().encode(piece)) == piece


def test_the_size_is_estimated_without_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableBatchCoder, "encode", lambda *_: pytest.fail("encoded"))
    batch = make_batch(3_000)
    size = TableBatchCoder().get_impl().estimate_size(batch)
    assert batch.nbytes <= size <= batch.nbytes + 1_000


def test_fused_steps_pass_the_same_object_and_never_encode_it() -> None:
    @beam.typehints.with_output_types(TableBatch)
    class MakeFn(beam.DoFn):
        def process(self, number):
            # A lock can't be pickled: to encode this batch raises.
            batch = TableBatch(work=threading.Lock(), tables={"t": pa.table({"n": [number]})}, notes={})
            batch.notes["identity"] = id(batch)
            yield batch

    class CheckFn(beam.DoFn):
        def process(self, batch):
            assert batch.notes["identity"] == id(batch)

    with beam.Pipeline(options=PipelineOptions([f"--runner={IN_PROCESS_RUNNER}"])) as pipeline:
        batches = pipeline | beam.Create(range(50), reshuffle=False) | beam.ParDo(MakeFn())
        _ = batches | beam.ParDo(CheckFn())
    assert batches.element_type is TableBatch
    assert isinstance(beam.coders.registry.get_coder(TableBatch), TableBatchCoder)
