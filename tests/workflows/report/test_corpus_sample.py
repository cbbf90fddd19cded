import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas.errors import CorruptDataError
from schemas.sealing import seal_json
from workflows.report.corpus_sample import CorpusSample, sample_corpus
from workflows.report.opening import Corpus, open_folder, read_vocabulary


def _open(folder: Path) -> Corpus:
    opened = open_folder(str(folder))
    assert isinstance(opened, Corpus)
    return opened


def _sample(corpus: Corpus, sample_tokens: int = 10**9, num_documents: int = 10) -> CorpusSample:
    vocabulary = read_vocabulary(corpus)
    return sample_corpus(corpus, vocabulary, sample_tokens, num_documents, lambda done, total: None)


def test_everything_counted_one_by_one(folders: Path) -> None:
    corpus = _open(folders / "corpus")
    sample = _sample(corpus)
    tokens: Counter[int] = Counter()
    sentences: Counter[int] = Counter()
    documents: dict[str, tuple[int, int]] = {}
    for file in corpus.manifest.files:
        for row in pq.read_table(folders / "corpus" / file.name).to_pylist():
            tokens.update(row["token_ids"])
            sentences.update(row["sentence_lengths"])
            documents[row["document_id"]] = (len(row["sentence_lengths"]), len(row["token_ids"]))
    assert len(documents) == sample.num_documents_read == corpus.manifest.num_documents == 60
    assert sample.tokens.num_tokens == tokens.total() == corpus.manifest.num_tokens
    assert sample.tokens.num_unknown == tokens[corpus.manifest.tokenizer.unk_id]
    tally = sample.sentence_tokens
    assert {n: tally.count_between(n, n + 1) for n in sentences} == sentences
    assert tally.num_things == corpus.manifest.num_sentences
    assert sample.document_tokens.mean == pytest.approx(tokens.total() / 60)
    assert sample.num_row_groups_read == sample.num_row_groups
    for document in sample.documents:
        assert (document.num_sentences, document.num_tokens) == documents[document.document_id]


@pytest.mark.parametrize("wanted", [0, 1, 10, 60, 100])
def test_as_many_documents_as_wanted(folders: Path, wanted: int) -> None:
    documents = _sample(_open(folders / "corpus"), num_documents=wanted).documents
    assert len(documents) <= wanted
    assert len({document.document_id for document in documents}) == len(documents)
    assert len(documents) == wanted or wanted > 10


def test_the_first_sentences_of_a_document(folders: Path) -> None:
    corpus = _open(folders / "corpus")
    vocabulary = read_vocabulary(corpus)
    document = _sample(corpus).documents[0]
    first = [vocabulary.name(token_id) for token_id in document.sentences[0]]
    assert "".join(token.removeprefix("##") for token in first).startswith("textnumber")
    assert sum(len(sentence) for sentence in document.sentences) == document.num_tokens


def test_a_sample_reads_no_more_than_it_says(folders: Path) -> None:
    corpus = _open(folders / "corpus")
    calls: list[tuple[int, int]] = []
    vocabulary = read_vocabulary(corpus)
    sample = sample_corpus(corpus, vocabulary, 1, 3, lambda done, total: calls.append((done, total)))
    assert (sample.num_row_groups_read, sample.num_row_groups) == (1, 2)
    assert sample.num_documents_read < 60
    assert calls == [(1, 1)]


def _damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "shorter":
        path.write_bytes(content[:-7])
    else:
        path.write_bytes(bytes(len(content)))


@pytest.mark.parametrize("how", ["missing", "shorter", "not Parquet"])
def test_damage_is_named(folders: Path, tmp_path: Path, how: str) -> None:
    shutil.copytree(folders / "corpus", tmp_path / "corpus")
    (path,) = (tmp_path / "corpus" / "train").iterdir()
    _damage(path, how)
    with pytest.raises(CorruptDataError, match=path.name):
        _sample(_open(tmp_path / "corpus"))


def test_other_tokens_than_the_manifest_s_are_named(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "corpus", tmp_path / "corpus")
    manifest = tmp_path / "corpus" / "corpus.json"
    corpus = _open(tmp_path / "corpus")
    digest = corpus.manifest.files[0].row_groups[0].digest
    manifest.write_bytes(seal_json(json.loads(manifest.read_text().replace(digest, "0" * 16))))
    with pytest.raises(CorruptDataError, match="row group 0 is not what the manifest says"):
        _sample(_open(tmp_path / "corpus"))
