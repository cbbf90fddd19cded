from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.pool_assignment import assign_pools
from pipelines.pools import PoolDescriptor, choose_num_pools
from schemas.configs import BuildConfig, IngestConfig
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import CorpusFile, CorpusManifest, RowGroup, TokenizerRecord

TOKENIZER = TokenizerRecord(
    sha256="0" * 64, vocab_size=100, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4
)


def make_manifest(files: dict[str, list[tuple[str, int, int]]]) -> CorpusManifest:
    """From the row groups (digest, documents, tokens) of each file."""
    corpus_files = tuple(
        CorpusFile(
            name=name,
            split="train" if name.startswith("train") else "validation",
            sha256="0" * 64,
            size_bytes=1,
            row_groups=tuple(
                RowGroup(digest=digest, num_documents=documents, num_sentences=documents, num_tokens=tokens)
                for digest, documents, tokens in groups
            ),
        )
        for name, groups in files.items()
    )
    groups = [group for file in corpus_files for group in file.row_groups]
    num_documents = sum(group.num_documents for group in groups)
    return CorpusManifest(
        created_by="test",
        config=IngestConfig(inputs=("x",)),
        tokenizer=TOKENIZER,
        num_input_files=1,
        num_input_bytes=1,
        num_documents_read=num_documents,
        num_documents=num_documents,
        num_rejected=0,
        rejected={},
        num_sentences=num_documents,
        num_tokens=sum(group.num_tokens for group in groups),
        num_text_bytes=1,
        files=corpus_files,
    )


def digest(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}"


def even_groups(count: int, num_tokens: int = 1_000_000) -> list[tuple[str, int, int]]:
    return [(digest(number), 10, num_tokens) for number in range(count)]


def digests_of(pools: list[PoolDescriptor]) -> list[list[str]]:
    return [[group.digest for group in pool.row_groups] for pool in pools]


def test_every_row_group_has_one_pool_of_its_split() -> None:
    groups = even_groups(45)
    manifest = make_manifest({"train/a.parquet": groups[:40], "validation/a.parquet": groups[40:]})

    pools, warnings = assign_pools(manifest, BuildConfig())

    train = [pool for pool in pools if pool.split == "train"]
    validation = [pool for pool in pools if pool.split == "validation"]
    assert warnings == []
    assert [pool.shard_name for pool in validation] == [f"validation-0000{i}-of-00003.tar" for i in range(3)]
    assert [pool.name for pool in train] == [f"train-{i:05d}" for i in range(16)]
    assert sorted(chain(*digests_of(train))) == sorted(name for name, _, _ in groups[:40])
    assert sorted(chain(*digests_of(validation))) == sorted(name for name, _, _ in groups[40:])
    assert {pool.num_documents for pool in train} == {20, 30}


@settings(deadline=None)
@given(order=st.permutations(range(12)), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_pools_depend_on_neither_the_names_nor_the_number_of_files(order: list[int], cuts: list[int]) -> None:
    groups = even_groups(12)
    expected, _ = assign_pools(make_manifest({"train/a.parquet": groups}), BuildConfig(seed=5))
    bounds = [0, *sorted(cuts), 12]
    files = {
        f"train/{index}-{order[0]}.parquet": [groups[i] for i in order[start:stop]]
        for index, (start, stop) in enumerate(pairwise(bounds))
    }

    pools, _ = assign_pools(make_manifest(files), BuildConfig(seed=5))

    assert digests_of(pools) == digests_of(expected)


def test_another_seed_deals_otherwise() -> None:
    manifest = make_manifest({"train/a.parquet": even_groups(64)})

    first, _ = assign_pools(manifest, BuildConfig(seed=1))
    second, _ = assign_pools(manifest, BuildConfig(seed=2))

    assert digests_of(first) != digests_of(second)


@settings(deadline=None)
@given(st.lists(st.integers(1, 3_000_000), min_size=2, max_size=60))
def test_pools_are_balanced(sizes: list[int]) -> None:
    groups = [(digest(number), 2, size) for number, size in enumerate(sizes)]

    pools, _ = assign_pools(make_manifest({"train/a.parquet": groups}), BuildConfig())

    # Filling the lightest pool first leaves no two further apart than one row group.
    tokens = [pool.num_tokens for pool in pools]
    assert max(tokens) - min(tokens) <= max(sizes)
    assert len(pools) == min(choose_num_pools(sum(sizes)), len(sizes))


@settings(deadline=None)
@given(st.lists(st.integers(1, 40_000_000), min_size=2, max_size=40))
def test_every_pool_has_two_documents_where_each_row_group_has_one(sizes: list[int]) -> None:
    groups = [(digest(number), 1, size) for number, size in enumerate(sizes)]

    pools, _ = assign_pools(make_manifest({"train/a.parquet": groups}), BuildConfig())

    assert all(pool.num_documents >= 2 for pool in pools)
    assert Counter(chain(*digests_of(pools))) == Counter(name for name, _, _ in groups)
    assert [pool.index for pool in pools] == list(range(len(pools)))
    assert {pool.num_pools for pool in pools} == {len(pools)}


def test_one_document_cannot_make_a_not_next() -> None:
    manifest = make_manifest({"train/a.parquet": [(digest(0), 1, 10)]})

    with pytest.raises(ClozelineError, match=r"one document in `train`[\s\S]*--objective mlm"):
        assign_pools(manifest, BuildConfig())


@pytest.mark.parametrize("objective", ["mlm", "sentence-order"])
def test_one_document_is_enough_without_not_next(objective: str) -> None:
    manifest = make_manifest({"train/a.parquet": [(digest(0), 1, 10)]})

    pools, _ = assign_pools(manifest, BuildConfig(objective=objective))

    assert [pool.shard_name for pool in pools] == ["train-00000-of-00001.tar"]


def test_a_corpus_without_a_training_document() -> None:
    manifest = make_manifest({"validation/a.parquet": [(digest(0), 5, 10)]})

    with pytest.raises(ClozelineError, match="no document in `train`"):
        assign_pools(manifest, BuildConfig(objective="mlm"))


def test_a_validation_document_alone_is_left_out_with_a_warning() -> None:
    groups = even_groups(3)
    manifest = make_manifest({"train/a.parquet": groups, "validation/a.parquet": [(digest(9), 1, 10)]})

    pools, warnings = assign_pools(manifest, BuildConfig())

    assert {pool.split for pool in pools} == {"train"}
    assert len(warnings) == 1
    assert "validation has one document" in warnings[0]


def test_no_validation_document_gives_a_warning() -> None:
    _, warnings = assign_pools(make_manifest({"train/a.parquet": even_groups(3)}), BuildConfig())

    assert len(warnings) == 1
    assert "--validation-fraction" in warnings[0]


def by_split(pools: list[PoolDescriptor]) -> Counter[str]:
    return Counter(pool.split for pool in pools)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        # Train has 45 M tokens, validation 5 M, a ninth of it.
        ({"num_shards": 9}, {"train": 9, "validation": 1}),
        ({"num_shards": 18}, {"train": 18, "validation": 2}),
        ({"num_shards": 2}, {"train": 2, "validation": 1}),
        # More than the 45 row groups, which have 10 documents each.
        ({"num_shards": 225}, {"train": 225, "validation": 25}),
        # 0.01 examples a token: 450,000 and 50,000.
        ({"examples_per_shard": 10_000}, {"train": 45, "validation": 5}),
        ({"examples_per_shard": 100_000}, {"train": 4, "validation": 1}),
        ({}, {"train": 16, "validation": 3}),
    ],
    ids=str,
)
def test_shards_by_choice(choice: dict[str, int], expected: dict[str, int]) -> None:
    groups = even_groups(50)
    manifest = make_manifest({"train/a.parquet": groups[:45], "validation/a.parquet": groups[45:]})

    pools, _ = assign_pools(manifest, BuildConfig(seed=1, **choice), 0.01)

    assert by_split(pools) == expected


