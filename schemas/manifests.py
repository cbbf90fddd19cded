"""The two manifests: `corpus.json` says what `ingest` wrote, `dataset.json` what `build` wrote.

A folder without its manifest is not a corpus or a dataset: the manifest is written last and in one step. It
holds no clock time, host, worker count or absolute path of an output, so the same work gives the same bytes.
File names in it are relative to it; a name that could lead elsewhere is refused when the manifest is parsed.
In its file it carries a checksum of its own fields, and a file that differs by one bit is refused too.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, model_validator

from schemas.configs import BuildConfig, FrozenModel, IngestConfig
from schemas.errors import CorruptDataError
from schemas.sealing import CHECKSUM, read_sealed, seal_json

CORPUS_MANIFEST_NAME = "corpus.json"
DATASET_MANIFEST_NAME = "dataset.json"
TOKENIZER_NAME = "tokenizer.json"
FORMAT_VERSION: Literal[1] = 1

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


def _check_relative_name(name: str) -> str:
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or any(c in name for c in "\\:\0\n"):
        raise ValueError(f"file name {name!r} must be relative to the manifest and stay below it")
    return name


RelativeName = Annotated[str, AfterValidator(_check_relative_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class TokenizerRecord(FrozenModel):
    """Which tokenizer made the ids, and its special tokens."""

    sha256: Sha256
    vocab_size: Annotated[int, Field(ge=5, le=1 << 24)]
    pad_id: Count
    unk_id: Count
    cls_id: Count
    sep_id: Count
    mask_id: Count

    @model_validator(mode="after")
    def _ids_lie_in_the_vocabulary(self) -> TokenizerRecord:
        ids = self.special_ids
        if len(set(ids)) != len(ids) or max(ids) >= self.vocab_size:
            raise ValueError(f"special ids {ids} must be distinct and below vocab_size {self.vocab_size}")
        return self

    @property
    def special_ids(self) -> tuple[int, int, int, int, int]:
        """The ids of `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]`."""
        return (self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id)


class RowGroup(FrozenModel):
    """A row group of a corpus file. `digest` is a hash of its tokens and their division alone."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    num_documents: Count
    num_sentences: Count
    num_tokens: Count


class StoredFile(FrozenModel):
    """A file as it was written."""

    name: RelativeName
    sha256: Sha256
    size_bytes: Count


class CorpusFile(StoredFile):
    """One Parquet file of tokenized documents, all of one split."""

    split: Split
    row_groups: tuple[RowGroup, ...]


