"""Files made to break a reader, a segmenter or the memory: each costs its own document and no other."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.ingest import run_ingest
from schemas.configs import IngestConfig

REPOSITORY = Path(__file__).parents[2]
PEAK_BYTES = 1_200_000_000
MB = 1_000_000
FIRST, LAST = "The cat sat on the mat. It purred.", "The dog ran over the hill."

PROGRAM = """
    import json, sys
    from pathlib import Path
    from pipelines.ingest import run_ingest
    from schemas.configs import IngestConfig

    path, input_format, tokenizer, output = sys.argv[1:]
    config = IngestConfig(inputs=(path,), format=input_format)
    manifest = run_ingest(config, tokenizer, output, workers=1)
    # Of this program alone: `ru_maxrss` remembers the process that it was forked from.
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()
    print(json.dumps({
        "read": manifest.num_documents_read, "kept": manifest.num_documents, "rejected": manifest.rejected,
        "num_tokens": manifest.num_tokens, "peak_bytes": int(status[0]) * 1024,
    }))
"""


def as_json(text: str) -> bytes:
    return json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"


def write_jsonl(folder: Path, *parts: bytes) -> Path:
    """A document, what is given, and another document."""
    path = folder / "in.jsonl"
    with path.open("wb") as stream:
        stream.writelines([as_json(FIRST), *parts, b"\n", as_json(LAST)])
    return path


def jsonl_of(unit: str, number: int) -> Callable[[Path], Path]:
    return lambda folder: write_jsonl(folder, b'{"text": "', unit.encode() * number, b'"}')


def write_bomb(folder: Path, name: str, unit: bytes, header: bytes = b"") -> Path:
    """A gigabyte of one byte, in a gzip file of a megabyte, between two documents where there is a header."""
    path = folder / name
    path.write_bytes(gzip.compress(header) + gzip.compress(unit * (100 * MB)) * 10)
    return path


def write_parquet(folder: Path) -> Path:
    texts = pa.array([FIRST, "ab " * (100 * MB), LAST], pa.large_string())
    pq.write_table(pa.table({"text": texts}), folder / "in.parquet")
    return folder / "in.parquet"


def write_csv(folder: Path, field: bytes) -> Path:
    path = folder / "in.csv"
    path.write_bytes(b'id,text\n1,"%s"\n2,"%s"\n3,%s\n' % (FIRST.encode(), field, LAST.encode()))
    return path


FILES: dict[str, tuple[Callable[[Path], Path], str, int, dict[str, int]]] = {
    "line of 200 MB": (jsonl_of("ab. ", 50 * MB), "auto", 2, {"too_long": 1}),
    "line of 50 MB without white space": (jsonl_of("a", 50 * MB), "auto", 2, {"too_long": 1}),
    "line of 19 MB without white space": (jsonl_of("a", 19 * MB), "auto", 3, {}),
    "19 MB of sentences of a letter": (jsonl_of("a. ", 19 * MB // 3), "auto", 3, {}),
    "two million line breaks": (jsonl_of("a" + r"\n" * 2 * MB + "b", 1), "auto", 3, {}),
    "full stops": (jsonl_of(".", 5 * MB), "auto", 3, {}),
    "opening brackets": (jsonl_of("(", 5 * MB), "auto", 3, {}),
    "opening quotation marks": (jsonl_of("\u201c", 5 * MB), "auto", 3, {}),
    "apostrophes": (jsonl_of("'", 5 * MB), "auto", 3, {}),
    "brackets within brackets": (jsonl_of("(a " * 10_000 + "a) " * 10_000, 50), "auto", 3, {}),
    "quotations never closed": (jsonl_of("\u201ca. ", MB), "auto", 3, {}),
    "accents": (jsonl_of("\u0301", 5 * MB), "auto", 2, {"no_tokens": 1}),
    "arrays 100,000 deep": (
        lambda folder: write_jsonl(folder, b'{"text": "a cat", "x": ', b"[" * 100_000, b"]" * 100_000, b"}"),
        "auto", 2, {"invalid_json": 1},
    ),
    "objects 100,000 deep": (
        lambda folder: write_jsonl(folder, b'{"a": ' * 100_000, b"1", b"}" * 100_000),
        "auto", 2, {"invalid_json": 1},
    ),
    "millions of objects": (
        lambda folder: write_jsonl(folder, b'{"text": "a cat", "x": [', b"{}," * 6 * MB, b"1]}"),
        "auto", 3, {},
    ),
    "cell of 300 MB": (write_parquet, "auto", 2, {"too_long": 1}),
    "field of 150 MB": (lambda folder: write_csv(folder, b"ab, " * (38 * MB)), "auto", 2, {"invalid_csv": 1}),
    "field of 50 MB": (lambda folder: write_csv(folder, b"ab, " * (12 * MB)), "auto", 2, {"too_long": 1}),
    "bomb of zeros": (
        lambda folder: write_bomb(folder, "in.jsonl.gz", b"\0", as_json(FIRST)),
        "auto", 1, {"too_long": 1},
    ),
    "bomb of spaces": (
        lambda folder: write_bomb(folder, "in.txt.gz", b" ", FIRST.encode() + b"\n"),
        "text-lines", 1, {"too_long": 1},
    ),
    "bomb of sentences": (
        lambda folder: write_bomb(folder, "in.txt.gz", b" ", FIRST.encode() + b"\n\n"),
        "text-sentences", 1, {"too_long": 1},
    ),
    "bomb of a row": (
        lambda folder: write_bomb(folder, "in.csv.gz", b" ", b"text\n" + FIRST.encode() + b"\n"),
        "auto", 1, {"too_long": 1},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_poisonous_file_costs_one_document_and_little_memory(
    name: str, tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    write, input_format, num_kept, rejected = FILES[name]
    path = write(tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(PROGRAM)),
            *(str(path), input_format, str(tiny_tokenizer_path), str(tmp_path / "out")),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    path.unlink()
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rejected"] == rejected
    assert summary["kept"] == num_kept
    assert summary["read"] == num_kept + sum(rejected.values())
    assert summary["peak_bytes"] < PEAK_BYTES


def test_every_format_keeps_what_lies_beside_a_poisonous_document(
    tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    """The same shapes, small, with a small limit, all in one job."""
    limit = 50_000
    long, nested = b"ab, " * limit, b"[" * 2000 + b"]" * 2000
    write_jsonl(
        tmp_path,
        b'{"text": "' + long + b'"}\n',
        b'{"text": "\\ud800 alone"}\n',
        b'{"text": "\\udc00\\ud800 the wrong way round", "id": "x"}\n',
        b'{"text": "a \\ud83d\\ude00 pair"}\n',
        b'{"text": "an odd id", "id": "\\udfff"}\n',
        b'{"text": "\xff\xfe"}\n',
        b'{"text": "a cat", "x": ' + nested + b"}\n",
        b"\0" * 100 + b"\n",
        b'{"text": "a\\u0000b"}\n',
        b'"text"\n[]\nnull\n1e999\n{"text": NaN}\n',
        as_json("." * 20_000),
        as_json("(" * 20_000),
        as_json("'" * 20_000),
        as_json("\u00ab" * 20_000),
        as_json("a" + "\n" * 20_000 + "b"),
        as_json("\n" * 20_000),
        as_json("\u0301" * 20_000),
    )
    (tmp_path / "whole.txt").write_bytes(b"the document \xc3\x28 is no UTF-8")
    (tmp_path / "long.txt").write_bytes(long)
    (tmp_path / "in.tsv").write_bytes(
        b'id\ttext\n\xff\ta bad id\nb\ta \xff bad text\nc\t"'
        + long
        + b'"\nd\t"a quotation" never\nlast\tgood\n'
    )
    texts = [b"good bytes", b"\xff\xfe", long, None, b"", "\ud800".encode(errors="surrogatepass")]
    pq.write_table(pa.table({"text": pa.array(texts, pa.binary())}), tmp_path / "in.parquet")
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(as_json("before") + b" " * (10 * limit)))
    config = IngestConfig(inputs=(str(tmp_path / "*.*"),), max_document_bytes=limit, validation_fraction=0)

    manifest = run_ingest(config, str(tiny_tokenizer_path), str(tmp_path / "out"), workers=1)

    rejected = [
        json.loads(line)
        for path in (tmp_path / "out" / "rejects").iterdir()
        for line in path.read_text().splitlines()
    ]
    found = Counter((Path(r["document_id"].partition(":")[0]).name, r["reason"]) for r in rejected)
    assert found == {
        # Lone surrogates, the nested array, the zeros and NaN; a string, an array, null and a number.
        ("in.jsonl", "invalid_json"): 10,
        ("in.jsonl", "invalid_utf8"): 1,
        ("in.jsonl", "too_long"): 1,
        ("in.jsonl", "empty"): 1,
        ("in.jsonl", "no_tokens"): 1,
        ("whole.txt", "invalid_utf8"): 1,
        ("long.txt", "too_long"): 1,
        ("b", "invalid_utf8"): 1,
        ("in.tsv", "too_long"): 1,
        ("in.tsv", "invalid_csv"): 1,
        ("in.parquet", "invalid_utf8"): 2,
        ("in.parquet", "too_long"): 1,
        ("in.parquet", "missing_text"): 1,
        ("in.parquet", "empty"): 1,
        ("bomb.jsonl.gz", "too_long"): 1,
    }
    kept = pq.read_table(tmp_path / "out" / "train", columns=["document_id"])["document_id"].to_pylist()
    assert manifest.num_documents == len(kept) == 13
    assert {"\ufffd", "last"} <= set(kept)
    assert manifest.num_documents_read == len(kept) + len(rejected)
    assert manifest.rejected == Counter(r["reason"] for r in rejected)
