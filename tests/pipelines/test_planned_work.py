from __future__ import annotations

from pathlib import Path

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from pipelines.hashing_writer import WrittenFile
from pipelines.ingest_plan import dump_plan, load_plan
from pipelines.launching import IN_PROCESS_RUNNER
from pipelines.planned_work import FINISHED, UNFINISHED, FindFinished, ReadPlan
from pipelines.reads import ReadDescriptor, ReadPiece
from pipelines.work_folder import WorkFolder


def test_finished_pieces_come_apart_as_their_records(tmp_path: Path) -> None:
    reads = [
        ReadDescriptor((ReadPiece(f"{name}.txt", "text", None, 0, None, 3),), 3)
        for name in ("whole", "damaged", "new")
    ]
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start({}, overwrite=False, owned_names=("corpus.json",))
        for read in reads[:2]:
            with work.write_file(f"{read.name}.bin") as writer:
                writer.write(b"abc")
            file = {"name": f"{read.name}.bin", "sha256": writer.sha256, "size_bytes": 3}
            work.finish(read.name, [WrittenFile(**file)], {"read": read.name})
    (tmp_path / f"{reads[1].name}.bin").write_bytes(b"abd")
    (tmp_path / "plan").write_bytes(dump_plan(reads))

    with beam.Pipeline(runner=IN_PROCESS_RUNNER) as pipeline:
        pieces = (
            pipeline
            | "List" >> ReadPlan(str(tmp_path / "plan"), load_plan, ReadDescriptor)
            | "Find" >> FindFinished(work)
        )
        assert_that(pieces[FINISHED], equal_to([{"read": reads[0].name}]), label="finished")
        names = pieces[UNFINISHED] | beam.Map(lambda read: read.name)
        assert_that(names, equal_to([reads[1].name, reads[2].name]), label="unfinished")
