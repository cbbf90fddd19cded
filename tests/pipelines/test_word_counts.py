from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipelines.word_counts import MAX_PIECE_CHARS, WORD_COUNT_SCHEMA, WordCounter
from pipelines.words import make_piece_finder

TEXTS = st.lists(st.text(alphabet="ab \n.\u00e9\u4e2d", max_size=20), max_size=6)


def count_plainly(texts: list[str]) -> dict[str, int]:
    find_pieces = make_piece_finder(isolates_ideographs=True)
    return dict(Counter(piece for text in texts for piece in find_pieces(text)))


@given(st.lists(TEXTS, max_size=3))
def test_counts_every_piece(batches: list[list[str]]) -> None:
    counter = WordCounter()
    for texts in batches:
        counter.add_texts(pa.array(texts, pa.large_string()))
    assert counter.counts == count_plainly([text for texts in batches for text in texts])


@given(TEXTS, TEXTS)
def test_tables_of_counts_add_up(first: list[str], second: list[str]) -> None:
    total = WordCounter()
    for texts in (first, second):
        counter = WordCounter()
        counter.add_texts(pa.array(texts, pa.string()))
        table = counter.to_table()
        assert table.schema == WORD_COUNT_SCHEMA
        assert table["piece"].to_pylist() == sorted(table["piece"].to_pylist())
        total.add_table(table)
    assert total.counts == count_plainly(first + second)


def test_the_rarest_pieces_go_when_there_are_too_many() -> None:
    counter = WordCounter(max_pieces=6)
    text = " ".join(["the"] * 9 + ["cat"] * 8 + ["sat"] * 7 + ["on", "a", "new", "mat"])
    counter.add_texts(pa.array([text]))
    assert counter.counts == {"the": 9, "cat": 8, "sat": 7}


def test_what_is_held_stays_bounded() -> None:
    counter = WordCounter(max_pieces=100)
    for start in range(0, 5000, 500):
        counter.add_texts(
            pa.array([" ".join(f"w{index}" for index in range(start, start + 500)) + " the the"])
        )
        assert len(counter.counts) <= 100
    assert set(counter.counts) <= {"the"}


def test_endless_words_are_left_out() -> None:
    counter = WordCounter()
    counter.add_texts(pa.array([f"{'x' * (MAX_PIECE_CHARS + 1)} {'y' * MAX_PIECE_CHARS}"]))
    assert counter.counts == {"y" * MAX_PIECE_CHARS: 1}
