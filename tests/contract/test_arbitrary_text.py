"""Whatever the text, an example with its labels put back is the text as the `tokenizers` library has it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from pipelines.examples import make_blocks, masking_vocabulary
from pipelines.pairing import sample_pairs
from pipelines.pool_tokens import PoolTokens
from pipelines.segmentation import segment_documents
from pipelines.tokenization import SentenceTokenizer
from pipelines.tokenizer_files import bert_tokenizer, describe_tokenizer
from schemas.configs import BuildConfig
from schemas.seeding import RandomStream

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ODD_WORDS = (*SPECIAL_TOKENS, "\x00", "\ufeff", "\u2028", "a.\u0301", "\u4e2d\u6587。", "É", "\r\n", ". The ")
TEXTS = st.lists(
    st.one_of(st.text(max_size=12), st.sampled_from(ODD_WORDS), st.just("one two three four.")), max_size=8
).map(" ".join)


def make_tokenizer(texts: list[str]) -> Tokenizer:
    """One that knows every character of the texts, so that no difference hides in `[UNK]`."""
    characters = sorted(set(normalizers.BertNormalizer(lowercase=True).normalize_str("".join(texts))) - {" "})
    tokens = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters), "spare"]
    return bert_tokenizer({token: index for index, token in enumerate(dict.fromkeys(tokens))})


def tokenize_as_the_library_does(tokenizer: Tokenizer, documents: list[list[str]]) -> list[list[int]]:
    """The ids of each document with a token, sentence by sentence, special tokens spelled out as text."""
    theirs = Tokenizer.from_str(tokenizer.to_str())
    theirs.encode_special_tokens = True
    flat = [
        [i for sentence in document for i in theirs.encode(sentence, add_special_tokens=False).ids]
        for document in documents
    ]
    return [document for document in flat if document]


def put_back(row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The segments of an example before masking, each with the special tokens at its end and A's start."""
    ids = list(row["input_ids"])
    for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
        ids[position] = original
    return ids[: row["segment_a_length"]], ids[row["segment_a_length"] :]


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(TEXTS, min_size=2, max_size=6),
    seed=st.integers(0, 99),
    objective=st.sampled_from(["next-sentence", "mlm"]),
)
@example(texts=["[MASK] [CLS] [SEP]. The [PAD] [MASK]", "[UNK] [MASK]\x00\ufeff"], seed=0, objective="mlm")
def test_labels_put_back_give_the_text(texts: list[str], seed: int, objective: str) -> None:
    tokenizer = make_tokenizer(texts)
    sentences = segment_documents(pa.array(texts, pa.large_string()), "sentencex", "en")
    documents = tokenize_as_the_library_does(tokenizer, sentences.to_pylist())
    assume(len(documents) >= 2)

    tokenized = SentenceTokenizer(tokenizer).tokenize(sentences)
    table = pa.table({"token_ids": tokenized.token_ids, "sentence_lengths": tokenized.sentence_lengths})
    has_tokens = tokenized.token_ids.value_lengths().to_numpy(zero_copy_only=False) > 0
    pool = PoolTokens.from_tables([table.filter(pa.array(has_tokens))])
    _, record, _ = describe_tokenizer(tokenizer, "made")
    config = BuildConfig(
        seed=seed, objective=objective, max_seq_length=16, short_seq_prob=0.3, masked_lm_prob=0.5
    )
    pairs = sample_pairs(pool, config, RandomStream(seed, "pairs", "x"))
    vocabulary = masking_vocabulary(tokenizer, record)
    blocks = make_blocks(pool, pairs, config, vocabulary, RandomStream(seed, "masks", "x"))

    segments = []
    for row in (row for block in blocks for row in block.examples.to_pylist()):
        special_places = {0, row["segment_a_length"] - 1, len(row["input_ids"]) - 1}
        assert special_places.isdisjoint(row["masked_lm_positions"])
        a, b = put_back(row)
        assert (a[0], a[-1]) == (record.cls_id, record.sep_id)
        assert b[-1:] == ([] if objective == "mlm" else [record.sep_id])
        segments += [a[1:-1], *([b[:-1]] if b else [])]
    if objective == "mlm":
        # Every token once, in order: the examples together are the text.
        assert [i for segment in segments for i in segment] == [i for document in documents for i in document]
    spelled = [f" {' '.join(map(str, document))} " for document in documents]
    for segment in segments:
        assert segment
        assert {record.pad_id, record.cls_id, record.sep_id, record.mask_id}.isdisjoint(segment)
        assert any(f" {' '.join(map(str, segment))} " in document for document in spelled)
