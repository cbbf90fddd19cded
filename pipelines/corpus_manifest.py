"""From the records of all reads to `corpus.json`, and back.

In: what each read wrote. Out: the manifest. Deterministic: it does not depend on the order of the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines import storage
from pipelines.work_folder import WorkFolder
from schemas.configs import IngestConfig
from schemas.manifests import (
    CORPUS_MANIFEST_NAME,
    CorpusFile,
    CorpusManifest,
    StoredFile,
    TokenizerRecord,
    dump_manifest,
    parse_manifest,
)

Record = dict[str, Any]
"""What `CorpusWriter.finish` says of a read."""


@dataclass(frozen=True, kw_only=True)
class IngestJob:
    """Everything that the steps of the pipeline need to know."""

    config: IngestConfig
    tokenizer: TokenizerRecord
    num_reads: int
    num_input_files: int
    num_input_bytes: int
    created_by: str
    work: WorkFolder


def commit_corpus(records: list[Record], job: IngestJob) -> bool:
    """Write the manifest; False, and nothing written, where no document was kept.

    Raises:
        RuntimeError: the records aren't those of all reads, each once.
    """
    names = {record["read"] for record in records}
    if len(names) != job.num_reads or len(records) != job.num_reads:
        raise RuntimeError(f"{len(records)} records of {len(names)} reads came from {job.num_reads} reads")
    manifest = make_manifest(records, job)
    if not manifest.num_documents:
        return False
    job.work.commit(CORPUS_MANIFEST_NAME, dump_manifest(manifest))
    return True


def make_manifest(records: Iterable[Record], job: IngestJob) -> CorpusManifest:
    """The manifest of what the records tell; their order doesn't matter."""
    rejected: Counter[str] = Counter()
    files: list[CorpusFile] = []
    rejects: list[StoredFile] = []
    num_text_bytes = 0
    for record in records:
        rejected.update(record["rejected"])
        files += [CorpusFile.model_validate(file) for file in record["files"]]
        rejects += [StoredFile.model_validate(file) for file in record["rejects"]]
        num_text_bytes += record["num_text_bytes"]
    groups = [group for file in files for group in file.row_groups]
    num_documents = sum(group.num_documents for group in groups)
    return CorpusManifest(
        created_by=job.created_by,
        config=job.config,
        tokenizer=job.tokenizer,
        num_input_files=job.num_input_files,
        num_input_bytes=job.num_input_bytes,
        num_documents_read=num_documents + rejected.total(),
        num_documents=num_documents,
        num_rejected=rejected.total(),
        rejected=dict(sorted(rejected.items())),
        num_sentences=sum(group.num_sentences for group in groups),
        num_tokens=sum(group.num_tokens for group in groups),
        num_text_bytes=num_text_bytes,
        files=tuple(sorted(files, key=lambda file: file.name)),
        rejects=tuple(sorted(rejects, key=lambda file: file.name)),
    )


def load_corpus_manifest(corpus: str) -> CorpusManifest | None:
    """The manifest of a corpus, None where there is none.

    Raises:
        CorruptDataError: there is one, but it doesn't hold together.
    """
    path = storage.join(corpus, CORPUS_MANIFEST_NAME)
    if not storage.exists(path):
        return None
    return parse_manifest(CorpusManifest, storage.read_bytes(path), path)
