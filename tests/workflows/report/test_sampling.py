from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.configs import BuildConfig, IngestConfig
from schemas.manifests import (
    CorpusFile,
    CorpusManifest,
    DatasetManifest,
    MaskingCounts,
    RowGroup,
    ShardRecord,
    Split,
    TokenizerRecord,
)
from workflows.report.sampling import MOST_FILES, choose_evenly, plan_blocks, plan_row_groups

TOKENIZER = TokenizerRecord(
    sha256="0" * 64, vocab_size=100, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4
)
NO_MASKS = MaskingCounts(
    num_maskable_tokens=0, num_chosen_tokens=0, num_masked_tokens=0, num_random_tokens=0, num_kept_tokens=0
)


def _dataset(blocks_of_train: list[int], blocks_of_validation: list[int]) -> DatasetManifest:
    """Shards of so many blocks of one example of 100 tokens each."""
    lists: tuple[tuple[Split, list[int]], ...] = (
        ("train", blocks_of_train),
        ("validation", blocks_of_validation),
    )
    shards = tuple(
        ShardRecord(
            **dict.fromkeys(("num_is_next", "num_not_next", "num_documents", "num_documents_unused"), 0),
            name=f"{split}-{number:05d}.tar",
            split=split,
            sha256="0" * 64,
            size_bytes=1,
            num_examples=blocks,
            num_blocks=blocks,
            num_tokens=100 * blocks,
            masking=NO_MASKS,
        )
        for split, list_ in lists
        for number, blocks in enumerate(list_)
    )
    total = sum(shard.num_examples for shard in shards)
    return DatasetManifest(
        created_by="clozeline 0",
        config=BuildConfig(examples_per_block=1),
        tokenizer=TOKENIZER,
        corpus_fingerprint="0" * 64,
        num_examples=total,
        num_tokens=100 * total,
        shards=shards,
    )


def _corpus(groups_of_files: list[list[int]], prefix: str = "train/") -> CorpusManifest:
    """Files of row groups whose digests are the numbers given; each has 100 tokens."""
    files = tuple(
        CorpusFile(
            name=f"{prefix}{number:05d}.parquet",
            split="train",
            sha256="0" * 64,
            size_bytes=1,
            row_groups=tuple(
                RowGroup(digest=f"{digest:016x}", num_documents=1, num_sentences=1, num_tokens=100)
                for digest in digests
            ),
        )
        for number, digests in enumerate(groups_of_files)
    )
    total = sum(len(digests) for digests in groups_of_files)
    return CorpusManifest(
        **dict.fromkeys(("num_documents", "num_documents_read", "num_sentences"), total),
        created_by="clozeline 0",
        config=IngestConfig(inputs=("x",)),
        tokenizer=TOKENIZER,
        num_input_files=1,
        num_input_bytes=1,
        num_rejected=0,
        rejected={},
        num_tokens=100 * total,
        num_text_bytes=1,
        files=files,
    )


def _plan(manifest: DatasetManifest, sample_tokens: int) -> dict[str, int]:
    return {plan.shard.name: plan.num_blocks for plan in plan_blocks(manifest, sample_tokens)}


@pytest.mark.parametrize(
    ("total", "wanted", "expected"),
    [(10, 2, [2, 7]), (10, 5, [1, 3, 5, 7, 9]), (3, 7, [0, 1, 2]), (1, 1, [0]), (0, 3, []), (5, 0, [])],
)
def test_choose_evenly(total: int, wanted: int, expected: list[int]) -> None:
    assert choose_evenly(total, wanted).tolist() == expected


@given(st.integers(0, 1 << 40), st.integers(0, 500))
def test_chosen_numbers_ascend_and_lie_below_the_total(total: int, wanted: int) -> None:
    chosen = choose_evenly(total, wanted)
    assert len(chosen) == min(total, wanted)
    assert bool((np.diff(chosen) > 0).all())
    assert all(0 <= number < total for number in chosen.tolist())


def test_a_small_dataset_is_read_whole() -> None:
    manifest = _dataset([3, 2], [1])
    assert _plan(manifest, 600) == {"train-00000.tar": 3, "train-00001.tar": 2, "validation-00000.tar": 1}


def test_of_a_large_dataset_each_split_has_its_share() -> None:
    # A tenth: 4 of 40 training blocks, and the one of validation that there must be.
    assert _plan(_dataset([10] * 4, [2]), 420) == {
        **{f"train-{number:05d}.tar": 1 for number in range(4)},
        "validation-00000.tar": 1,
    }


def test_a_huge_dataset_costs_a_bounded_number_of_files() -> None:
    plan = _plan(_dataset([50] * 2000, [50] * 300), 5_000_000)
    assert Counter(name.split("-")[0] for name in plan) == {"train": MOST_FILES, "validation": MOST_FILES}
    assert all(0 < blocks <= 50 for blocks in plan.values())


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
    st.lists(st.integers(1, 40), max_size=5),
    st.integers(1, 100_000),
)
def test_never_more_than_wanted_by_more_than_a_block_a_split(
    train: list[int], validation: list[int], sample_tokens: int
) -> None:
    manifest = _dataset(train, validation)
    plans = plan_blocks(manifest, sample_tokens)
    assert all(1 <= plan.num_blocks <= plan.shard.num_blocks for plan in plans)
    assert sum(plan.num_blocks for plan in plans) * 100 <= sample_tokens + 200
    assert {plan.shard.split for plan in plans} == {shard.split for shard in manifest.shards}
    assert plans == plan_blocks(manifest, sample_tokens)


def test_row_groups_are_chosen_by_digest_until_there_are_enough() -> None:
    manifest = _corpus([[9, 2, 7], [1, 8], [3]])
    chosen = [(plan.file.name, plan.index) for plan in plan_row_groups(manifest, 250)]
    assert chosen == [("train/00001.parquet", 0), ("train/00000.parquet", 1), ("train/00002.parquet", 0)]
    assert len(plan_row_groups(manifest, 600)) == 6
    assert len(plan_row_groups(manifest, 1)) == 1


def test_the_choice_of_row_groups_does_not_depend_on_names() -> None:
    one, other = (
        [plan.row_group.digest for plan in plan_row_groups(_corpus(groups, prefix), 300)]
        for groups, prefix in (([[5, 4], [3, 9]], "train/a"), ([[9, 3], [4, 5]], "train/z"))
    )
    assert one == other


def test_of_a_huge_corpus_a_bounded_number_of_row_groups() -> None:
    manifest = _corpus([[n] for n in range(1000)])
    assert len(plan_row_groups(manifest, 99_000)) == MOST_FILES
