from types import SimpleNamespace

import pyarrow as pa
import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import segmentation
from pipelines.segmentation import choose_segmenter, segment_documents
from schemas.configs import IngestConfig


def segment(*texts, segmenter="sentencex", language="en"):
    sentences = segment_documents(pa.array(texts, pa.large_string()), segmenter, language)
    assert sentences.type == pa.list_(pa.string())
    assert sentences.null_count == 0
    sentences.validate(full=True)
    return sentences.to_pylist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("The cat sat. It purred.", ["The cat sat.", "It purred."], id="two"),
        pytest.param("  The cat sat.\t\n", ["The cat sat."], id="stripped"),
        pytest.param("Dr. Smith came. He left.", ["Dr. Smith came.", "He left."], id="abbreviation"),
        pytest.param("A heading\n\nThe text", ["A heading", "The text"], id="paragraphs"),
        pytest.param("A heading\r\n\r\nThe text", ["A heading", "The text"], id="paragraphs of Windows"),
        pytest.param("A heading\n \t\n\n  \nThe text", ["A heading", "The text"], id="lines of blanks"),
        pytest.param("The cat\nsat. It\r\npurred.", ["The cat\nsat.", "It\r\npurred."], id="wrapped lines"),
        pytest.param("他来了。她走了！", ["他来了。", "她走了！"], id="chinese"),
        pytest.param("", [], id="empty"),
        pytest.param(" \n\u3000\n\n ", [], id="white space"),
        pytest.param("\x00a\x01", ["\x00a\x01"], id="control characters"),
    ],
)
def test_sentencex(text, expected):
    assert segment(text) == [expected]


def test_documents_stay_apart():
    assert segment("One. Two", "", "three. Four.", " ") == [["One.", "Two"], [], ["three.", "Four."], []]
    assert segment() == []


def test_newline_takes_each_line_as_a_sentence():
    text = "One. Two.\r\n\n  three \u2028 four\n \n"
    assert segment(text, "a\nb", segmenter="newline") == [["One. Two.", "three \u2028 four"], ["a", "b"]]


def test_sliced_and_chunked_arrays():
    texts = pa.array(["x. Y.", "One. Two.", "Three."], pa.large_string())
    expected = [["One.", "Two."], ["Three."]]
    assert segment_documents(texts[1:], "sentencex", "en").to_pylist() == expected
    chunked = pa.chunked_array([texts[1:2], texts[2:]])
    assert segment_documents(chunked, "sentencex", "en").to_pylist() == expected


def test_text_of_a_sentence_a_line_is_split_at_its_lines():
    assert choose_segmenter(IngestConfig(inputs=("x",))) == "sentencex"
    assert choose_segmenter(IngestConfig(inputs=("x",), segmenter="newline")) == "newline"
    assert choose_segmenter(IngestConfig(inputs=("x",), format="text-sentences")) == "newline"


def test_an_unknown_language_falls_back():
    assert segment("The cat sat. It purred.", language="zz") == [["The cat sat.", "It purred."]]


# ---------------------------------------------------------------- long stretches without white space

CHINESE = (
    "他说：「你好。世界！」然后走了。（真的。是的。）她笑了！！是吗？我们今天去学校看书的时候遇到了很多人。"
)


