"""What the benchmarks measure of clozeline and of the tokenizing library.

Each function runs in a fresh process. In: a watch, paths. Out: small values. Imports stand inside the watch
where they belong to the work of a command, as Beam's do, and outside of it where they would count against the
side that is compared with.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import Watch

_SENTENCES_A_BATCH = 4096


def ingest_and_build(
    watch: Watch, documents: str, tokenizer: str, output: str, workers: int, keep_duplicates: bool
) -> dict[str, Any]:
    """JSONL to masked shards, as the two commands do it; the imports, Beam's among them, count."""
    with watch, _start_as_a_command(workers, "pipelines.ingest", "pipelines.build"):
        from pipelines.build import run_build
        from pipelines.ingest import run_ingest
        from schemas.configs import BuildConfig, IngestConfig

        config = IngestConfig(inputs=(documents,), format="jsonl", keep_duplicates=keep_duplicates)
        corpus = run_ingest(config, tokenizer, f"{output}/corpus", workers=workers)
        dataset = run_build(BuildConfig(), f"{output}/corpus", f"{output}/dataset", workers=workers)
    return {
        "num_documents": corpus.num_documents,
        "num_tokens": corpus.num_tokens,
        "num_examples": dataset.manifest.num_examples,
    }


def build_again(watch: Watch, corpus: str, output: str, seed: int) -> dict[str, Any]:
    """Masked shards of a corpus that is there already, with another seed; the imports count."""
    with watch, _start_as_a_command(1, "pipelines.build"):
        from pipelines.build import run_build
        from schemas.configs import BuildConfig

        dataset = run_build(BuildConfig(seed=seed), corpus, output, workers=1)
    return {"num_examples": dataset.manifest.num_examples}


def encode_sentences(watch: Watch, sentences: str, tokenizer: str) -> dict[str, Any]:
    """`encode_batch_fast` alone on sentences in memory: reading them and keeping the ids isn't counted."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    encoder.encode_special_tokens = True
    lines = [line for line in Path(sentences).read_text(encoding="utf-8").split("\n") if line]
    num_sentences = 0
    for start in range(0, len(lines), _SENTENCES_A_BATCH):
        batch = lines[start : start + _SENTENCES_A_BATCH]
        with watch:
            encodings = encoder.encode_batch_fast(batch, add_special_tokens=False)
        num_sentences += len(encodings)
    return {"num_sentences": num_sentences}


@contextlib.contextmanager
def _start_as_a_command(workers: int, *modules: str) -> Iterator[None]:
    """Import modules and start what workers are forked from, as `workflows.stages` does.

    It ends with the block, so that its processor time and its peak memory are counted.
    """
    from pipelines.fast_import import importing_fast
    from pipelines.local_fork_server import use_fork_server

    with use_fork_server() if workers > 1 else contextlib.nullcontext():
        with importing_fast():
            for module in modules:
                importlib.import_module(module)
        yield
