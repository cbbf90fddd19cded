"""The job `build`: from a corpus of tokenized documents to a dataset of masked examples.

In: a `BuildConfig` and the folder of a corpus. Out: shards, `tokenizer.json` and, last, `dataset.json`.
Deterministic: the same corpus and configuration give the same bytes with any runner and any number of
workers, wherever the corpus and its inputs lie, also when the job was interrupted and run again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from pipelines import build_steps as steps
from pipelines import storage
from pipelines.example_rate import measure_examples_a_token
from pipelines.launching import count_cores, run_pipeline
from pipelines.planned_work import FINISHED, UNFINISHED, FindFinished, ReadPlan
from pipelines.pool_assignment import assign_pools
from pipelines.pool_reader import read_corpus_manifest, read_corpus_tokenizer
from pipelines.pools import PoolDescriptor, dump_plan, load_plan
from pipelines.shard_record import DatasetDraft
from pipelines.work_folder import WorkFolder, created_by, describe_difference
from schemas.configs import BuildConfig, Objective
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import (
    DATASET_MANIFEST_NAME,
    SPLITS,
    TOKENIZER_NAME,
    DatasetManifest,
    parse_manifest,
)

_PLAN_NAME = "pools.jsonl"
_SHARD_NAME = re.compile(r"(train|validation)-\d{5,}-of-\d{5,}\.tar")
_UNBALANCED_SHARE = 0.02
_WHY_NO_EXAMPLE: dict[Objective, str] = {
    "next-sentence": "all have the same text, so that none has a NotNext segment for another",
    "sentence-order": "each has one sentence only",
    "mlm": "none has a token",
}


@dataclass(frozen=True)
class BuildResult:
    """What `run_build` made.

    Attributes:
        manifest: of the dataset.
        warnings: a line each for what a person should know of it.
    """

    manifest: DatasetManifest
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """Everything that the steps of the pipeline need to know."""

    draft: DatasetDraft
    corpus: str
    work: WorkFolder


def run_build(
    config: BuildConfig,
    corpus: str,
    output: str,
    *,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> BuildResult:
    """Pair, mask and shuffle the documents of a corpus; go on with the work that is found at `output`.

    Args:
        config: seed, lengths, shares and objective.
        corpus: the folder that `ingest` wrote.
        output: the folder of the dataset, local or in an object store.
        workers: processes on this machine, None for one a core.
        beam_args: Beam's own options; a `--runner` among them wins over `workers`.
        overwrite: make it anew, whatever lies there.
        progress: called with (finished shards, all shards) from a thread of this process.

    Returns:
        The manifest, of the dataset that was made or that was there already, and warnings.

    Raises:
        UsageError: there is no corpus, or the output doesn't do; nothing was written.
        CorruptDataError: a file of the corpus isn't what its manifest says.
        ClozelineError: the documents can't give such examples, or the work failed; what was finished is kept.
    """
    if storage.join(corpus, "") == storage.join(output, ""):
        raise UsageError(f"--corpus and --output are both {output}\nChoose another folder for the dataset.")
    storage.use_options(beam_args)
    corpus_manifest = read_corpus_manifest(corpus)
    tokenizer_json = read_corpus_tokenizer(corpus, corpus_manifest)
    examples_a_token = None
    if config.examples_per_shard is not None:
        examples_a_token = measure_examples_a_token(corpus, corpus_manifest, config)
    pools, warnings = assign_pools(corpus_manifest, config, examples_a_token)
    draft = DatasetDraft(
        config=config,
        tokenizer=corpus_manifest.tokenizer,
        corpus_fingerprint=corpus_manifest.fingerprint,
        pool_names=tuple(pool.name for pool in pools),
    )
    job = BuildJob(draft=draft, corpus=corpus, work=WorkFolder(output))
    manifest = None if overwrite else _find_done(job)
    if manifest is not None:
        job.work.remove_remains()
    else:
        with job.work.hold():
            manifest = None if overwrite else _find_done(job)
            if manifest is None:
                manifest = _build(job, pools, tokenizer_json, workers, beam_args, overwrite, progress)
    return BuildResult(manifest, (*warnings, *describe_oddities(manifest, pools)))


def describe_oddities(manifest: DatasetManifest, pools: Sequence[PoolDescriptor]) -> Iterator[str]:
    """What a person should know of a dataset: documents left out, labels out of balance."""
    names = {shard.name for shard in manifest.shards}
    num_unused = sum(shard.num_documents_unused for shard in manifest.shards)
    num_unused += sum(pool.num_documents for pool in pools if pool.shard_name not in names)
    if num_unused:
        num_documents = sum(pool.num_documents for pool in pools)
        yield f"{num_unused:,} of {num_documents:,} documents gave no example of their own"
    for split in SPLITS:
        if any(pool.split == split for pool in pools) and not manifest.shards_of(split):
            yield f"no document in {split} gave an example: the split is left out"
    asked, num_train = manifest.config.num_shards, len(manifest.shards_of("train"))
    if asked is not None and num_train < asked:
        yield f"train has {num_train} shards, not {asked}: the documents of the others gave no example"
    if manifest.config.objective == "next-sentence" and manifest.config.next_sentence_balance:
        num_is_next = sum(shard.num_is_next for shard in manifest.shards)
        share = num_is_next / manifest.num_examples
        # A small dataset is out of balance by chance: two standard errors are no news.
        if abs(share - 0.5) > max(_UNBALANCED_SHARE, manifest.num_examples**-0.5):
            reason = (
                "a chunk of one sentence, be it a short document or a long sentence, has no next one"
                if share < 0.5
                else "for many chunks no NotNext segment was found, as documents have the same text"
            )
            yield f"{share:.1%} of the pairs are IsNext, where half were aimed at: {reason}"


class Build(beam.PTransform):
    """The whole job, from the plan to the manifest."""

    def __init__(self, job: BuildJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read top to bottom: what happens to the pools."""
        job, config = self._job, self._job.draft.config
        vocab_size = job.draft.tokenizer.vocab_size
        pools = (
            pipeline
            | "AssignPools" >> ReadPlan(storage.join(job.work.path, _PLAN_NAME), load_plan, PoolDescriptor)
            | "FindFinished" >> FindFinished(job.work)
        )
        written = (
            pools[UNFINISHED]  # PoolDescriptor
            | "ReadPool" >> beam.ParDo(steps.ReadPoolFn(job.corpus, vocab_size))  # TableBatch: its tokens
            | "SamplePairs" >> beam.ParDo(steps.SamplePairsFn(config))  # … and its pairs
            | "ShuffleExamples" >> beam.ParDo(steps.ShuffleExamplesFn(config.seed))
            | "MaskTokens" >> beam.ParDo(steps.MaskTokensFn(config, job.work.output))  # TableBatch: a block
            | "WriteShards" >> beam.ParDo(steps.WriteShardFn(job.work))  # str: name of a pool
        )
        return (
            (pools[FINISHED], written)
            | "JoinPools" >> beam.Flatten()  # an element a pool: its record or its name
            | "WriteManifest" >> WriteManifest(job)
        )


