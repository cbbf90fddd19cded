"""Sentences to token ids.

In: sentences as an Arrow list of strings a document. Out: `token_ids` and `sentence_lengths` a document (see
`schemas.documents`), without any special token but `[UNK]`. Deterministic: the ids are those of the
`tokenizers` library with `encode_special_tokens = True`, whatever was tokenized before and however the
documents are cut into blocks.

A corpus has far fewer distinct words than words, so a block of text is split at white space and punctuation,
dictionary-encoded by Arrow, the library asked about words that this process has not met yet
(`pipelines.distinct_words`), and the ids gathered by NumPy. Where the tokenizer is not BERT's, the library
gets each sentence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pipelines.distinct_words import CACHED_WORDS, DistinctWordEncoder
from pipelines.tokenizer_files import SPECIAL_TOKENS, UNK_TOKEN, vocabulary_size
from pipelines.words import cut_blocks, encode_words, string_layout
from schemas.documents import token_id_type, tokenized_document_schema
from schemas.errors import UsageError

BLOCK_BYTES = 4 << 20
_BATCH_BYTES = 1 << 16


@dataclass(frozen=True)
class TokenizedSentences:
    """Tokens of documents, in the order of the documents.

    Attributes:
        token_ids: list<uint16 or uint32>, the ids of all sentences of a document in one list.
        sentence_lengths: list<int32>, the tokens of each sentence; none is 0. A document without a token has
            two empty lists.
    """

    token_ids: pa.ListArray
    sentence_lengths: pa.ListArray


class SentenceTokenizer:
    """Tokenizes sentences; each process keeps its own memory of words.

    Pickling one sends the tokenizer and nothing else; the rest is set up at the first call.

    Args:
        tokenizer: the tokenizer, or the bytes of its `tokenizer.json`. It is copied; truncation, padding and
            recognition of special tokens in text are off in the copy.
        cached_words: how many words are remembered at most.
        block_bytes: about how much text is worked on at a time.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | bytes,
        *,
        cached_words: int = CACHED_WORDS,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._json = tokenizer.decode() if isinstance(tokenizer, bytes) else tokenizer.to_str()
        self._cached_words = cached_words
        self._block_bytes = block_bytes
        self._encoder: _Encoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoder": None}

    def set_up(self) -> None:
        """Build the tokenizer now rather than at the first call."""
        if self._encoder is None:
            self._encoder = _Encoder(self._json, self._cached_words)

    @property
    def by_distinct_words(self) -> bool:
        """Whether words are looked up; else the library gets whole sentences."""
        self.set_up()
        assert self._encoder is not None
        return self._encoder.words is not None

    @property
    def num_cached(self) -> int:
        """How many words and pieces of words are remembered."""
        return self._encoder.words.num_cached if self._encoder and self._encoder.words else 0

    def tokenize(self, sentences: pa.ListArray | pa.LargeListArray) -> TokenizedSentences:
        """Tokenize the sentences of documents.

        Args:
            sentences: list<string> or list<large_string>, a list a document, nothing null.

        Returns:
            The tokens of each document, aligned with the argument. A sentence without a token is left out.
        """
        self.set_up()
        encoder = self._encoder
        assert encoder is not None
        flat = sentences.flatten()
        content, offsets = string_layout(flat)
        ids: list[NDArray[np.unsignedinteger]] = [np.empty(0, dtype=encoder.id_type)]
        lengths: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        for first, last in cut_blocks(offsets, self._block_bytes):
            block = content[offsets[first] : offsets[last]]
            block_ids, block_lengths = encoder.encode(block, offsets[first : last + 1] - offsets[first])
            ids.append(block_ids)
            lengths.append(block_lengths)
        num_sentences = sentences.value_lengths().to_numpy(zero_copy_only=False)
        return _group_by_document(
            np.concatenate(ids), np.concatenate(lengths), num_sentences, encoder.vocab_size
        )


