"""The shares that a whole build promises, over more than 200,000 chosen positions."""

from __future__ import annotations

import tarfile
from math import sqrt

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tokenizers import Tokenizer

from pipelines.build import run_build
from schemas.configs import BuildConfig
from schemas.manifests import DatasetManifest
from tests.pipelines.corpora import make_documents, write_corpus

TEXT_IDS = range(60, 180)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> tuple[DatasetManifest, pa.Table, list[int]]:
    """A manifest, all examples, and the ids that may replace a token."""
    from tests.conftest import build_tiny_tokenizer

    folder = tmp_path_factory.mktemp("statistics")
    tokenizer: Tokenizer = build_tiny_tokenizer()
    documents = make_documents(5200, ids=TEXT_IDS, max_sentences=24, max_tokens=40)
    groups = [documents[start : start + 400] for start in range(0, len(documents), 400)]
    write_corpus(folder / "corpus", tokenizer, {"train/a.parquet": groups})
    manifest = run_build(BuildConfig(seed=5), str(folder / "corpus"), str(folder / "out"), workers=1).manifest
    tables = []
    for shard in manifest.shards:
        with tarfile.open(folder / "out" / shard.name) as archive:
            for member in archive:
                content = archive.extractfile(member)
                assert content is not None
                tables.append(pa.ipc.open_file(content.read()).read_all())
    reserved = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{index}]" for index in range(4))}
    allowed = sorted(token_id for token, token_id in tokenizer.get_vocab().items() if token not in reserved)
    return manifest, pa.concat_tables(tables), allowed


def test_as_many_tokens_are_chosen_as_fifteen_percent_of_each_example(
    dataset: tuple[DatasetManifest, pa.Table, list[int]],
) -> None:
    manifest, table, _ = dataset
    num_maskable = [len(row) - 3 for row in table["input_ids"].to_pylist()]
    num_chosen = [len(row) for row in table["masked_lm_positions"].to_pylist()]
    counts = [shard.masking for shard in manifest.shards]

    # Rounded in each example: at 125 maskable tokens 18.75 become 19, so the share of all is not quite 15%.
    assert num_chosen == [min(20, max(1, round(n * 0.15))) for n in num_maskable]
    assert sum(num_chosen) >= 200_000
    assert sum(c.num_chosen_tokens for c in counts) == sum(num_chosen)
    assert sum(c.num_maskable_tokens for c in counts) == sum(num_maskable)
    # Rounding moves an example by half a token at most, the limit of 20 never bites at 125.
    assert abs(sum(num_chosen) - 0.15 * sum(num_maskable)) <= 0.5 * len(num_chosen)


def test_eighty_ten_ten(dataset: tuple[DatasetManifest, pa.Table, list[int]]) -> None:
    counts = [shard.masking for shard in dataset[0].shards]
    n = sum(c.num_chosen_tokens for c in counts)

    for found, share in [
        (sum(c.num_masked_tokens for c in counts), 0.8),
        (sum(c.num_random_tokens for c in counts), 0.1),
        (sum(c.num_kept_tokens for c in counts), 0.1),
    ]:
        assert abs(found / n - share) < 4 * sqrt(share * (1 - share) / n)


def test_random_ids_are_uniform_over_the_allowed_ones(
    dataset: tuple[DatasetManifest, pa.Table, list[int]],
) -> None:
    manifest, table, allowed = dataset
    offsets = np.cumsum([0, *table["input_ids"].combine_chunks().value_lengths().to_pylist()])
    numbers = table["masked_lm_positions"].combine_chunks().value_lengths().to_numpy()
    positions = table["masked_lm_positions"].combine_chunks().flatten().to_numpy().astype(np.int64)
    after = (
        table["input_ids"].combine_chunks().flatten().to_numpy()[np.repeat(offsets[:-1], numbers) + positions]
    )
    before = table["masked_lm_ids"].combine_chunks().flatten().to_numpy()
    mask_id = manifest.tokenizer.mask_id
    replaced = after[(after != mask_id) & (after != before)]

    # Ids of the text stand for themselves with the same chance, and are then not seen here as replaced.
    occurrences = np.bincount(replaced, minlength=manifest.tokenizer.vocab_size)
    assert occurrences.sum() == occurrences[allowed].sum()
    originals = np.bincount(before, minlength=len(occurrences)) / len(before)
    expected = (1 - originals)[allowed]
    expected *= occurrences.sum() / expected.sum()
    assert stats.chisquare(occurrences[allowed], expected).pvalue > 0.001


def test_labels_are_half_and_half(dataset: tuple[DatasetManifest, pa.Table, list[int]]) -> None:
    manifest = dataset[0]

    num_is_next = sum(shard.num_is_next for shard in manifest.shards)
    assert num_is_next + sum(shard.num_not_next for shard in manifest.shards) == manifest.num_examples
    assert abs(num_is_next / manifest.num_examples - 0.5) < 4 * 0.5 / sqrt(manifest.num_examples)
