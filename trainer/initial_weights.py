"""Weights that a run begins with, other than random ones.

In: a run of ours, one of its checkpoints, or a folder of Hugging Face's with `model.safetensors`. Out: a
model with those weights, once the sizes were compared: weights of the same shapes may still mean other heads.
Where the data has another vocabulary, an embedding and an output bias follow their entry; what the weights
lack stays as the seed drew it. Nothing is unpickled. Deterministic.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from schemas.errors import UsageError
from trainer.checkpoints import LoadedCheckpoint, load_checkpoint
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import copy_weights
from trainer.vocabulary_match import (
    NO_ROW,
    VocabularyMatch,
    describe_rules,
    match_vocabularies,
    vocabulary_of,
)

# What a run may choose anew: it changes how the weights are trained, not what they mean.
_FREE_SIZES = frozenset({"hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"})
_BY_ENTRY = ("embeddings.token.weight", "masked_lm_head.bias")
_BY_POSITION = "embeddings.position.weight"


class Remarks(NamedTuple):
    """Sentences for a person about the weights that a run begins with.

    Attributes:
        notes: how another vocabulary or more positions were dealt with. None where all weights were taken as
            they are.
        warnings: the data was tokenized by other rules: likely a mistake.
    """

    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def copy_initial_weights(model: BertForPretraining, path: str, tokenizer_json: bytes) -> Remarks:
    """Overwrite a model's weights by those of `--init`.

    Args:
        model: on the CPU, with the weights that its seed draws. It has the sizes of the other model, but for
            its vocabulary and for more positions, perhaps.
        path: a run, a checkpoint or a Hugging Face folder.
        tokenizer_json: the data's tokenizer.

    Raises:
        UsageError: there is no such thing, or it is another model.
        CorruptDataError: a file is truncated or changed.
    """
    loaded = load_checkpoint(path)
    _require_same_sizes(model, loaded, path)
    ours = tokenizer_json.decode()
    match = match_vocabularies(
        vocabulary_of(ours),
        vocabulary_of(loaded.tokenizer_json),
        model.config.vocab_size,
        loaded.model_config.vocab_size,
    )
    drawn = {name: parameter.detach() for name, parameter in model.named_parameters()}
    weights = {name: parameter.detach() for name, parameter in loaded.model.named_parameters()}
    if not match.is_same or model.config.vocab_size != loaded.model_config.vocab_size:
        rows = torch.from_numpy(match.rows)
        for name in _BY_ENTRY:
            weights[name] = _take_rows(weights[name], rows, drawn[name])
    num_positions = len(weights[_BY_POSITION])
    weights[_BY_POSITION] = torch.cat([weights[_BY_POSITION], drawn[_BY_POSITION][num_positions:]])
    copy_weights(model, weights, loaded.path)
    notes = _vocabulary_notes(match)
    if num_positions < model.config.max_position_embeddings:
        notes.append(
            f"it has {num_positions} positions; the embeddings of the other "
            f"{model.config.max_position_embeddings - num_positions} begin at random."
        )
    warnings = _rules_warnings(describe_rules(ours, loaded.tokenizer_json))
    return Remarks(*(tuple(f"--init {path}: {text}" for text in texts) for texts in (notes, warnings)))


def _take_rows(theirs: Tensor, rows: Tensor, drawn: Tensor) -> Tensor:
    known = rows != NO_ROW
    taken = drawn.clone()
    taken[known] = theirs[rows[known]]
    return taken


def _vocabulary_notes(match: VocabularyMatch) -> list[str]:
    if match.is_same:
        return []
    if match.num_in_slots:
        return [
            f"{match.num_in_slots:,} of its [unused] entries are words in the data's vocabulary; they begin "
            f"with the weights of those entries."
        ]
    return [
        f"the data has another vocabulary: {match.num_shared:,} entries are shared and keep their "
        f"embeddings, {match.num_new:,} are new and begin at random, {match.num_lost:,} are left behind."
    ]


def _rules_warnings(differences: list[str]) -> list[str]:
    if not differences:
        return []
    return [f"its tokenizer reads text by other rules than the data's: {', '.join(differences)}."]


def _require_same_sizes(model: BertForPretraining, loaded: LoadedCheckpoint, path: str) -> None:
    here, there = model.config.model_dump(exclude=set(_FREE_SIZES)), loaded.model_config.model_dump()
    del here["vocab_size"]
    if here["max_position_embeddings"] > there["max_position_embeddings"]:
        del here["max_position_embeddings"]
    differing = [
        f"{size} {there[size]} there, {here[size]} here" for size in here if here[size] != there[size]
    ]
    if differing:
        raise UsageError(
            f"--init {path} is another model: {', '.join(differing)}.\n"
            f"Leave out --model: then that model's sizes are taken."
        )
