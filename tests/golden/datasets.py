"""Small datasets whose bytes are fixed: the SHA-256 of each shard is kept in `shards.json`.

A change of these bytes means that a seed no longer gives what it gave before. Where that is meant, `make
golden` writes the file anew, and the CHANGELOG says so.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.build import run_build
from pipelines.tokenizer_files import bert_tokenizer
from schemas.configs import BuildConfig
from tests.pipelines.corpora import make_documents, write_corpus

SHARDS_PATH = Path(__file__).with_name("shards.json")

CONFIGS = {
    "next-sentence": BuildConfig(seed=1, max_seq_length=64, examples_per_block=50, duplicate_factor=2),
    "sentence-order-whole-words": BuildConfig(
        seed=2, max_seq_length=64, objective="sentence-order", whole_word_mask=True, short_seq_prob=0.5
    ),
    "mlm": BuildConfig(seed=3, max_seq_length=32, objective="mlm", max_predictions_per_seq=3),
    "large-vocabulary": BuildConfig(seed=4, next_sentence_balance=False),
}


def build_golden_dataset(name: str, folder: Path) -> dict[str, str]:
    """Build one of the datasets below `folder`; gives the SHA-256 of each shard by its name."""
    if name == "large-vocabulary":
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(70_000 - 5))]
        tokenizer = bert_tokenizer({token: index for index, token in enumerate(tokens)})
        ids = range(60_000, 70_000)
    else:
        tokens = ["[PAD]", *(f"[unused{index}]" for index in range(5)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokens += [f"##{index}" if index % 4 == 0 else f"w{index}" for index in range(200)]
        tokenizer = bert_tokenizer({token: index for index, token in enumerate(tokens)})
        ids = range(10, 210)
    groups = [make_documents(25, ids=ids, name=f"golden {index}") for index in range(3)]
    files = {"train/a.parquet": groups[:2], "validation/a.parquet": groups[2:]}
    write_corpus(folder / "corpus", tokenizer, files)
    result = run_build(CONFIGS[name], str(folder / "corpus"), str(folder / "dataset"), workers=1)
    return {shard.name: shard.sha256 for shard in result.manifest.shards}


def load_expected() -> dict[str, dict[str, str]]:
    """The SHA-256 of each shard of each dataset, as last written."""
    expected: dict[str, dict[str, str]] = json.loads(SHARDS_PATH.read_text(encoding="utf-8"))
    return expected
