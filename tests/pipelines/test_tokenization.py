import json
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from pipelines.tokenization import SentenceTokenizer, TokenizedSentences
from pipelines.tokenizer_files import SPECIAL_TOKENS, bert_tokenizer

Documents = list[list[str]]

# Characters at which a cut could go wrong: kinds of white space and of controls, combining marks alone and
# after punctuation, characters that decompose into ASCII punctuation or into several, letters that change
# their number when lower-cased, ideographs of every range, and what the special tokens are spelled with.
NASTY = (
    " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u3000\ufeff\u200b\u200d\xad\x00\x7f\ufffd"
    "\u0300\u0301\u0308\u0338\u0345\u093c\u3099\u0591"
    "<>=`\u226e\u2260\u226f\u1fef\u037e\u0387\u212a\u212b\u00e9\u0130\u00df\u03a3\u03c2\ufb01\u01c5"
    "\u2010\u2018\u201d\u2026\u2027\u2028\u3001\u3003\u3008\u3011\uff01\u00bf\u0964"
    "\u4e00\u9fff\u3400\u4dbf\uf900\ufaff\U00020000\U0002a6df\U0002b81e\U0002f800\U0002fa1f\u3042\u30ac\uac00"
    "[MASK]#.,-_'\"aAzZ09\U0001f600\U000e0001"
)
SENTENCES = st.one_of(
    st.text(alphabet=NASTY, max_size=30),
    st.text(max_size=30),
    st.lists(st.sampled_from([*SPECIAL_TOKENS, "the", "cat", " ", "##s", "[", "]", "mask", ".\u0301"])).map(
        "".join
    ),
)
DOCUMENTS = st.lists(st.lists(SENTENCES, max_size=4), max_size=4)


def to_lists(documents: Documents, string_type: pa.DataType | None = None) -> pa.Array:
    return pa.array(documents, pa.list_(string_type or pa.string()))


def tokenize_plainly(tokenizer: Tokenizer, documents: Documents) -> tuple[list[list[int]], list[list[int]]]:
    """What the library says, a sentence at a time."""
    tokenizer.encode_special_tokens = True
    encoded = [
        [tokenizer.encode(sentence, add_special_tokens=False).ids for sentence in document]
        for document in documents
    ]
    ids = [[token_id for sentence in document for token_id in sentence] for document in encoded]
    return ids, [[len(sentence) for sentence in document if sentence] for document in encoded]


def to_python(tokenized: TokenizedSentences) -> tuple[list[list[int]], list[list[int]]]:
    return tokenized.token_ids.to_pylist(), tokenized.sentence_lengths.to_pylist()


def make_revealing_tokenizer(
    documents: Documents, *, lowercase: bool, strip_accents: bool | None, chinese: bool, max_chars: int
) -> Tokenizer:
    """A tokenizer that knows every character of the text, so that no difference hides in `[UNK]`."""
    text = "".join(sentence for document in documents for sentence in document)
    normaliser = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    characters = sorted(set(normaliser.normalize_str(text)) - {" "})
    tokens = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = bert_tokenizer(
        vocabulary, lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=chinese
    )
    parts = json.loads(tokenizer.to_str())
    parts["model"]["max_input_chars_per_word"] = max_chars
    return Tokenizer.from_str(json.dumps(parts))


@settings(max_examples=400, deadline=None)
@given(
    documents=DOCUMENTS,
    lowercase=st.booleans(),
    strip_accents=st.sampled_from([None, True, False]),
    chinese=st.booleans(),
    max_chars=st.sampled_from([3, 100]),
)
@example([["[MASK] \u226e<\u0338 a\x0bb"]], True, None, True, 100)
@example([["aaa\x00a bbbb ccc"]], True, None, True, 3)
def test_equals_the_library_on_any_text(
    documents: Documents, lowercase: bool, strip_accents: bool | None, chinese: bool, max_chars: int
) -> None:
    tokenizer = make_revealing_tokenizer(
        documents, lowercase=lowercase, strip_accents=strip_accents, chinese=chinese, max_chars=max_chars
    )
    by_words = SentenceTokenizer(tokenizer)
    assert by_words.by_distinct_words
    assert to_python(by_words.tokenize(to_lists(documents))) == tokenize_plainly(tokenizer, documents)


