from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.scale import Scale, format_table

_DOCUMENT = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_document_shows_the_table_that_the_constants_give() -> None:
    assert format_table() in _DOCUMENT.read_text(encoding="utf-8"), (
        "a constant of the pipelines changed: put the table of `python -m tests.benchmarks.scale` into "
        "docs/scale.md, and read its text again"
    )


def test_a_terabyte_by_hand() -> None:
    scale = Scale(10**12)
    # 1,000 files of 1 GB, each in 1e9 / 2**26 = 14.9 reads; 233e9 tokens, of which 1% is held out.
    assert scale.num_reads == 15_000
    assert scale.num_row_groups == 15_000 * (15 + 1)
    assert scale.num_pools == 7_209 + 73
    assert scale.core_hours == pytest.approx(46.3, abs=0.05)