class CorpusManifest(FrozenModel):
    """`corpus.json`. `num_documents_read = num_documents + num_rejected`, always.

    `files` hold the documents that were kept; `rejects` list those that were not, a JSON object a line.
    """

    format: Literal["clozeline-corpus"] = "clozeline-corpus"
    version: Literal[1] = FORMAT_VERSION
    created_by: str
    config: IngestConfig
    tokenizer: TokenizerRecord
    num_input_files: Count
    num_input_bytes: Count
    num_documents_read: Count
    num_documents: Count
    num_rejected: Count
    rejected: dict[str, Count]
    num_sentences: Count
    num_tokens: Count
    num_text_bytes: Count
    files: tuple[CorpusFile, ...]
    rejects: tuple[StoredFile, ...] = ()

    @model_validator(mode="after")
    def _counts_add_up(self) -> CorpusManifest:
        groups = [group for file in self.files for group in file.row_groups]
        _require_equal("num_rejected", self.num_rejected, sum(self.rejected.values()))
        _require_equal("num_documents_read", self.num_documents_read, self.num_documents + self.num_rejected)
        _require_equal("num_documents", self.num_documents, sum(group.num_documents for group in groups))
        _require_equal("num_sentences", self.num_sentences, sum(group.num_sentences for group in groups))
        _require_equal("num_tokens", self.num_tokens, sum(group.num_tokens for group in groups))
        return self

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the tokens alone: the same wherever the corpus or its inputs lie."""
        groups = sorted(f"{file.split} {group.digest}" for file in self.files for group in file.row_groups)
        return hashlib.sha256("\n".join([self.tokenizer.sha256, *groups]).encode()).hexdigest()


class MaskingCounts(FrozenModel):
    """What happened to the tokens of a split or a shard; shares follow from these."""

    num_maskable_tokens: Count
    num_chosen_tokens: Count
    num_masked_tokens: Count
    num_random_tokens: Count
    num_kept_tokens: Count


class ShardRecord(FrozenModel):
    """One tar file of blocks. Every block but the last holds `examples_per_block` examples.

    `expected_not_next` is what `num_not_next` differs from by chance alone: the chances by which labels were
    drawn, added up. That is half of the examples, except where the documents leave no choice. None where the
    objective has no labels.
    """

    name: RelativeName
    split: Split
    sha256: Sha256
    size_bytes: Count
    num_examples: Annotated[int, Field(ge=1)]
    num_blocks: Annotated[int, Field(ge=1)]
    num_tokens: Count
    num_is_next: Count
    num_not_next: Count
    expected_not_next: float | None = None
    masking: MaskingCounts
    num_documents: Count
    num_documents_unused: Count


class DatasetManifest(FrozenModel):
    """`dataset.json`: the shards of every split, in the order of their names."""

    format: Literal["clozeline-dataset"] = "clozeline-dataset"
    version: Literal[1] = FORMAT_VERSION
    created_by: str
    config: BuildConfig
    tokenizer: TokenizerRecord
    corpus_fingerprint: Sha256
    num_examples: Count
    num_tokens: Count
    shards: tuple[ShardRecord, ...]

    @model_validator(mode="after")
    def _counts_add_up(self) -> DatasetManifest:
        _require_equal("num_examples", self.num_examples, sum(shard.num_examples for shard in self.shards))
        _require_equal("num_tokens", self.num_tokens, sum(shard.num_tokens for shard in self.shards))
        size = self.config.examples_per_block
        for shard in self.shards:
            _require_equal(f"num_blocks of {shard.name}", shard.num_blocks, -(-shard.num_examples // size))
        return self

    def shards_of(self, split: Split) -> tuple[ShardRecord, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)


ManifestT = TypeVar("ManifestT", CorpusManifest, DatasetManifest)


def dump_manifest(manifest: CorpusManifest | DatasetManifest) -> bytes:
    """The one way a manifest is written: the content of its file."""
    return seal_json(manifest.model_dump(mode="json"))


def parse_manifest(kind: type[ManifestT], content: bytes, path: str) -> ManifestT:
    """Parse and check a manifest.

    Args:
        kind: the class of manifest that is expected.
        content: the bytes of the file.
        path: where they came from, for the message.

    Raises:
        CorruptDataError: the bytes are no such manifest, one of a newer format, or were changed.
    """
    remedy = f"make it anew with `clozeline {'ingest' if kind is CorpusManifest else 'build'}`."
    try:
        fields, is_intact = read_sealed(content)
        manifest = kind.model_validate(fields)
    except ValueError as error:
        raise CorruptDataError(
            f"{path} is no valid {kind.__name__}: {_describe(error)}\n"
            f"It was written by another version of clozeline or changed by hand; {remedy}"
        ) from None
    if is_intact is None:
        raise CorruptDataError(
            f"{path} has no {CHECKSUM}: an early version of clozeline wrote it, or it was changed.\n"
            f"What it says can't be relied upon; {remedy}"
        )
    if not is_intact:
        raise CorruptDataError(
            f"{path} was changed after it was written: its content is not what its {CHECKSUM} says.\n"
            f"Copy it anew, or {remedy}"
        )
    return manifest


def manifest_json_schema(kind: type[CorpusManifest] | type[DatasetManifest]) -> dict[str, Any]:
    """The JSON Schema of a manifest's file: that of its class, and the checksum."""
    schema = kind.model_json_schema()
    schema["properties"][CHECKSUM] = {
        "description": "SHA-256 of all other fields as JSON: keys sorted, no white space, ASCII alone.",
        "pattern": "^[0-9a-f]{64}$",
        "title": "Checksum",
        "type": "string",
    }
    schema["required"].append(CHECKSUM)
    return schema


def _describe(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return f"it is no JSON object ({error})"
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the manifest"
    return f"{where}: {first['msg']}"


def _require_equal(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{name} is {found}, but its parts add up to {expected}")