@settings(max_examples=100, deadline=None)
@given(
    blocks=st.lists(DOCUMENTS, max_size=4), cached_words=st.integers(1, 20), block_bytes=st.integers(1, 60)
)
def test_neither_memory_nor_blocks_change_the_ids(
    blocks: list[Documents], cached_words: int, block_bytes: int
) -> None:
    every = [document for block in blocks for document in block]
    tokenizer = make_revealing_tokenizer(
        every, lowercase=True, strip_accents=None, chinese=True, max_chars=100
    )
    forgetful = SentenceTokenizer(tokenizer, cached_words=cached_words, block_bytes=block_bytes)
    for block in blocks:
        assert to_python(forgetful.tokenize(to_lists(block))) == tokenize_plainly(tokenizer, block)


@settings(max_examples=50, deadline=None)
@given(documents=DOCUMENTS)
def test_no_special_token_but_unk_comes_out(documents: Documents) -> None:
    vocabulary = {
        token: index for index, token in enumerate([*SPECIAL_TOKENS, "the", "[", "]", "mask", "##s"])
    }
    token_ids = SentenceTokenizer(bert_tokenizer(vocabulary)).tokenize(to_lists(documents)).token_ids
    specials = {vocabulary[token] for token in SPECIAL_TOKENS if token != "[UNK]"}
    assert specials.isdisjoint(token_ids.flatten().to_pylist())


def test_documents_are_ids_and_sentence_lengths(tiny_tokenizer: Tokenizer) -> None:
    documents = [["The cat sat.", " \t", "It purred!"], [], ["\x00"], ["[MASK]"]]
    tokenized = SentenceTokenizer(tiny_tokenizer).tokenize(to_lists(documents))
    tokens = [[tiny_tokenizer.id_to_token(i) for i in ids] for ids in tokenized.token_ids.to_pylist()]
    assert tokens == [["the", "cat", "sat", ".", "it", "purred", "!"], [], [], ["[", "mask", "]"]]
    assert tokenized.sentence_lengths.to_pylist() == [[4, 3], [], [], [3]]
    assert tokenized.token_ids.type == pa.list_(pa.field("item", pa.uint16(), nullable=False))
    assert tokenized.sentence_lengths.type == pa.list_(pa.field("item", pa.int32(), nullable=False))


def test_takes_slices_and_large_strings(tiny_tokenizer: Tokenizer) -> None:
    documents = [["never read"], ["the cat", "sat"], ["on"], ["nor this"]]
    expected = tokenize_plainly(tiny_tokenizer, documents[1:3])
    tokenizer = SentenceTokenizer(tiny_tokenizer)
    for string_type in (pa.string(), pa.large_string()):
        assert to_python(tokenizer.tokenize(to_lists(documents, string_type).slice(1, 2))) == expected
    large_lists = pa.array(documents, pa.large_list(pa.string())).slice(1, 2)
    assert to_python(tokenizer.tokenize(large_lists)) == expected


def test_a_large_vocabulary_gives_uint32() -> None:
    tokens = [*SPECIAL_TOKENS, *(f"w{index}" for index in range(70_000 - 5))]
    tokenizer = bert_tokenizer({token: index for index, token in enumerate(tokens)})
    tokenized = SentenceTokenizer(tokenizer).tokenize(to_lists([["w0 w69994"]]))
    assert tokenized.token_ids.type.value_type == pa.uint32()
    assert tokenized.token_ids.to_pylist() == [[5, 69_999]]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0123456789abcdef" * 20_000, id="ascii"),
        pytest.param("\x01" * 300 + "cat" + "\x02" * 300, id="controls"),
        pytest.param("\u0e01" * 20_000, id="thai"),
        pytest.param("\u4e2d\u6587" * 20_000, id="ideographs"),
        pytest.param("\u0301" * 20_000, id="marks"),
    ],
)
def test_very_long_words_equal_the_library(tiny_tokenizer: Tokenizer, text: str) -> None:
    expected = tokenize_plainly(tiny_tokenizer, [[text]])
    assert to_python(SentenceTokenizer(tiny_tokenizer).tokenize(to_lists([[text]]))) == expected


