from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipelines.ingest import run_ingest
from schemas.configs import IngestConfig
from tests.benchmarks.measuring import Watch, measure

BOUND_BYTES = 1.2e9
"""What a worker is promised to stay under."""


def ingest(watch: Watch, documents: str, tokenizer: str, output: str) -> tuple[int, int]:
    """Documents and tokens of an `ingest` in this process."""
    with watch:
        manifest = run_ingest(IngestConfig(inputs=(documents,)), tokenizer, output, workers=1)
    return manifest.num_documents, manifest.num_tokens


@pytest.mark.slow
def test_the_largest_document_allowed_fits_into_memory(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    size = IngestConfig.model_fields["max_document_bytes"].default
    # Each full stop is a token: no text has more of them to a byte.
    line = b"." * 49 + b" "
    (tmp_path / "largest.txt").write_bytes(line * (size // len(line)))
    (tmp_path / "small.txt").write_bytes(b"One. Two.")

    measured = measure(
        ingest, str(tmp_path / "*.txt"), str(tmp_path / "tokenizer.json"), str(tmp_path / "corpus")
    )

    num_documents, num_tokens = measured.value
    assert num_documents == 2
    assert num_tokens > 0.97 * size
    assert measured.peak_bytes < BOUND_BYTES
