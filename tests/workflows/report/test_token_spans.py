import pytest
from tokenizers import Tokenizer

from schemas.manifests import TokenizerRecord
from workflows.inspecting import MaskedToken, ReadableExample
from workflows.report.blocks import ExampleLine, Span
from workflows.report.corpus_sample import SampledDocument
from workflows.report.token_spans import document_lines, example_lines
from workflows.report.token_tally import Vocabulary

_FIRST = ["[CLS]", "the", "[MASK]", "##s", "sat", "##s", "[UNK]", "[SEP]"]


@pytest.fixture
def vocabulary(tiny_tokenizer: Tokenizer) -> Vocabulary:
    record = TokenizerRecord(
        sha256="0" * 64,
        vocab_size=tiny_tokenizer.get_vocab_size(),
        pad_id=0,
        **{
            f"{name.lower()}_id": tiny_tokenizer.token_to_id(f"[{name}]")
            for name in ("UNK", "CLS", "SEP", "MASK")
        },
    )
    return Vocabulary(tiny_tokenizer.to_str().encode(), record)


def test_an_example(vocabulary: Vocabulary) -> None:
    example = ReadableExample(
        shard="train-00000-of-00001.tar",
        number=0,
        tokens=[
            "[CLS]",
            *["the", "[MASK]", "##s", "sat", "##s", "[UNK]", "[SEP]", "it", "river", "softly", "cat"],
            "[SEP]",
        ],
        segment_a_length=8,
        masked=[
            MaskedToken(2, "[MASK]", "cat"),
            MaskedToken(9, "river", "purred"),
            MaskedToken(11, "cat", "cat"),
        ],
        label="IsNext",
    )
    assert example_lines(example, vocabulary) == (
        ExampleLine(
            "A",
            (
                Span("the"),
                Span("[MASK]", "mask", "cat"),
                Span("##s"),
                Span("sat"),
                Span("s", glued=True),
                Span("[UNK]", "unknown"),
            ),
        ),
        ExampleLine(
            "B", (Span("it"), Span("river", "random", "purred"), Span("softly"), Span("cat", "kept"))
        ),
    )


def test_one_segment(vocabulary: Vocabulary) -> None:
    example = ReadableExample("s.tar", 0, ["[CLS]", "the", "[SEP]"], 3, [], None)
    assert example_lines(example, vocabulary) == (ExampleLine("A", (Span("the"),)),)


def _document(tokenizer: Tokenizer, num_sentences: int, *sentences: str) -> SampledDocument:
    ids = tuple(tuple(tokenizer.token_to_id(token) for token in one.split()) for one in sentences)
    return SampledDocument("id", sum(map(len, ids)), num_sentences, ids)


def test_a_document(tiny_tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    document = _document(tiny_tokenizer, 2, "the cat ##s [UNK]", "it sat")
    assert document_lines(document, vocabulary) == (
        ExampleLine("1", (Span("the"), Span("cat"), Span("s", glued=True), Span("[UNK]", "unknown"))),
        ExampleLine("2", (Span("it"), Span("sat"))),
    )


@pytest.mark.parametrize(("more", "words"), [(1, "and 1 more sentence"), (2000, "and 2,000 more sentences")])
def test_what_is_left_out_is_said(
    tiny_tokenizer: Tokenizer, vocabulary: Vocabulary, more: int, words: str
) -> None:
    lines = document_lines(_document(tiny_tokenizer, 1 + more, "the cat"), vocabulary)
    assert lines[-1] == ExampleLine("", (Span(words, "note"),))


def test_a_sentence_without_end_is_cut(tiny_tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    lines = document_lines(_document(tiny_tokenizer, 2, "cat " * 5000, "sat"), vocabulary)
    assert len(lines) == 2
    assert (len(lines[0].spans), lines[0].spans[-1]) == (121, Span("…", "note"))
    assert lines[1].spans[0].text == "and 1 more sentence"
