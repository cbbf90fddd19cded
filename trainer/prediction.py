"""Asking a pretrained model: which words fill a gap, and does one text follow another.

In: a model, its tokenizer and text as a person types it. Out: candidates with probabilities, and text to
    read.
Deterministic: no dropout, ties go to the lower id.

`[MASK]` in a prompt is the gap, in any case and with blanks inside the brackets; every other bracketed name
is text, as it was in the corpus. A text that is longer than the model is read through a window around its
gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from schemas.errors import UsageError
from trainer.model.pretraining import BertForPretraining

_GAP = re.compile(r"\[\s*mask\s*\]", re.IGNORECASE)
_CONTINUATION = "##"
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Candidate:
    """One way to fill a gap.

    Attributes:
        token: the vocabulary entry, perhaps a piece such as `##ing`.
        word: the same to be read: a piece that continues a word stands joined to what comes before the gap.
        token_id: its id.
        probability: of the whole vocabulary's 1.
    """

    token: str
    word: str
    token_id: int
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A prompt with its gaps filled.

    Attributes:
        text: the prompt with the likeliest candidate in each gap, otherwise as it was typed.
        gaps: the candidates of each gap, likeliest first, in the order of the gaps. Each gap is judged with
            the others left open.
    """

    text: str
    gaps: tuple[tuple[Candidate, ...], ...]


def fill_mask(
    model: BertForPretraining,
    tokenizer: Tokenizer,
    text: str,
    top_k: int = 5,
    *,
    max_seq_length: int | None = None,
) -> FilledText:
    """Predict what stands at each `[MASK]`.

    Args:
        model: a pretrained model.
        tokenizer: the one that the model was trained with; it is left as it is.
        text: with one `[MASK]` at least.
        top_k: candidates of a gap. Special tokens and reserved `[unused…]` entries are never among them.
        max_seq_length: tokens that the model sees at once at most, `[CLS]` and `[SEP]` included: the length
            it was trained at, beyond which its position embeddings may never have been trained. None: all
            its positions.

    Raises:
        UsageError: no `[MASK]` in the text, no valid Unicode, or the tokenizer has more entries than the
            model.
    """
    prompt = _Prompt(tokenizer, model)
    parts = _GAP.split(text)
    if len(parts) == 1:
        raise UsageError(
            f"No [MASK] in {_shorten(text)!r}. Write [MASK] where a word is to be filled in, as in "
            f'"the [MASK] sat on the mat".'
        )
    ids: list[int] = []
    gaps: list[int] = []
    for index, part in enumerate(parts):
        if index:
            gaps.append(len(ids))
            ids.append(prompt.mask_id)
        ids += prompt.text_ids(part)
    window_tokens = prompt.length_limit(max_seq_length) - 2
    candidates: list[tuple[Candidate, ...]] = []
    for start, end, inside in _windows(len(ids), gaps, window_tokens):
        input_ids = [prompt.cls_id, *ids[start:end], prompt.sep_id]
        hidden = _encode(model, input_ids, segment_a_length=len(input_ids))
        positions = torch.tensor([gap - start + 1 for gap in inside], device=hidden.device)
        with torch.no_grad():
            probabilities = model.masked_lm_logits(hidden, positions).float().softmax(dim=-1).cpu()
        for row in probabilities:
            candidates.append(prompt.candidates(row, top_k, before=parts[len(candidates)]))
    return FilledText(_fill(parts, [best[0].token for best in candidates]), tuple(candidates))


def next_sentence_probability(
    model: BertForPretraining,
    tokenizer: Tokenizer,
    text_a: str,
    text_b: str,
    *,
    max_seq_length: int | None = None,
) -> float:
    """The probability that the second text follows the first, as the next-sentence head judges it.

    For a model trained with `--objective sentence-order` it is that of the two being in their right order; a
    model trained with `--objective mlm` has never learned an answer.

    Args:
        model: a pretrained model.
        tokenizer: the one that the model was trained with; it is left as it is.
        text_a: cut at its front where both together are too long, so that what meets `text_b` stays.
        text_b: cut at its end.
        max_seq_length: as for `fill_mask`.

    Raises:
        UsageError: a text without a token or of no valid Unicode, or the tokenizer has more entries than the
            model.
    """
    prompt = _Prompt(tokenizer, model)
    ids_a, ids_b = prompt.text_ids(text_a), prompt.text_ids(text_b)
    for name, text, ids in (("first", text_a, ids_a), ("second", text_b, ids_b)):
        if not ids:
            raise UsageError(f"The {name} text, {_shorten(text)!r}, holds no token. Give two texts of words.")
    room = prompt.length_limit(max_seq_length) - 3
    length_a, length_b = _truncated_lengths(len(ids_a), len(ids_b), room)
    segment_a = [prompt.cls_id, *ids_a[len(ids_a) - length_a :], prompt.sep_id]
    hidden = _encode(model, [*segment_a, *ids_b[:length_b], prompt.sep_id], segment_a_length=len(segment_a))
    with torch.no_grad():
        return float(model.next_sentence_logits(hidden).float().softmax(dim=-1)[0, 0])


