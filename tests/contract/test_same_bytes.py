"""From text to shards twice: the number of workers and the order of the input files change no byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pipelines import ingest, ingest_plan, pools
from pipelines.build import run_build
from pipelines.ingest import run_ingest
from schemas.configs import BuildConfig, IngestConfig

CONFIG = BuildConfig(seed=3, max_seq_length=32, examples_per_block=20)


def _hash_shards(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tar")}


def test_workers_and_the_order_of_inputs_change_no_byte_of_a_shard(
    tmp_path: Path, tiny_tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small inputs are cut as large ones are: into several reads, row groups and pools.
    monkeypatch.setattr(ingest_plan, "choose_read_bytes", lambda _: 2_000)
    monkeypatch.setattr(ingest, "choose_row_group_tokens", lambda _: 200)
    monkeypatch.setattr(pools, "MIN_POOL_TOKENS", 1_500)
    inputs = []
    for number, name in enumerate(("b.jsonl", "a.jsonl", "c.jsonl")):
        lines = [
            json.dumps({"text": f"The cat {n} sat on the mat. It ran over hill {n * 7}. Dog {number} ate."})
            for n in range(80)
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        inputs.append(str(tmp_path / name))

    hashes = []
    for number, (workers, order) in enumerate([(1, inputs), (2, inputs[::-1])]):
        corpus, dataset = tmp_path / f"corpus-{number}", tmp_path / f"dataset-{number}"
        config = IngestConfig(inputs=tuple(order), validation_fraction=0.2)
        run_ingest(config, str(tiny_tokenizer_path), str(corpus), workers=workers)
        run_build(CONFIG, str(corpus), str(dataset), workers=workers)
        hashes.append(_hash_shards(dataset))
    run_build(CONFIG, str(tmp_path / "corpus-0"), str(tmp_path / "again"), workers=1)

    assert len([name for name in hashes[0] if name.startswith("train")]) > 1
    assert hashes[1] == hashes[0]
    assert _hash_shards(tmp_path / "again") == hashes[0]
