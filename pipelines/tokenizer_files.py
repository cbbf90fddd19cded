"""Tokenizers on disk: `tokenizer.json`, Google's `vocab.txt`, or a Hugging Face folder with either.

In: a path that a person gave. Out: the tokenizer, the record that manifests hold, and the canonical bytes of
its `tokenizer.json`. Deterministic: the same tokenizer gives the same bytes, so that two corpora agree on
their tokenizer where its SHA-256 agrees, whichever of the forms it came in.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from pipelines import storage
from schemas.errors import UsageError
from schemas.manifests import TOKENIZER_NAME, TokenizerRecord

PAD_TOKEN = "[PAD]"
UNK_TOKEN = "[UNK]"
CLS_TOKEN = "[CLS]"
SEP_TOKEN = "[SEP]"
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)
VOCABULARY_NAME = "vocab.txt"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"


def load_tokenizer(path: str) -> tuple[Tokenizer, TokenizerRecord, bytes]:
    """Open a tokenizer.

    Args:
        path: a `tokenizer.json`, a `vocab.txt` (a token a line), or a folder with either; the former is taken
            where a folder has both. Next to a `vocab.txt`, a `tokenizer_config.json` may say `do_lower_case`,
            `strip_accents` and `tokenize_chinese_chars`; BERT's uncased settings hold otherwise.

    Returns:
        The tokenizer without truncation or padding, its record, and the bytes of its `tokenizer.json`.

    Raises:
        UsageError: nothing is there, it can't be parsed, or it lacks one of BERT's special tokens.
    """
    file = _find_file(path)
    content = storage.read_bytes(file)
    tokenizer = _parse_json(content, file) if _looks_like_json(content) else _parse_vocabulary(content, file)
    return describe_tokenizer(tokenizer, file)


def describe_tokenizer(tokenizer: Tokenizer, path: str) -> tuple[Tokenizer, TokenizerRecord, bytes]:
    """Check a tokenizer and make its record and canonical bytes, as `load_tokenizer` returns them.

    Args:
        tokenizer: any tokenizer; its truncation and padding are switched off.
        path: where it came from, for the message.

    Raises:
        UsageError: it lacks one of BERT's special tokens.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    missing = [token for token, token_id in ids.items() if token_id is None]
    if missing:
        raise UsageError(
            f"the vocabulary in {path} lacks {', '.join(missing)}, which BERT's pretraining needs.\n"
            "Use a BERT vocabulary, or train one with `clozeline vocab`."
        )
    content = canonical_json(tokenizer)
    model = json.loads(content)["model"]
    if model["type"] == "WordPiece" and tokenizer.token_to_id(model["unk_token"]) is None:
        raise UsageError(
            f"{path} gives unknown words {model['unk_token']}, which its vocabulary lacks.\n"
            f"Set its unk_token to {UNK_TOKEN}."
        )
    record = TokenizerRecord(
        sha256=hashlib.sha256(content).hexdigest(),
        vocab_size=vocabulary_size(tokenizer),
        pad_id=ids[PAD_TOKEN],
        unk_id=ids[UNK_TOKEN],
        cls_id=ids[CLS_TOKEN],
        sep_id=ids[SEP_TOKEN],
        mask_id=ids[MASK_TOKEN],
    )
    return tokenizer, record, content


def canonical_json(tokenizer: Tokenizer) -> bytes:
    """The one way a `tokenizer.json` is written: the library's order of keys, vocabulary by id, indented."""
    return (json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1) + "\n").encode()


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """One more than the largest id, added tokens included."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def bert_tokenizer(
    vocabulary: dict[str, int],
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool = True,
) -> Tokenizer:
    """BERT's tokenizer over a vocabulary: normaliser, pre-tokeniser, WordPiece and `[CLS] A [SEP] B [SEP]`.

    Args:
        vocabulary: id of each token. Special tokens that it has are marked as such.
        lowercase: lower-case the text first.
        strip_accents: drop combining accents; None follows `lowercase`.
        handle_chinese_chars: make each CJK ideograph a word.
    """
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNK_TOKEN))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=handle_chinese_chars,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder()
    tokenizer.add_special_tokens([token for token in SPECIAL_TOKENS if token in vocabulary])
    if SEP_TOKEN in vocabulary and CLS_TOKEN in vocabulary:
        tokenizer.post_processor = BertProcessing(
            (SEP_TOKEN, vocabulary[SEP_TOKEN]), (CLS_TOKEN, vocabulary[CLS_TOKEN])
        )
    return tokenizer


def tokenizer_settings(
    *, lowercase: bool = True, strip_accents: bool | None = None, handle_chinese_chars: bool = True
) -> dict[str, Any]:
    """What `tokenizer_config.json` says of a BERT tokenizer, for AutoTokenizer and `load_tokenizer`.

    Args:
        lowercase: as for `bert_tokenizer`.
        strip_accents: as for `bert_tokenizer`.
        handle_chinese_chars: as for `bert_tokenizer`.
    """
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": handle_chinese_chars,
        "pad_token": PAD_TOKEN,
        "unk_token": UNK_TOKEN,
        "cls_token": CLS_TOKEN,
        "sep_token": SEP_TOKEN,
        "mask_token": MASK_TOKEN,
    }


def _find_file(path: str) -> str:
    for name in (TOKENIZER_NAME, VOCABULARY_NAME):
        candidate = storage.join(path, name)
        if storage.exists(candidate):
            return candidate
    if storage.is_folder(path):
        raise UsageError(
            f"the folder {path} has neither {TOKENIZER_NAME} nor {VOCABULARY_NAME}.\n"
            "Give a folder with one of them, or the file itself; `clozeline vocab` makes one."
        )
    if not storage.exists(path):
        raise UsageError(
            f"there is no tokenizer at {path}.\n"
            f"Give a {TOKENIZER_NAME}, {VOCABULARY_NAME} or a folder with one; `clozeline vocab` makes one."
        )
    return path


def _looks_like_json(content: bytes) -> bool:
    return content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def _parse_json(content: bytes, path: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(content.decode("utf-8-sig"))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(
            f"{path} is no tokenizer that the `tokenizers` library can read: {_first_line(error)}.\n"
            "Give a tokenizer.json of a fast tokenizer, or a vocab.txt."
        ) from None


def _parse_vocabulary(content: bytes, path: str) -> Tokenizer:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is no vocabulary: invalid UTF-8 at byte {error.start}.\n"
            "Give a text file with one token a line, or a tokenizer.json."
        ) from None
    tokens = [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        repeated = next(token for index, token in enumerate(tokens) if vocabulary[token] != index)
        raise UsageError(
            f"{path}: the token {repeated!r} stands in line {tokens.index(repeated) + 1} and again in line "
            f"{vocabulary[repeated] + 1}.\nA vocabulary has each token once, since the line is the id."
        )
    settings = _read_settings(path)
    return bert_tokenizer(
        vocabulary,
        lowercase=bool(settings.get("do_lower_case", True)),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
    )


def _read_settings(vocabulary_path: str) -> dict[str, Any]:
    folder, _, _ = vocabulary_path.rpartition("/")
    path = storage.join(folder, TOKENIZER_CONFIG_NAME) if folder else TOKENIZER_CONFIG_NAME
    if not storage.exists(path):
        return {}
    try:
        settings = json.loads(storage.read_bytes(path))
    except ValueError as error:
        raise UsageError(
            f"{path} is no JSON: {_first_line(error)}.\n"
            "Mend it, or remove it to take BERT's uncased settings."
        ) from None
    return settings if isinstance(settings, dict) else {}


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
