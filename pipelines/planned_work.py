"""The work that a job planned, and the part of it that an earlier run did.

In: a plan, a file of the work folder. Out: its pieces, spread over the workers, those that are finished
apart from the others. Deterministic: which pieces there are follows from the plan, and which are finished
from their records and files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from pipelines.work_folder import WorkFolder

FINISHED = "finished"
UNFINISHED = "unfinished"


class ReadPlan(beam.PTransform):
    """The pieces of a plan, spread over the workers.

    Args:
        path: the plan.
        load: reads the pieces from it.
        kind: the class of a piece.
    """

    def __init__(self, path: str, load: Callable[[str], Iterable[Any]], kind: type) -> None:
        super().__init__()
        self._path = path
        self._load = load
        self._kind = kind

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The plan travels as a file: that of a large job doesn't fit into the graph of the pipeline."""
        return (
            pipeline
            | "Begin" >> beam.Impulse()
            | "LoadPlan" >> beam.FlatMap(_load_plan, self._load, self._path).with_output_types(self._kind)
            | "Spread" >> beam.Reshuffle()
        )


def _load_plan(_: bytes, load: Callable[[str], Iterable[Any]], path: str) -> Iterable[Any]:
    return load(path)


class FindFinished(beam.PTransform):
    """Parts the pieces: under `UNFINISHED` those to do, under `FINISHED` the records of the others."""

    def __init__(self, work: WorkFolder) -> None:
        super().__init__()
        self._work = work

    def expand(self, pieces: beam.PCollection) -> Any:
        """Each piece is looked up by its name."""
        return pieces | beam.ParDo(_FindFinishedFn(self._work)).with_outputs(FINISHED, main=UNFINISHED)


class _FindFinishedFn(beam.DoFn):
    def __init__(self, work: WorkFolder) -> None:
        self._work = work

    def process(self, piece: Any) -> Iterator[Any]:
        record = self._work.load_finished(piece.name)
        if record is None:
            yield piece
        else:
            yield TaggedOutput(FINISHED, record)
