"""Words of a corpus put into the `[unused…]` slots of a tokenizer that is there already.

In: a BERT tokenizer and counted pieces of words. Out: the same tokenizer with frequent words in its slots;
every other entry keeps its id, so that weights trained with it go on being its weights. Deterministic: the
same counts fill the same slots.

Google reserved the slots of its vocabularies for this: the words of a domain become entries of their own, and
a model pretrained with the tokenizer can be trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tokenizers import Tokenizer

from pipelines.tokenizer_files import UNK_TOKEN, load_tokenizer, tokenizer_settings
from pipelines.wordpiece_training import CONTINUATION, count_words
from schemas.errors import UsageError

_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class BaseTokenizer:
    """A tokenizer with slots.

    Attributes:
        tokenizer: BERT's WordPiece, its ids without gaps.
        sha256: of its canonical `tokenizer.json`.
        slots: `[unused…]` entries in the order of their ids.
        settings: what `tokenizer_config.json` says of it.
    """

    tokenizer: Tokenizer
    sha256: str
    slots: tuple[str, ...]
    settings: dict[str, Any]


def open_base(path: str) -> BaseTokenizer:
    """Open the tokenizer that is to be extended.

    Args:
        path: as for `load_tokenizer`.

    Raises:
        UsageError: there is none, it is not BERT's, or it has no slot.
    """
    tokenizer, record, content = load_tokenizer(path)
    fields = json.loads(content)
    model, normaliser = fields["model"], fields["normalizer"] or {}
    is_bert = (
        (model["type"], model.get("unk_token")) == ("WordPiece", UNK_TOKEN)
        and model["continuing_subword_prefix"] == CONTINUATION
        and sorted(model["vocab"].values()) == list(range(record.vocab_size))
        and normaliser.get("type") == "BertNormalizer"
        and (fields["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    )
    if not is_bert:
        raise UsageError(
            f"--extend {path} is no BERT tokenizer (WordPiece, with BERT's normaliser and pre-tokeniser).\n"
            "Give one that is, or learn a new vocabulary without --extend."
        )
    by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
    slots = tuple(token for token in by_id if _UNUSED.fullmatch(token))
    if not slots:
        raise UsageError(
            f"--extend {path} has no [unused…] entries left, and words have no other place.\n"
            "Learn a new vocabulary without --extend; `train --init` takes over the words that both have."
        )
    settings = tokenizer_settings(
        lowercase=normaliser["lowercase"],
        strip_accents=normaliser["strip_accents"],
        handle_chinese_chars=normaliser["handle_chinese_chars"],
    )
    return BaseTokenizer(tokenizer, record.sha256, slots, settings)


def extend_tokenizer(
    piece_counts: Mapping[str, int],
    base: BaseTokenizer,
    *,
    max_new_words: int | None = None,
    min_frequency: int = 1,
) -> tuple[Tokenizer, int]:
    """Put the most frequent words that the tokenizer cuts, or does not know, into its slots.

    Args:
        piece_counts: how often each piece occurs; pieces as `pipelines.words` cuts them.
        base: what to extend; left as it is.
        max_new_words: words at most; None fills all slots.
        min_frequency: a rarer word is left out.

    Returns:
        The extended tokenizer, and how many words came in. The most frequent word is in the first slot;
        words of the same frequency go by code point.
    """
    words = islice(_words_to_add(piece_counts, base.tokenizer, min_frequency), max_new_words)
    # Not strict: there may be fewer words than slots, or more.
    word_of_slot = dict(zip(base.slots, words, strict=False))
    fields = json.loads(base.tokenizer.to_str())
    fields["model"]["vocab"] = {
        word_of_slot.get(token, token): token_id for token, token_id in fields["model"]["vocab"].items()
    }
    fields["added_tokens"] = [
        token for token in fields["added_tokens"] if token["content"] not in word_of_slot
    ]
    return Tokenizer.from_str(json.dumps(fields)), len(word_of_slot)


def _words_to_add(piece_counts: Mapping[str, int], tokenizer: Tokenizer, min_frequency: int) -> Iterator[str]:
    counts = count_words(piece_counts, tokenizer)
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        if counts[word] < min_frequency:
            return
        pieces = tokenizer.model.tokenize(word)
        if len(pieces) > 1 or pieces[0].value == UNK_TOKEN:
            yield word
