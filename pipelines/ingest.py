"""The job `ingest`: from text files to a corpus of tokenized documents.

In: an `IngestConfig` and a tokenizer. Out: `train/`, `validation/`, `rejects/`, `tokenizer.json` and, last,
`corpus.json`. Deterministic: the same inputs, configuration and tokenizer give the same bytes with any runner
and any number of workers, also when the job was interrupted and run again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam

from pipelines import ingest_steps as steps
from pipelines import storage
from pipelines.corpus_manifest import IngestJob, commit_corpus, load_corpus_manifest
from pipelines.corpus_writer import REJECTS_FOLDER
from pipelines.duplicate_steps import FindDuplicates, ReadOrder
from pipelines.ingest_plan import IngestPlan, dump_plan, load_plan, plan_ingest
from pipelines.launching import count_cores, run_pipeline
from pipelines.planned_work import FINISHED, UNFINISHED, FindFinished, ReadPlan
from pipelines.reads import ReadDescriptor
from pipelines.rejections import ADVICE_BY_REASON
from pipelines.row_groups import choose_row_group_tokens
from pipelines.tokenizer_files import load_tokenizer
from pipelines.work_folder import WorkFolder, created_by, describe_difference
from schemas.configs import IngestConfig
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import CORPUS_MANIFEST_NAME, SPLITS, TOKENIZER_NAME, CorpusManifest

_PLAN_NAME = "reads.jsonl"
_OWNED_NAMES = (CORPUS_MANIFEST_NAME, TOKENIZER_NAME, *SPLITS, REJECTS_FOLDER)


def run_ingest(
    config: IngestConfig,
    tokenizer: str,
    output: str,
    *,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CorpusManifest:
    """Read, segment and tokenize documents into a corpus; go on with the work that is found at `output`.

    Args:
        config: what to read and how.
        tokenizer: a `tokenizer.json`, a `vocab.txt`, or a folder with either.
        output: the folder of the corpus, local or in an object store.
        workers: processes on this machine, None for one a core.
        beam_args: Beam's own options; a `--runner` among them wins over `workers`.
        overwrite: make it anew, whatever lies there.
        progress: called with (finished reads, all reads) from a thread of this process.

    Returns:
        The manifest: of the corpus that was made, or that was there already from the same inputs and options.

    Raises:
        UsageError: the inputs, the tokenizer or the output don't do; nothing was written.
        ClozelineError: the work failed; what was finished is kept for the next run.
    """
    storage.use_options(beam_args)
    _, record, tokenizer_json = load_tokenizer(tokenizer)
    plan = plan_ingest(config)
    if not plan.reads:
        raise _explain_nothing(plan)
    work = WorkFolder(output)
    job = IngestJob(
        config=config,
        tokenizer=record,
        num_reads=len(plan.reads),
        num_input_files=plan.num_input_files,
        num_input_bytes=plan.num_input_bytes,
        created_by=created_by(),
        work=work,
    )
    if not overwrite and (done := _find_done(job)) is not None:
        work.remove_remains()
        return done
    with work.hold():
        if not overwrite and (done := _find_done(job)) is not None:
            work.remove()  # another process has finished it meanwhile
            return done
        work.start(_pin(job, plan), overwrite=overwrite, owned_names=_OWNED_NAMES)
        storage.write_bytes(storage.join(output, TOKENIZER_NAME), tokenizer_json, work.path)
        storage.write_bytes(storage.join(work.path, _PLAN_NAME), dump_plan(plan.reads), work.path)
        run_pipeline(
            lambda pipeline: pipeline | Ingest(job),
            # More processes than reads would only take time to start.
            workers=max(1, min(workers or count_cores(), len(plan.reads))),
            beam_args=beam_args,
            report=work.report_to(progress, len(plan.reads)),
        )
        manifest = load_corpus_manifest(output)
        if manifest is None:
            raise _explain_empty(job, plan)
        work.remove()
    return manifest


class Ingest(beam.PTransform):
    """The whole job, from the plan to the manifest."""

    def __init__(self, job: IngestJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read top to bottom: what happens to the documents."""
        job = self._job
        plan_path = storage.join(job.work.path, _PLAN_NAME)
        planned = pipeline | "ListReads" >> ReadPlan(plan_path, load_plan, ReadDescriptor)
        reads = planned | "FindFinished" >> FindFinished(job.work)
        if job.config.keep_duplicates:
            read_documents = beam.ParDo(steps.ReadDocumentsFn(job.config))
        else:
            order = ReadOrder(job.work, plan_path)
            repeats = planned | "FindDuplicates" >> FindDuplicates(job.work, job.config, order)
            read_documents = beam.ParDo(steps.ReadDocumentsFn(job.config, order), beam.pvalue.AsList(repeats))
        written = (
            reads[UNFINISHED]  # ReadDescriptor
            | "ReadDocuments" >> read_documents
            | "SegmentSentences" >> beam.ParDo(steps.SegmentSentencesFn(job.config))
            | "TokenizeSentences" >> TokenizeSentences(job)
            | "WriteCorpus" >> WriteCorpus(job)
        )
        return (
            (reads[FINISHED], written)
            | "JoinRecords" >> beam.Flatten()
            | "WriteManifest" >> WriteManifest(job)
        )