def test_memory_of_words_is_bounded(tiny_tokenizer: Tokenizer) -> None:
    tokenizer = SentenceTokenizer(tiny_tokenizer, cached_words=100)
    for start in range(0, 2000, 50):
        tokenizer.tokenize(
            to_lists([[f"word{index}, {'x' * 70}{index}" for index in range(start, start + 50)]])
        )
    assert tokenizer.num_cached <= 150


def test_text_of_special_tokens_stays_text_with_other_tokenizers() -> None:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, "cat"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    plain = SentenceTokenizer(tokenizer)
    assert not plain.by_distinct_words
    tokenized = plain.tokenize(to_lists([["cat [MASK] [SEP]", ""], [], ["cat"]]))
    assert to_python(tokenized) == ([[5, 1, 1], [], [5]], [[3], [], [1]])


def test_an_added_word_goes_by_the_library(tiny_tokenizer: Tokenizer) -> None:
    tiny_tokenizer.add_tokens([AddedToken("cat.dog", normalized=False)])
    tokenizer = SentenceTokenizer(tiny_tokenizer)
    assert not tokenizer.by_distinct_words
    documents = [["the cat.dog sat", "cat . dog"]]
    assert to_python(tokenizer.tokenize(to_lists(documents))) == tokenize_plainly(tiny_tokenizer, documents)


def test_padding_and_truncation_of_the_file_are_ignored(tiny_tokenizer: Tokenizer) -> None:
    sentence = "the cat sat on the mat"
    expected = tokenize_plainly(tiny_tokenizer, [[sentence]])
    tiny_tokenizer.enable_truncation(4)
    tiny_tokenizer.enable_padding(length=10)
    assert to_python(SentenceTokenizer(tiny_tokenizer).tokenize(to_lists([[sentence]]))) == expected
    assert tiny_tokenizer.truncation is not None


def test_pickles_small_and_works_on_the_other_side(tiny_tokenizer: Tokenizer) -> None:
    tokenizer = SentenceTokenizer(tiny_tokenizer.to_str().encode())
    size_before = len(pickle.dumps(tokenizer))
    documents = [["The cat [MASK] sat on the mat."]]
    expected = to_python(tokenizer.tokenize(to_lists(documents)))
    pickled = pickle.dumps(tokenizer)
    assert len(pickled) == size_before
    code = (
        "import pickle, sys, pyarrow as pa\n"
        "tokenizer = pickle.loads(bytes.fromhex(sys.stdin.read()))\n"
        f"out = tokenizer.tokenize(pa.array({documents!r}, pa.list_(pa.string())))\n"
        "print((out.token_ids.to_pylist(), out.sentence_lengths.to_pylist()))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], input=pickled.hex(), capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == repr(expected)


def test_many_words_equal_the_library(tiny_tokenizer: Tokenizer) -> None:
    generator = np.random.default_rng(0)
    words = [
        "the",
        "Cats",
        "sat,",
        "mat.",
        "(purred)",
        "softly\u2014",
        "\u00e9t\u00e9",
        "x" * 120,
        "1,000.5",
        "don't",
    ]
    documents = [
        [
            " ".join(words[i] for i in generator.integers(0, len(words), generator.integers(0, 30)))
            for _ in range(20)
        ]
        for _ in range(50)
    ]
    small_blocks = SentenceTokenizer(tiny_tokenizer, block_bytes=1000)
    assert to_python(small_blocks.tokenize(to_lists(documents))) == tokenize_plainly(
        tiny_tokenizer, documents
    )