def test_validation_never_hinders() -> None:
    """It is given the pools that its documents can fill, and as many as memory needs."""
    train = even_groups(50)
    few = make_manifest({"train/a.parquet": train, "validation/a.parquet": [(digest(60), 3, 10**7)]})
    many = make_manifest({"train/a.parquet": train, "validation/a.parquet": even_groups(150)[50:]})

    assert by_split(assign_pools(few, BuildConfig(num_shards=100))[0]) == {"train": 100, "validation": 1}
    # A hundred million tokens need four.
    assert by_split(assign_pools(many, BuildConfig(num_shards=2))[0]) == {"train": 2, "validation": 4}


@pytest.mark.parametrize(
    ("choice", "found", "remedy"),
    [
        (
            {"num_shards": 3},
            "--num-shards 3 makes shards of 33,333,333 tokens, "
            "but a worker holds 32,000,000 at most at a time",
            ("num_shards", "4 or more"),
        ),
        (
            {"num_shards": 501},
            "--num-shards 501 makes 501 shards, but the documents in `train` can fill 500 at most",
            ("num_shards", "500 or fewer"),
        ),
        (
            {"examples_per_shard": 2_000_000},
            "--examples-per-shard 2000000 makes shards of 100,000,000 tokens, "
            "but a worker holds 32,000,000 at most at a time",
            ("examples_per_shard", "250000 or less"),
        ),
        (
            {"examples_per_shard": 1_000},
            "--examples-per-shard 1000 makes 1,000 shards, but the documents in `train` can fill 500 at most",
            ("examples_per_shard", "2000 or more"),
        ),
    ],
    ids=["few", "many", "large", "small"],
)
def test_a_choice_that_cannot_be_had_says_what_can(
    choice: dict[str, int], found: str, remedy: tuple[str, str]
) -> None:
    # 100 row groups of a million tokens and ten documents: a million examples.
    manifest = make_manifest({"train/a.parquet": even_groups(100)})
    field, value = remedy

    with pytest.raises(UsageError) as caught:
        assign_pools(manifest, BuildConfig(**choice), 0.01)

    assert str(caught.value) == f"{found}\nGive --{field.replace('_', '-')} {value}."
    assert assign_pools(manifest, BuildConfig(**{field: int(value.split()[0])}), 0.01)


def test_documents_larger_than_a_pool_are_no_reason_to_refuse() -> None:
    manifest = make_manifest({"train/a.parquet": [(digest(0), 1, 40_000_000), (digest(1), 1, 40_000_000)]})

    assert by_split(assign_pools(manifest, BuildConfig(num_shards=1))[0]) == {"train": 1}


@pytest.mark.parametrize(("num_shards", "warned"), [(10, False), (11, True)])
def test_shards_of_few_documents_give_a_warning(num_shards: int, warned: bool) -> None:
    files = {"train/a.parquet": even_groups(100), "validation/a.parquet": [(digest(200), 2, 9)]}

    _, warnings = assign_pools(make_manifest(files), BuildConfig(num_shards=num_shards))

    # A thousand documents in all.
    assert any("about 90 documents" in warning for warning in warnings) == warned
