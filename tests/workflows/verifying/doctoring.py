"""Datasets in which one thing is wrong and everything else agrees with the manifest.

The tokens are unmasked and masked anew, one by one in plain Python, by rules that a test may bend. Shards and
manifest are then written as `build` writes them.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.shard_writer import ShardWriter
from schemas.examples import example_schema
from schemas.manifests import DatasetManifest, MaskingCounts, dump_manifest, parse_manifest

MASK = 8
ALLOWED = range(9, 201)
Example = dict[str, Any]


def choose_evenly(places: Sequence[int], number: int, rng: np.random.Generator) -> list[int]:
    return sorted(rng.choice(places, number, replace=False).tolist())


def replace_80_10_10(original: int, rng: np.random.Generator) -> int:
    draw = rng.random()
    return MASK if draw < 0.8 else int(rng.choice(ALLOWED)) if draw < 0.9 else original


def keep_label(label: int | None, rng: np.random.Generator) -> int | None:
    return label


@dataclass(frozen=True)
class Rules:
    """How examples are masked anew: as they should be, unless told otherwise."""

    choose: Callable[[Sequence[int], int, np.random.Generator], list[int]] = choose_evenly
    replace: Callable[[int, np.random.Generator], int] = replace_80_10_10
    label: Callable[[int | None, np.random.Generator], int | None] = keep_label


def remask(dataset: Path, output: Path, rules: Rules) -> Path:
    """Copy a dataset with other masks, chosen among the same number of tokens."""
    shutil.copytree(dataset, output)
    rng = np.random.default_rng(7)

    def change(example: Example) -> Example:
        return _mask_anew(example, rules, rng)

    return rewrite(output, change)


def rewrite(folder: Path, change: Callable[[Example], Example]) -> Path:
    """Change the examples of a dataset in place; shards and manifest agree afterwards."""
    path = folder / "dataset.json"
    manifest = parse_manifest(DatasetManifest, path.read_bytes(), str(path))
    shards = []
    for shard in manifest.shards:
        rows = [change(row) for row in read_rows(folder / shard.name)]
        content = _write_shard(rows, shard.name.split("-of-")[0], manifest)
        (folder / shard.name).write_bytes(content)
        labels = [row["next_sentence_label"] for row in rows]
        update = {
            "sha256": sha256(content).hexdigest(),
            "size_bytes": len(content),
            "num_tokens": sum(len(row["input_ids"]) for row in rows),
            "num_is_next": labels.count(0),
            "num_not_next": labels.count(1),
            "masking": _count(rows),
        }
        shards.append(shard.model_copy(update=update))
    update = {"shards": tuple(shards), "num_tokens": sum(shard.num_tokens for shard in shards)}
    path.write_bytes(dump_manifest(manifest.model_copy(update=update)))
    return folder


def read_rows(shard: Path) -> list[Example]:
    with tarfile.open(shard) as archive:
        members = [archive.extractfile(member) for member in archive]
        contents = [member.read() for member in members if member is not None]
    return [row for content in contents for row in pa.ipc.open_file(content).read_all().to_pylist()]


def _mask_anew(example: Example, rules: Rules, rng: np.random.Generator) -> Example:
    ids = list(example["input_ids"])
    for position, original in zip(example["masked_lm_positions"], example["masked_lm_ids"], strict=True):
        ids[position] = original
    ends = {0, example["segment_a_length"] - 1, len(ids) - 1}
    places = [place for place in range(len(ids)) if place not in ends]
    positions = rules.choose(places, len(example["masked_lm_positions"]), rng)
    originals = [ids[position] for position in positions]
    for position, original in zip(positions, originals, strict=True):
        ids[position] = rules.replace(original, rng)
    label = rules.label(example["next_sentence_label"], rng)
    changed = {"input_ids": ids, "masked_lm_positions": positions, "masked_lm_ids": originals}
    return {**example, **changed, "next_sentence_label": label}


def _write_shard(rows: list[Example], stem: str, manifest: DatasetManifest) -> bytes:
    schema, size = example_schema(manifest.tokenizer.vocab_size), manifest.config.examples_per_block
    stream = io.BytesIO()
    writer = ShardWriter(stream, stem)
    for start in range(0, len(rows), size):
        writer.write_block(pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema))
    writer.close()
    return stream.getvalue()


def _count(rows: list[Example]) -> MaskingCounts:
    pairs = [
        (row["input_ids"][position], original)
        for row in rows
        for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True)
    ]
    num_masked = sum(stands == MASK for stands, _ in pairs)
    num_kept = sum(stands == stood for stands, stood in pairs)
    special = [2 if row["segment_a_length"] == len(row["input_ids"]) else 3 for row in rows]
    return MaskingCounts(
        num_maskable_tokens=sum(len(row["input_ids"]) for row in rows) - sum(special),
        num_chosen_tokens=len(pairs),
        num_masked_tokens=num_masked,
        num_random_tokens=len(pairs) - num_masked - num_kept,
        num_kept_tokens=num_kept,
    )