@pytest.mark.parametrize("repeats", [1, 10, 60])
def test_cut_stretches_give_the_sentences_of_the_whole(repeats):
    text = CHINESE * repeats
    assert segment(text, language="zh") == [[sentence.strip() for sentence in sentencex.segment("zh", text)]]


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["字", "。", "ab", ".", "é", "…", "！」", " ", "\n", "x" * 300, "語" * 300]),
        max_size=60,
    )
)
def test_no_character_but_white_space_is_lost(parts):
    text = "".join(parts)
    (sentences,) = segment(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize(
    ("unit", "longest"),
    [
        ("你好。世界！", 256),
        ("नमस्ते।दुनिया", 256),
        ("مرحبا؟كيف", 256),
        ("\U00010a56ab", 256),
        ("「你好。」", 2048),
        ("「你好。世界！", 2048),
        ("‘你好。他’", 2048),
    ],
)
def test_sentencex_never_meets_a_long_stretch(monkeypatch, unit, longest):
    # Its time grows with the square of a stretch: a stretch as long as this text takes it half a minute.
    met = []

    def record(language, text):
        met.append(text)
        return [text[start : start + 500] for start in range(0, len(text), 500)]

    monkeypatch.setattr("pipelines.segmentation.sentencex.segment", record)
    text = f"He said. {unit * 50_000} And left."
    segment(text)
    assert "".join(met) == text
    assert max(len(stretch) for part in met for stretch in part.split()) <= longest + len(unit)


def test_text_without_long_stretches_is_handed_over_whole(monkeypatch):
    met = []
    monkeypatch.setattr(
        "pipelines.segmentation.sentencex.segment", lambda _, text: met.append(text) or list(text)
    )
    texts = ["One é. Two.", "x" * 10_000 + ". Two.", "é。 " * 1000]
    segment(*texts)
    assert met == texts


SHORT = [f"Sentence {number} of many." for number in range(100)]


@pytest.mark.parametrize("separator", [" ", "\n"])
def test_a_bracket_closed_far_away_does_not_swallow_what_lies_between(separator):
    # sentencex alone makes one sentence of all that lies between the brackets.
    text = separator.join(["It began (and went on.", *SHORT, "until the end) here."])
    assert segment(text) == [["It began (and went on.", *SHORT, "until the end) here."]]


def test_a_long_sentence_without_an_end_stays_one():
    text = "word " * 1000
    assert segment(text) == [[text.strip()]]


def test_a_short_quotation_stays_whole():
    text = "He said (quite softly. He was tired.) and left. She stayed."
    assert segment(text) == [[sentence.strip() for sentence in sentencex.segment("en", text)]]
    assert len(segment(text)[0]) == 2


@pytest.mark.parametrize("separator", ["\n", "\n\n"])
def test_a_long_paragraph_is_handed_over_in_pieces_that_end_at_a_line_break(separator):
    lines = [f"This is line {number} of a long text." for number in range(10_000)]
    assert segment(separator.join(lines)) == [lines]


def test_a_long_paragraph_without_a_line_break_is_handed_over_in_pieces_of_bounded_length(monkeypatch):
    lengths = []

    def segment_piece(language, text):
        lengths.append(len(text))
        return sentencex.segment(language, text)

    monkeypatch.setattr(segmentation, "sentencex", SimpleNamespace(segment=segment_piece))
    sentences = [f"This is sentence {number} of a long text." for number in range(10_000)]
    assert segment(" ".join(sentences)) == [sentences]
    assert len(lengths) > 1
    assert max(lengths) <= 1 << 16


@pytest.mark.parametrize("separator", [" ", "\n"])
def test_a_long_way_without_a_place_to_cut_ends_at_the_next_one(separator):
    long = " ".join(["word"] * 40_000) + "."
    sentences = [long, "This follows it.", long, "This too."]
    assert segment(separator.join(sentences)) == [sentences]
    assert segment(long) == [[long]]
    assert segment(" ".join(["word"] * 40_000)) == [[" ".join(["word"] * 40_000)]]


# ---------------------------------------------------------------- what takes sentencex very long


def record_pieces(monkeypatch):
    pieces = []

    def segment_piece(language, text):
        pieces.append(text)
        return [text[start : start + 500] for start in range(0, len(text), 500)]

    monkeypatch.setattr(segmentation, "sentencex", SimpleNamespace(segment=segment_piece))
    return pieces


@pytest.mark.parametrize(
    "unit", ["\u201c", "\u201ca ", "\u00ab", "\u2018a", "\u201e", "\u2039", "\u300a", "''", "'", "``"]
)
def test_quotation_marks_without_a_partner_are_handed_over_in_short_pieces(monkeypatch, unit):
    # Each is looked for a partner up to the end of the piece: a million of them took hours.
    pieces = record_pieces(monkeypatch)
    text = unit * (300_000 // len(unit))
    segment(text)
    assert "".join(pieces) == text
    assert sum(piece.count(unit) * len(piece) for piece in pieces) < 2000 * len(text)


def test_quotation_marks_of_real_text_change_nothing(monkeypatch):
    pieces = record_pieces(monkeypatch)
    text = "\u201cYes,\u201d she said, and \u2018no\u2019. " * 1000 + "\n\n" + "The ``name`` of it. " * 500
    segment(text)
    assert "".join(pieces) == text
    assert len(pieces) == 1


@pytest.mark.parametrize("unit", ["a", "(a ", ")", "\u4eca"])
def test_a_paragraph_without_any_place_to_cut_is_cut_at_white_space_or_anywhere(monkeypatch, unit):
    pieces = record_pieces(monkeypatch)
    text = "He said. " + unit * (1_000_000 // len(unit)) + " and left."
    (sentences,) = segment(text)
    assert max(map(len, pieces)) <= 1 << 18
    assert "".join("".join(sentences).split()) == "".join(text.split())
    if " " in unit:
        assert all(piece.endswith(" ") for piece in pieces[:-1])


@pytest.mark.parametrize("repeats", [1, 20, 70_000])
def test_sentences_by_the_ten_thousand_come_in_order(repeats):
    texts = ["One. Two.", "Three. " * repeats, "Four."]
    assert segment(*texts) == [["One.", "Two."], ["Three."] * repeats, ["Four."]]
    assert segment("x\n" * repeats, "y", segmenter="newline") == [["x"] * repeats, ["y"]]
