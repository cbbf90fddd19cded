from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.corpora import Corpus, copy_under_other_ids, read_documents, take_head, write_sentences

_TEXTS = ["The cat sat. It purred.", "The dog\u2028ran.", "The cat sat. It purred."]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"id": str(i), "text": text}, ensure_ascii=False) for i, text in enumerate(_TEXTS)]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return Corpus(path, tmp_path, len(_TEXTS), path.stat().st_size)


def test_a_head_has_whole_lines(corpus: Corpus, tmp_path: Path) -> None:
    head = take_head(corpus, corpus.num_bytes - 1, tmp_path)
    assert [document["text"] for document in read_documents(head.documents)] == _TEXTS[:2]
    assert head.num_documents == 2
    assert head.num_bytes == head.documents.stat().st_size
    assert take_head(corpus, None, tmp_path) is corpus


def test_copies_differ_in_their_ids_alone(corpus: Corpus, tmp_path: Path) -> None:
    copies = list(read_documents(copy_under_other_ids(corpus, 2, tmp_path).documents))
    assert [document["text"] for document in copies] == _TEXTS * 2
    assert len({document["id"] for document in copies}) == 6


@pytest.mark.parametrize("keep_duplicates", [False, True])
def test_sentences_are_those_of_the_documents_worked_on(
    corpus: Corpus, tmp_path: Path, keep_duplicates: bool
) -> None:
    path = write_sentences(replace(corpus, keep_duplicates=keep_duplicates), tmp_path)
    once = "The cat sat.\nIt purred.\n\nThe dog ran.\n\n"
    again = "The cat sat.\nIt purred.\n\n" if keep_duplicates else ""
    assert path.read_text(encoding="utf-8") == once + again
