from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from pipelines.examples import assemble_examples, make_blocks, masking_vocabulary
from pipelines.masking import MaskingVocabulary
from pipelines.pairing import Pairs, sample_pairs
from pipelines.tokenizer_files import bert_tokenizer, describe_tokenizer
from schemas.configs import BuildConfig
from schemas.examples import example_schema, segment_ids
from schemas.seeding import RandomStream
from tests.pipelines.corpora import Document, make_documents, make_pool

CLS, SEP, MASK = 2, 3, 4


def make_vocabulary(vocab_size: int) -> MaskingVocabulary:
    return MaskingVocabulary(
        cls_id=CLS,
        sep_id=SEP,
        mask_id=MASK,
        random_ids=np.arange(5, vocab_size, dtype=np.uint32),
        is_continuation=np.zeros(vocab_size, bool),
    )


def to_pairs(rows: list[tuple[int, int, int, int]], labels: list[int] | None) -> Pairs:
    a_start, a_end, b_start, b_end = np.array(rows, np.int64).T
    return Pairs(a_start, a_end, b_start, b_end, None if labels is None else np.array(labels, np.uint8), 0)


def test_the_layout_of_the_worked_example() -> None:
    the, cat, sat, on, mat, it, purred, softly = range(20, 28)
    source = np.array([the, cat, sat, on, the, mat, it, purred, softly], np.uint16)

    examples = assemble_examples(source, to_pairs([(0, 6, 6, 9), (6, 9, 1, 2)], [0, 1]), CLS, SEP)

    assert examples.input_ids.tolist() == [
        *(CLS, the, cat, sat, on, the, mat, SEP, it, purred, softly, SEP),
        *(CLS, it, purred, softly, SEP, cat, SEP),
    ]
    assert examples.input_ids.dtype == np.uint16
    assert examples.offsets.tolist() == [0, 12, 19]
    assert np.flatnonzero(~examples.maskable).tolist() == [0, 7, 11, 12, 16, 18]
    assert segment_ids(12, 8).tolist() == [0] * 8 + [1] * 4


def test_the_layout_without_a_second_segment() -> None:
    source = np.array([20, 21, 22], np.uint16)

    examples = assemble_examples(source, to_pairs([(0, 2, 2, 2), (2, 3, 3, 3)], None), CLS, SEP)

    assert examples.input_ids.tolist() == [CLS, 20, 21, SEP, CLS, 22, SEP]
    assert examples.offsets.tolist() == [0, 4, 7]


def test_an_id_of_the_text_that_equals_a_special_one_stays_maskable() -> None:
    # The text never holds a special id; were it to, the place decides and not the id.
    source = np.array([CLS, SEP, CLS, SEP], np.uint16)

    examples = assemble_examples(source, to_pairs([(0, 2, 2, 2)], None), CLS, SEP)

    assert examples.maskable.tolist() == [False, True, True, False]


DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=12), min_size=1, max_size=6),
    min_size=2,
    max_size=8,
)


@settings(deadline=None)
@given(
    documents=DOCUMENTS,
    objective=st.sampled_from(["next-sentence", "sentence-order", "mlm"]),
    size=st.integers(1, 5),
)
def test_blocks_hold_the_tokens_of_the_pairs(documents: list[Document], objective: str, size: int) -> None:
    pool = make_pool(documents)
    config = BuildConfig(objective=objective, max_seq_length=24, examples_per_block=size)
    pairs = sample_pairs(pool, config, RandomStream(1, "pairs", "x"))

    blocks = list(make_blocks(pool, pairs, config, make_vocabulary(100), RandomStream(1, "masks", "x")))

    assert [block.examples.num_rows for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    rows = [row for block in blocks for row in block.examples.to_pylist()]
    assert len(rows) == len(pairs)
    for index, row in enumerate(rows):
        ids = list(row["input_ids"])
        assert row["masked_lm_positions"] == sorted(set(row["masked_lm_positions"]))
        for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
            ids[position] = original
        a = pool.token_ids[pairs.a_start[index] : pairs.a_end[index]].tolist()
        b = pool.token_ids[pairs.b_start[index] : pairs.b_end[index]].tolist()
        assert ids == ([CLS, *a, SEP] if objective == "mlm" else [CLS, *a, SEP, *b, SEP])
        assert row["segment_a_length"] == len(a) + 2
        label = row["next_sentence_label"]
        assert label is None if pairs.labels is None else label == pairs.labels[index]


@pytest.mark.parametrize(("vocab_size", "id_type"), [(65_536, pa.uint16()), (70_000, pa.uint32())])
def test_blocks_have_the_schema_of_the_vocabulary(vocab_size: int, id_type: pa.DataType) -> None:
    documents = make_documents(20, ids=range(vocab_size - 100, vocab_size))
    pool = make_pool(documents, np.uint16 if id_type == pa.uint16() else np.uint32)
    config = BuildConfig()
    pairs = sample_pairs(pool, config, RandomStream(1, "pairs", "x"))

    (block,) = make_blocks(pool, pairs, config, make_vocabulary(vocab_size), RandomStream(1, "masks", "x"))

    assert block.examples.schema.equals(example_schema(vocab_size), check_metadata=True)
    assert block.examples.schema.field("input_ids").type.value_type == id_type
    block.examples.validate(full=True)
    originals = block.examples.column("masked_lm_ids").flatten().to_numpy()
    assert originals.min() >= vocab_size - 100


def test_the_vocabulary_of_a_tokenizer(tiny_tokenizer: Tokenizer) -> None:
    _, record, _ = describe_tokenizer(tiny_tokenizer, "tiny")

    vocabulary = masking_vocabulary(tiny_tokenizer, record)

    tokens = {tiny_tokenizer.id_to_token(int(token_id)) for token_id in vocabulary.random_ids}
    left_out = set(tiny_tokenizer.get_vocab()) - tokens
    assert left_out == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{i}]" for i in range(4))}
    assert vocabulary.mask_id == tiny_tokenizer.token_to_id("[MASK]")
    assert vocabulary.is_continuation[tiny_tokenizer.token_to_id("##ing")]
    assert not vocabulary.is_continuation[tiny_tokenizer.token_to_id("#")]
    assert vocabulary.random_ids.tolist() == sorted(vocabulary.random_ids.tolist())


def test_words_that_look_reserved_and_holes_in_the_ids() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused12]", "[unusedx]", "unused1", "##"]
    ids = {token: index for index, token in enumerate(tokens)} | {"word": 20}
    tokenizer = bert_tokenizer(ids)
    tokenizer.add_special_tokens(["[ENT]"])
    _, record, _ = describe_tokenizer(tokenizer, "test")

    vocabulary = masking_vocabulary(tokenizer, record)

    assert isinstance(tokenizer.model, WordPiece)
    assert tokenizer.token_to_id("[ENT]") not in vocabulary.random_ids.tolist()
    assert vocabulary.random_ids.tolist() == [6, 7, 8, 20]
    assert len(vocabulary.is_continuation) == record.vocab_size
    assert not vocabulary.is_continuation.any()
