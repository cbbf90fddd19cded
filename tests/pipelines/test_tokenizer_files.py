import hashlib
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from pipelines.tokenizer_files import SPECIAL_TOKENS, bert_tokenizer, canonical_json, load_tokenizer
from schemas.errors import UsageError

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "The",
    "caf\u00e9",
    "cafe",
    "##s",
    "\u4e2d",
    "\u4e2d\u6587",
]
TEXT = "The caf\u00e9s"


def write_vocabulary(folder: Path, tokens: list[str], line_end: str = "\n") -> Path:
    path = folder / "vocab.txt"
    path.write_bytes("".join(token + line_end for token in tokens).encode())
    return path


def tokens_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


def test_all_forms_of_one_tokenizer_are_the_same(tiny_tokenizer_path: Path, tmp_path: Path) -> None:
    forms = [tiny_tokenizer_path, tiny_tokenizer_path / "tokenizer.json", tiny_tokenizer_path / "vocab.txt"]
    renamed = tmp_path / "my-vocabulary"
    renamed.write_bytes((tiny_tokenizer_path / "vocab.txt").read_bytes())
    loaded = [load_tokenizer(str(path)) for path in [*forms, renamed]]
    assert len({content for _, _, content in loaded}) == 1
    _, record, content = loaded[0]
    assert record.sha256 == hashlib.sha256(content).hexdigest()
    assert record.vocab_size == 201
    assert record.special_ids == (0, 5, 6, 7, 8)


def test_canonical_bytes_load_as_themselves(tiny_tokenizer_path: Path, tmp_path: Path) -> None:
    _, record, content = load_tokenizer(str(tiny_tokenizer_path))
    (tmp_path / "tokenizer.json").write_bytes(content)
    _, again, content_again = load_tokenizer(str(tmp_path))
    assert content_again == content
    assert again == record


def test_truncation_and_padding_are_dropped(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    expected = canonical_json(tiny_tokenizer)
    tiny_tokenizer.enable_truncation(8)
    tiny_tokenizer.enable_padding(length=8)
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer, _, content = load_tokenizer(str(tmp_path))
    assert content == expected
    assert len(tokenizer.encode("the cat sat on the mat and it purred softly").ids) == 12


@pytest.mark.parametrize(
    ("settings", "text", "tokens"),
    [
        pytest.param(None, TEXT, ["the", "cafe", "##s"], id="uncased-by-default"),
        pytest.param({}, TEXT, ["the", "cafe", "##s"], id="empty"),
        pytest.param({"do_lower_case": False}, TEXT, ["The", "caf\u00e9", "##s"], id="cased"),
        pytest.param(
            {"do_lower_case": False, "strip_accents": True}, TEXT, ["The", "cafe", "##s"], id="no-accents"
        ),
        pytest.param({"strip_accents": False}, TEXT, ["the", "caf\u00e9", "##s"], id="accents"),
        pytest.param({}, "\u4e2d\u6587", ["\u4e2d", "[UNK]"], id="ideographs-apart"),
        pytest.param(
            {"tokenize_chinese_chars": False}, "\u4e2d\u6587", ["\u4e2d\u6587"], id="ideographs-joined"
        ),
    ],
)
def test_vocabulary_goes_by_the_settings_beside_it(
    settings: dict[str, bool] | None, text: str, tokens: list[str], tmp_path: Path
) -> None:
    path = write_vocabulary(tmp_path, VOCABULARY)
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert tokens_of(load_tokenizer(str(path))[0], text) == tokens


def test_vocabulary_with_windows_line_ends_and_mark(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path, ["\ufeff[PAD]", *VOCABULARY[1:]], "\r\n")
    tokenizer, record, _ = load_tokenizer(str(path))
    assert record.vocab_size == len(VOCABULARY)
    assert tokens_of(tokenizer, "the cafe") == ["the", "cafe"]


def test_pairs_get_special_tokens(tmp_path: Path) -> None:
    tokenizer, _, _ = load_tokenizer(str(write_vocabulary(tmp_path, VOCABULARY)))
    encoding = tokenizer.encode("the", "cafe")
    assert encoding.tokens == ["[CLS]", "the", "[SEP]", "cafe", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 1, 1]


def assert_refused(path: Path, *words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_tokenizer(str(path))
    message = str(refusal.value)
    assert len(message.splitlines()) <= 2
    for word in (str(path), *words):
        assert word in message


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "absent", "no tokenizer", "clozeline vocab")


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path, "neither tokenizer.json nor vocab.txt")


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_refused(missing: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path, [token for token in VOCABULARY if token != missing])
    assert_refused(path, f"lacks {missing},")


def test_all_missing_special_tokens_are_named(tmp_path: Path) -> None:
    Tokenizer(models.WordLevel({"the": 0}, unk_token="the")).save(str(tmp_path / "tokenizer.json"))
    assert_refused(tmp_path / "tokenizer.json", "lacks [PAD], [UNK], [CLS], [SEP], [MASK], ")


def test_a_word_twice_is_refused(tmp_path: Path) -> None:
    assert_refused(write_vocabulary(tmp_path, [*VOCABULARY, "the"]), "'the'", "line 6", "line 13")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[PAD]\n\xff\xfe")
    assert_refused(path, "invalid UTF-8 at byte 6")


def test_broken_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"version": "1.0", "mod')
    assert_refused(path, "no tokenizer that the `tokenizers` library can read")


def test_broken_settings_are_refused(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path, VOCABULARY)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UsageError, match=r"tokenizer_config\.json is no JSON"):
        load_tokenizer(str(path))


def test_another_name_for_unknown_words_is_refused(tmp_path: Path) -> None:
    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    parts = json.loads(bert_tokenizer(vocabulary).to_str())
    parts["model"]["unk_token"] = "<unk>"
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(parts))
    assert_refused(path, "<unk>")