class _Prompt:
    """The tokenizer as prediction needs it: no special tokens added or recognised, nothing cut or padded."""

    def __init__(self, tokenizer: Tokenizer, model: BertForPretraining) -> None:
        # A copy, since the three settings below would otherwise change the caller's.
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self._num_positions = model.config.max_position_embeddings
        num_entries = self._tokenizer.get_vocab_size()
        if num_entries > model.config.vocab_size:
            raise UsageError(
                f"The tokenizer has {num_entries} entries, the model {model.config.vocab_size}. Use the "
                f"tokenizer.json that lies beside the model."
            )
        self.cls_id, self.sep_id, self.mask_id = (self._id_of(t) for t in ("[CLS]", "[SEP]", "[MASK]"))
        self._answers = {
            token_id: token
            for token, token_id in sorted(self._tokenizer.get_vocab().items(), key=lambda entry: entry[1])
            if token not in _SPECIAL_TOKENS and not token.startswith("[unused")
        }

    def text_ids(self, text: str) -> list[int]:
        """The ids of a text, without any special one but `[UNK]`.

        Raises:
            UsageError: the text holds lone surrogates, as Python makes of arguments that are no UTF-8.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"The text {_shorten(text)!a} is no valid Unicode. Give it in UTF-8.") from None
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def length_limit(self, max_seq_length: int | None) -> int:
        """Tokens that the model may see at once."""
        return self._num_positions if max_seq_length is None else min(max_seq_length, self._num_positions)

    def candidates(self, probabilities_V: Tensor, top_k: int, before: str) -> tuple[Candidate, ...]:
        """The likeliest entries of one gap, given the text before it."""
        answers = list(self._answers.items())
        probabilities = probabilities_V[[token_id for token_id, _ in answers]]
        best = torch.sort(probabilities, descending=True, stable=True).indices[:top_k].tolist()
        return tuple(
            Candidate(token, _join_to(before, token), token_id, float(probabilities_V[token_id]))
            for token_id, token in (answers[index] for index in best)
        )

    def _id_of(self, token: str) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise UsageError(
                f"The tokenizer has no {token}. Use the tokenizer.json that lies beside the model."
            )
        return token_id


@torch.no_grad()
def _encode(model: BertForPretraining, input_ids: list[int], *, segment_a_length: int) -> Tensor:
    device = next(model.parameters()).device
    input_ids_1S = torch.tensor([input_ids], device=device)
    segment_ids_1S = (torch.arange(len(input_ids), device=device) >= segment_a_length).long()[None]
    was_training = model.training
    model.eval()
    try:
        return model.encode(input_ids_1S, segment_ids_1S, torch.ones_like(input_ids_1S, dtype=torch.bool))
    finally:
        model.train(was_training)


def _windows(length: int, gaps: list[int], window_tokens: int) -> list[tuple[int, int, list[int]]]:
    """Cover all gaps by windows [start, end) of at most `window_tokens`, each gap far from an end."""
    groups: list[list[int]] = []
    for gap in gaps:
        if groups and gap - groups[-1][0] < window_tokens:
            groups[-1].append(gap)
        else:
            groups.append([gap])
    windows = []
    for group in groups:
        centred = (group[0] + group[-1] + 1 - window_tokens) // 2
        start = max(0, min(centred, length - window_tokens))
        windows.append((start, min(length, start + window_tokens), group))
    return windows


def _truncated_lengths(length_a: int, length_b: int, room: int) -> tuple[int, int]:
    """Take tokens from the longer of both until they fit."""
    excess = max(0, length_a + length_b - room)
    longer, shorter = max(length_a, length_b), min(length_a, length_b)
    cut_longer = min(excess, longer - shorter)
    rest = excess - cut_longer
    kept_longer, kept_shorter = longer - cut_longer - (rest + 1) // 2, shorter - rest // 2
    return (kept_longer, kept_shorter) if length_a >= length_b else (kept_shorter, kept_longer)


def _fill(parts: list[str], tokens: list[str]) -> str:
    filled = parts[0]
    for token, part in zip(tokens, parts[1:], strict=True):
        if token.startswith(_CONTINUATION) and filled.rstrip():
            filled = filled.rstrip()
        filled += token.removeprefix(_CONTINUATION) + part
    return filled


def _join_to(before: str, token: str) -> str:
    if not token.startswith(_CONTINUATION):
        return token
    words = before.split()
    return (words[-1] if words else "") + token.removeprefix(_CONTINUATION)


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
