from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.datasets import CONFIGS, build_golden_dataset, load_expected


def test_every_dataset_has_its_hashes() -> None:
    assert set(load_expected()) == set(CONFIGS)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_shards_have_the_bytes_they_always_had(name: str, tmp_path: Path) -> None:
    assert build_golden_dataset(name, tmp_path) == load_expected()[name], (
        "the bytes of shards changed: if that is meant, run `make golden` and say so in the CHANGELOG"
    )