class _Encoder:
    """The parts that live in one process."""

    def __init__(self, tokenizer_json: str, cached_words: int) -> None:
        self.tokenizer = Tokenizer.from_str(tokenizer_json)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True
        self.vocab_size = vocabulary_size(self.tokenizer)
        self.id_type = np.dtype(str(token_id_type(self.vocab_size)))
        self.unk_id = self._id_of(UNK_TOKEN)
        self.forbidden_ids = [self._id_of(token) for token in SPECIAL_TOKENS if token != UNK_TOKEN]
        settings = json.loads(tokenizer_json)
        self.words = (
            DistinctWordEncoder(
                self.tokenizer,
                self.id_type,
                isolates_ideographs=settings["normalizer"]["handle_chinese_chars"],
                unk_id=self._id_of(settings["model"]["unk_token"]),
                max_piece_chars=settings["model"]["max_input_chars_per_word"],
                cached_words=cached_words,
            )
            if is_bert(settings)
            else None
        )

    def _id_of(self, token: str) -> int:
        token_id = self.tokenizer.token_to_id(token)
        if token_id is None:
            raise UsageError(
                f"the vocabulary lacks {token}.\nUse a BERT vocabulary, or train one with `clozeline vocab`."
            )
        return token_id

    def encode(
        self, block: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """The ids of a block of sentences and the number of ids of each sentence."""
        if self.words is None:
            return self._encode_sentences(block, offsets)
        return self._encode_words(self.words, block, offsets)

    def _encode_words(
        self, encoder: DistinctWordEncoder, block: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
        words, word_offsets = encode_words(block, offsets)
        distinct_ids = encoder.encode(words.dictionary.to_numpy(zero_copy_only=False).tolist())
        distinct_lengths = np.fromiter(map(len, distinct_ids), dtype=np.int32, count=len(distinct_ids))
        distinct_lengths //= self.id_type.itemsize
        flat = np.frombuffer(b"".join(distinct_ids), dtype=self.id_type)
        rows = words.indices.to_numpy()
        token_offsets = np.zeros(len(word_offsets), dtype=np.int64)
        ids = _gather(flat, distinct_lengths, rows, token_offsets)
        return ids, np.diff(token_offsets[np.searchsorted(word_offsets, offsets)])

    def _encode_sentences(
        self, block: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
        text = block.tobytes()
        bounds = offsets.tolist()
        ids: list[NDArray[np.unsignedinteger]] = []
        for first, last in cut_blocks(offsets, _BATCH_BYTES):
            sentences = [text[bounds[i] : bounds[i + 1]].decode() for i in range(first, last)]
            encodings = self.tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
            ids.extend(np.array(encoding.ids, dtype=self.id_type) for encoding in encodings)
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        flat = np.concatenate([np.empty(0, dtype=self.id_type), *ids])
        # A pre-tokeniser that leaves "[MASK]" whole would let WordPiece find it in the vocabulary.
        flat[np.isin(flat, self.forbidden_ids)] = self.unk_id
        return flat, lengths


def is_bert(settings: dict[str, Any]) -> bool:
    """Whether a parsed `tokenizer.json` is BERT's, so that text may be cut into words.

    That is: BERT's normaliser (which cleans text) and pre-tokeniser, WordPiece, and no added token that the
    library would look for in text.
    """
    kinds = [(settings.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    return (
        kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
        and settings["normalizer"]["clean_text"]
        and all(token["special"] for token in settings.get("added_tokens") or ())
    )


def _gather(
    flat: NDArray[np.unsignedinteger],
    lengths: NDArray[np.int32],
    rows: NDArray[np.int32],
    token_offsets: NDArray[np.int64],
) -> NDArray[np.unsignedinteger]:
    """Concatenate the ids of words by row; `token_offsets` [rows + 1], zero at first, gets their borders."""
    counts = lengths[rows]
    np.cumsum(counts, out=token_offsets[1:])
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    shift = starts[rows] - token_offsets[:-1]
    return flat[np.repeat(shift, counts) + np.arange(token_offsets[-1])]


def _group_by_document(
    ids: NDArray[np.unsignedinteger],
    lengths: NDArray[np.int64],
    num_sentences: NDArray[np.int64],
    vocab_size: int,
) -> TokenizedSentences:
    schema = tokenized_document_schema(vocab_size)
    sentence_bounds = np.concatenate([[0], np.cumsum(num_sentences)])
    token_bounds = np.concatenate([[0], np.cumsum(lengths)])[sentence_bounds]
    kept = lengths > 0
    kept_bounds = np.concatenate([[0], np.cumsum(kept)])[sentence_bounds]
    return TokenizedSentences(
        token_ids=_list_array(token_bounds, ids, schema.field("token_ids").type),
        sentence_lengths=_list_array(
            kept_bounds, lengths[kept].astype(np.int32), schema.field("sentence_lengths").type
        ),
    )


def _list_array(offsets: NDArray[np.int64], values: NDArray[Any], kind: pa.DataType) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values), type=kind)
