import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from schemas.manifests import TokenizerRecord
from workflows.report.token_tally import TokenTally, Vocabulary


def _record(tokenizer: Tokenizer) -> TokenizerRecord:
    names = {"pad_id": "[PAD]", "unk_id": "[UNK]", "cls_id": "[CLS]", "sep_id": "[SEP]", "mask_id": "[MASK]"}
    ids = {field: tokenizer.token_to_id(token) for field, token in names.items()}
    return TokenizerRecord(sha256="0" * 64, vocab_size=tokenizer.get_vocab_size(), **ids)


@pytest.fixture
def vocabulary(tiny_tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tiny_tokenizer.to_str().encode(), _record(tiny_tokenizer))


def _ids(tokenizer: Tokenizer, tokens: str) -> np.ndarray:
    return np.array([tokenizer.token_to_id(token) for token in tokens.split()], dtype=np.uint16)


def test_counts_by_hand(tiny_tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    tally = TokenTally(vocabulary)
    tally.add(_ids(tiny_tokenizer, "[CLS] the cat ##s [UNK] [SEP]"))
    tally.add(_ids(tiny_tokenizer, "[CLS] the ! [MASK] [unused0] [PAD] 7"))
    assert (tally.num_tokens, tally.num_unknown, tally.num_different) == (7, 1, 5)
    assert tally.num_continuations == 1
    assert [(token.token, token.count) for token in tally.most_frequent(2)] == [("the", 2), ("!", 1)]
    assert tally.most_frequent(1)[0].share == pytest.approx(2 / 7)
    assert len(tally.most_frequent(100)) == 5
    # the, the, cat, s; the exclamation mark; the digit.
    assert tally.bytes_by_script() == [("Latin", 10), ("Digits", 1), ("Punctuation and symbols", 1)]


def test_what_could_occur_leaves_out_special_and_reserved(vocabulary: Vocabulary) -> None:
    assert TokenTally(vocabulary).num_usable == vocabulary.size - 5 - 4


def test_nothing_counted(vocabulary: Vocabulary) -> None:
    tally = TokenTally(vocabulary)
    assert (tally.num_tokens, tally.most_frequent(3), tally.bytes_by_script()) == (0, [], [])


def test_a_byte_level_vocabulary_is_read_by_its_own_decoder() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Ġcat", "Ð", "¶", "Ð¶"]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, [("Ð", "¶")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    vocabulary = Vocabulary(tokenizer.to_str().encode(), _record(tokenizer))
    assert [vocabulary.text(token_id) for token_id in (5, 8, 6)] == ["cat", "ж", "�"]
    assert not vocabulary.is_continuation(5)


def test_an_id_without_an_entry_has_a_name(vocabulary: Vocabulary) -> None:
    assert vocabulary.name(vocabulary.size + 3) == f"<id {vocabulary.size + 3}>"
