"""The text that benchmarks run on, taken from a JSONL file or from this Python's own docstrings.

In: a file of `{"id", "text"}` lines, or none. Out: heads of it, copies of it under other identifiers, its
sentences, and a vocabulary learned from it. Deterministic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_VOCABULARY_SAMPLE_BYTES = 40_000_000
_SENTENCES_TEXTS = 1000


@dataclass(frozen=True)
class Corpus:
    """Text and the tokenizer for it.

    Attributes:
        documents: a JSONL file with `id` and `text`.
        tokenizer: a folder as `clozeline vocab` writes it.
        num_documents: lines of the file.
        num_bytes: bytes of the file.
        keep_duplicates: whether documents whose text occurred before are worked on too.
    """

    documents: Path
    tokenizer: Path
    num_documents: int
    num_bytes: int
    keep_duplicates: bool = False

    def __str__(self) -> str:
        repeats = "kept" if self.keep_duplicates else "dropped"
        return f"{self.num_documents:,} documents, {self.num_bytes / 1e6:.1f} MB, repeated ones {repeats}"


def prepare_corpus(source: Path | None, folder: Path, *, keep_duplicates: bool) -> Corpus:
    """Collect docstrings where there is no source, and learn a vocabulary of BERT's size."""
    from pipelines.vocabulary import run_vocab
    from schemas.configs import VocabConfig

    documents = source or _collect_docstrings(folder / "docstrings.jsonl")
    tokenizer = folder / "tokenizer"
    config = VocabConfig(inputs=(str(documents),), format="jsonl", sample_bytes=_VOCABULARY_SAMPLE_BYTES)
    run_vocab(config, str(tokenizer), workers=1)
    return _describe(documents, tokenizer, keep_duplicates)


def take_head(corpus: Corpus, num_bytes: int | None, folder: Path) -> Corpus:
    """The first whole lines of up to `num_bytes`; the corpus itself where it has no more."""
    if num_bytes is None or num_bytes >= corpus.num_bytes:
        return corpus
    head = folder / f"head-{num_bytes}.jsonl"
    with corpus.documents.open("rb") as source:
        content = source.read(num_bytes)
    head.write_bytes(content[: content.rfind(b"\n") + 1])
    return _describe(head, corpus.tokenizer, corpus.keep_duplicates)


def copy_under_other_ids(corpus: Corpus, copies: int, folder: Path) -> Corpus:
    """The documents of a corpus `copies` times, each copy with its number before the identifiers."""
    copied = folder / f"copies-{copies}.jsonl"
    with copied.open("w", encoding="utf-8") as output:
        for number in range(copies):
            for document in read_documents(corpus.documents):
                line = {"id": f"{number}/{document['id']}", "text": document["text"]}
                output.write(json.dumps(line, ensure_ascii=False) + "\n")
    return _describe(copied, corpus.tokenizer, corpus.keep_duplicates)


def read_documents(path: Path) -> Iterator[dict[str, str]]:
    """The objects of a JSONL file."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield json.loads(line)


def write_sentences(corpus: Corpus, folder: Path) -> Path:
    """A sentence a line and an empty line after each document, of the documents that are worked on."""
    import pyarrow as pa

    from pipelines.segmentation import segment_documents

    path = folder / f"{corpus.documents.stem}.sentences.txt"
    texts: list[str] = []
    seen: set[str] = set()
    with path.open("w", encoding="utf-8") as output:

        def flush() -> None:
            segmented = segment_documents(pa.array(texts, pa.large_string()), "sentencex", "en")
            for sentences in segmented.to_pylist():
                output.writelines(" ".join(sentence.split()) + "\n" for sentence in sentences)
                output.write("\n")
            texts.clear()

        for document in read_documents(corpus.documents):
            if document["text"] in seen:
                continue
            if not corpus.keep_duplicates:
                seen.add(document["text"])
            texts.append(document["text"])
            if len(texts) == _SENTENCES_TEXTS:
                flush()
        flush()
    return path


def _collect_docstrings(path: Path) -> Path:
    from workflows.quickstart import docstrings

    docstrings.collect_documents(docstrings.find_source_files(docstrings.python_folders()), path)
    return path


def _describe(documents: Path, tokenizer: Path, keep_duplicates: bool) -> Corpus:
    with documents.open("rb") as lines:
        num_documents = sum(1 for _ in lines)
    return Corpus(documents, tokenizer, num_documents, documents.stat().st_size, keep_duplicates)