class TokenizeSentences(beam.PTransform):
    """Sentences to token ids, by split: `TableBatch`."""

    def __init__(self, job: IngestJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Workers take the tokenizer from the corpus folder."""
        job = self._job
        path = storage.join(job.work.output, TOKENIZER_NAME)
        return batches | beam.ParDo(
            steps.TokenizeSentencesFn(path, job.tokenizer, job.config.validation_fraction)
        )


class WriteCorpus(beam.PTransform):
    """Tokenized documents to files: a record (`dict`) for each read."""

    def __init__(self, job: IngestJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Files appear under their names when they are whole."""
        return batches | beam.ParDo(
            steps.WriteCorpusFn(
                self._job.work,
                vocab_size=self._job.tokenizer.vocab_size,
                row_group_tokens=choose_row_group_tokens(self._job.num_input_bytes),
            )
        )


class WriteManifest(beam.PTransform):
    """The records of all reads to `corpus.json`, in one step: the commit."""

    def __init__(self, job: IngestJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        """One element comes out, when the manifest is written; there is a record at least."""
        return (
            records
            | "Collect" >> beam.combiners.ToList().without_defaults()
            | "Commit" >> beam.Map(commit_corpus, self._job).with_output_types(bool)
        )


def _pin(job: IngestJob, plan: IngestPlan) -> dict[str, Any]:
    return {
        "config": job.config.model_dump(mode="json"),
        "created_by": job.created_by,
        "num_input_bytes": job.num_input_bytes,
        "num_input_files": job.num_input_files,
        "reads_sha256": hashlib.sha256(dump_plan(plan.reads)).hexdigest(),
        "tokenizer_sha256": job.tokenizer.sha256,
    }


def _find_done(job: IngestJob) -> CorpusManifest | None:
    manifest = load_corpus_manifest(job.work.output)
    if manifest is None:
        return None
    names = {"config", "tokenizer", "num_input_files", "num_input_bytes"}
    before = manifest.model_dump(mode="json", include=names)
    now = {
        "config": job.config.model_dump(mode="json"),
        "tokenizer": job.tokenizer.model_dump(mode="json"),
        "num_input_files": job.num_input_files,
        "num_input_bytes": job.num_input_bytes,
    }
    if before != now:
        raise UsageError(
            f"{job.work.output} holds a corpus already, made otherwise: {describe_difference(before, now)}\n"
            "Choose another --output, or add --overwrite to make this one anew."
        )
    return manifest


def _explain_empty(job: IngestJob, plan: IngestPlan) -> ClozelineError:
    records = job.work.read_records(read.name for read in plan.reads)
    rejected = sum((Counter(record["rejected"]) for record in records), Counter[str]())
    example = _first_reject(job.work.output)
    for name in _OWNED_NAMES:
        storage.delete(storage.join(job.work.output, name))
    job.work.remove()
    if not rejected:
        return _explain_nothing(plan)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))
    return ClozelineError(
        f"none of the {rejected.total()} documents read could be kept: {counts}\n"
        f"The first: {example}{_advise(rejected)}"
    )


def _advise(rejected: Counter[str]) -> str:
    advice = ADVICE_BY_REASON.get(max(sorted(rejected), key=rejected.__getitem__))
    return f". {advice}" if advice else ""


def _explain_nothing(plan: IngestPlan) -> ClozelineError:
    return ClozelineError(
        f"no document in the input, {plan.num_input_bytes} bytes in all\nCheck --input and --format."
    )


def _first_reject(output: str) -> str:
    entry = storage.list_folder(storage.join(output, REJECTS_FOLDER))[:1]
    if not entry:
        return "unknown"
    with storage.open_read(entry[0].path) as stream:
        document = json.loads(stream.readline())
    return f"{document['document_id']}: {document['detail']}"
