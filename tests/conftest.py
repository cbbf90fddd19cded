"""Fixtures for every folder: a small uncased BERT tokenizer over a fixed list of tokens.

Built with the `tokenizers` library alone, so that the trainer's tests need no Beam.
"""

from __future__ import annotations

import json
import signal
import string
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

# A shell that starts a command in the background has it ignore Ctrl-C, and its children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TINY_SPECIAL_TOKENS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TINY_UNUSED_TOKENS = [f"[unused{index}]" for index in range(4)]
TINY_TEXT = (
    "the cat sat on mat it purred softly a an and or of to in is was he she they we dog ran fast over "
    "under hill lazy quick brown fox jump river bank bird sang song tree house red blue green small big old "
    "new day night sun moon star rain snow wind fire water earth time year word sentence document text "
    "mask token model read write play work walk talk eat sleep good bad not no yes one two three four five"
)
TINY_PIECES = ["##s", "##ed", "##ing", "##er", "##ly", "##ness"]


def tiny_vocabulary() -> list[str]:
    """Its tokens in the order of their ids: `[PAD]` is 0, `[unused0]` 1, `[UNK]` 5, `[CLS]` 6 …"""
    characters = [*string.punctuation, *string.digits, *string.ascii_lowercase]
    continuations = [f"##{character}" for character in string.digits + string.ascii_lowercase]
    tokens = ["[PAD]", *TINY_UNUSED_TOKENS, *TINY_SPECIAL_TOKENS, *characters, *continuations]
    return list(dict.fromkeys([*tokens, *TINY_TEXT.split(), *TINY_PIECES]))


def build_tiny_tokenizer() -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tiny_vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    tokenizer.add_special_tokens(["[PAD]", *TINY_SPECIAL_TOKENS])
    return tokenizer


@pytest.fixture(scope="session")
def tiny_tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder: tokenizer.json, vocab.txt, tokenizer_config.json. Never write into it."""
    folder = tmp_path_factory.mktemp("tiny-tokenizer")
    (folder / "tokenizer.json").write_text(build_tiny_tokenizer().to_str(pretty=True), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(tiny_vocabulary()) + "\n", encoding="utf-8")
    settings = {"do_lower_case": True, "tokenizer_class": "BertTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture
def tiny_tokenizer() -> Tokenizer:
    """The same tokenizer in memory, anew for each test."""
    return build_tiny_tokenizer()
