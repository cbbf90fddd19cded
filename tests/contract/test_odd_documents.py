"""Documents that tend to break things, from the bytes of their file to examples: the right value of each."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from pipelines.build import run_build
from pipelines.ingest import run_ingest
from schemas.configs import BuildConfig, IngestConfig

# A line is a document, and begins at the offset on the right.
LINES = (
    b"\xef\xbb\xbf"  # a byte-order mark
    b"The cat sat.\r\n"  # 3
    b"\r\n"  # 17: empty
    b"it p\x00urred\x01 softly\r\n"  # 19: NUL and a control character within words
    b"caf\xe9\r\n"  # 39: no UTF-8, from byte 42 on
    b"\x00\x01\r\n"  # 45: nothing but control characters
    b"one\r\n"  # 49
    b"[MASK] the [SEP]\r\n"  # 54: the spelling of special tokens
)
KEPT = {
    3: "the cat sat .",
    19: "it purred softly",
    49: "one",
    54: "[ mask ] the [ s ##e ##p ]",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> Path:
    """odd.txt and the corpus/ of it."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.txt").write_bytes(LINES)
    config = IngestConfig(inputs=(str(folder / "odd.txt"),), format="text-lines", validation_fraction=0.0)
    run_ingest(config, str(tiny_tokenizer_path), str(folder / "corpus"), workers=1)
    return folder


def test_what_is_kept(folder: Path, tiny_tokenizer: Tokenizer) -> None:
    (path,) = (folder / "corpus" / "train").iterdir()
    found = {
        row["document_id"]: " ".join(tiny_tokenizer.id_to_token(token_id) for token_id in row["token_ids"])
        for row in pq.read_table(path).to_pylist()
    }
    assert found == {f"{folder}/odd.txt:{offset}": tokens for offset, tokens in KEPT.items()}


def test_what_is_rejected_and_counted(folder: Path) -> None:
    (path,) = (folder / "corpus" / "rejects").iterdir()
    rejects = {reject["document_id"]: reject for reject in map(json.loads, path.read_text().splitlines())}
    assert {document_id: reject["reason"] for document_id, reject in rejects.items()} == {
        f"{folder}/odd.txt:17": "empty",
        f"{folder}/odd.txt:39": "invalid_utf8",
        f"{folder}/odd.txt:45": "no_tokens",
    }
    assert rejects[f"{folder}/odd.txt:39"]["detail"].startswith(f"{folder}/odd.txt, byte offset 42: 0xe9")
    manifest = json.loads((folder / "corpus" / "corpus.json").read_text())
    counts = [manifest[name] for name in ("num_documents_read", "num_documents", "num_rejected")]
    assert counts == [7, 4, 3]


def test_documents_of_one_sentence_have_no_next_one(folder: Path, tiny_tokenizer: Tokenizer) -> None:
    """Each document is the A of one example, whose B is another document: four pairs, all NotNext."""
    config = BuildConfig(max_seq_length=32, short_seq_prob=0.0)
    result = run_build(config, str(folder / "corpus"), str(folder / "dataset"), workers=1)
    assert result.manifest.num_examples == len(KEPT)
    pairs = []
    for row in _read_rows(folder / "dataset" / "train-00000-of-00001.tar"):
        ids, cut = list(row["input_ids"]), row["segment_a_length"]
        for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
            ids[position] = original
        tokens = [tiny_tokenizer.id_to_token(token_id) for token_id in ids]
        pairs.append((" ".join(tokens[1 : cut - 1]), " ".join(tokens[cut:-1])))
        assert row["next_sentence_label"] == 1
    assert sorted(a for a, _ in pairs) == sorted(KEPT.values())
    assert all(b in KEPT.values() and b != a for a, b in pairs)


def _read_rows(shard: Path) -> list[dict[str, Any]]:
    with tarfile.open(shard) as archive:
        contents = [stream.read() for member in archive if (stream := archive.extractfile(member))]
    tables = [pa.ipc.open_file(io.BytesIO(content)).read_all() for content in contents]
    return [row for table in tables for row in table.to_pylist()]