class WriteManifest(beam.PTransform):
    """When all pools are finished, their records to `dataset.json`, in one step: the commit."""

    def __init__(self, job: BuildJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, finished: beam.PCollection) -> beam.PCollection:
        """One element comes out, when the manifest is written; there is a pool at least."""
        return (
            finished
            | "Count" >> beam.combiners.Count.Globally().without_defaults()
            | "Commit" >> beam.ParDo(steps.CommitDatasetFn(self._job.work, self._job.draft))
        )


def _build(
    job: BuildJob,
    pools: Sequence[PoolDescriptor],
    tokenizer_json: bytes,
    workers: int | None,
    beam_args: Sequence[str],
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
) -> DatasetManifest:
    work = job.work
    work.start(_pin(job), overwrite=overwrite, owned_names=_owned_names(work.output))
    storage.write_bytes(storage.join(work.output, TOKENIZER_NAME), tokenizer_json, work.path)
    storage.write_bytes(storage.join(work.path, _PLAN_NAME), dump_plan(pools), work.path)
    run_pipeline(
        lambda pipeline: pipeline | Build(job),
        # More processes than pools would only take time to start.
        workers=max(1, min(workers or count_cores(), len(pools))),
        beam_args=beam_args,
        report=work.report_to(progress, len(pools)),
    )
    manifest = _load_dataset_manifest(work.output)
    if manifest is None:
        for name in _owned_names(work.output):
            storage.delete(storage.join(work.output, name))
        work.remove()
        objective = job.draft.config.objective
        raise ClozelineError(
            f"no document in `train` gives an example under --objective {objective}: "
            f"{_WHY_NO_EXAMPLE[objective]}\nIngest other documents, or build with `--objective mlm`."
        )
    work.remove()
    return manifest


def _owned_names(output: str) -> list[str]:
    found = (storage.base_name(entry.path) for entry in storage.list_folder(output))
    return [DATASET_MANIFEST_NAME, TOKENIZER_NAME, *(name for name in found if _SHARD_NAME.fullmatch(name))]


def _pin(job: BuildJob) -> dict[str, Any]:
    return {**_identity(job), "created_by": created_by()}


def _identity(job: BuildJob) -> dict[str, Any]:
    return {
        "config": job.draft.config.model_dump(mode="json"),
        "corpus_fingerprint": job.draft.corpus_fingerprint,
        "tokenizer": job.draft.tokenizer.model_dump(mode="json"),
    }


def _find_done(job: BuildJob) -> DatasetManifest | None:
    manifest = _load_dataset_manifest(job.work.output)
    if manifest is None:
        return None
    now = _identity(job)
    before = manifest.model_dump(mode="json", include=set(now))
    if before != now:
        raise UsageError(
            f"{job.work.output} holds a dataset already, made otherwise: {describe_difference(before, now)}\n"
            "Choose another --output, or add --overwrite to make this one anew."
        )
    return manifest


def _load_dataset_manifest(output: str) -> DatasetManifest | None:
    path = storage.join(output, DATASET_MANIFEST_NAME)
    return parse_manifest(DatasetManifest, storage.read_bytes(path), path) if storage.exists(path) else None
