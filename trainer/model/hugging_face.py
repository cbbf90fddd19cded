"""Weights to and from Hugging Face's `BertForPreTraining`.

In and out: state dicts (name to tensor). Every parameter of ours is exactly one of theirs, of the same
shape, so that both models give the same logits; nothing is transposed, joined or cut. Deterministic.
transformers itself is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from schemas.errors import UsageError
from trainer.model.config import ModelConfig

# (ours, theirs), as regular expression and replacement; the first that matches a whole name wins.
_LAYER = r"encoder\.layers\.(\d+)\."
_NAMES: tuple[tuple[str, str], ...] = (
    (r"embeddings\.token\.weight", "bert.embeddings.word_embeddings.weight"),
    (r"embeddings\.position\.weight", "bert.embeddings.position_embeddings.weight"),
    (r"embeddings\.segment\.weight", "bert.embeddings.token_type_embeddings.weight"),
    (r"embeddings\.norm\.(weight|bias)", r"bert.embeddings.LayerNorm.\1"),
    (
        _LAYER + r"attention\.(query|key|value)\.(weight|bias)",
        r"bert.encoder.layer.\1.attention.self.\2.\3",
    ),
    (_LAYER + r"attention_output\.(weight|bias)", r"bert.encoder.layer.\1.attention.output.dense.\2"),
    (_LAYER + r"attention_norm\.(weight|bias)", r"bert.encoder.layer.\1.attention.output.LayerNorm.\2"),
    (_LAYER + r"feed_forward_input\.(weight|bias)", r"bert.encoder.layer.\1.intermediate.dense.\2"),
    (_LAYER + r"feed_forward_output\.(weight|bias)", r"bert.encoder.layer.\1.output.dense.\2"),
    (_LAYER + r"feed_forward_norm\.(weight|bias)", r"bert.encoder.layer.\1.output.LayerNorm.\2"),
    (r"pooler\.dense\.(weight|bias)", r"bert.pooler.dense.\1"),
    (r"masked_lm_head\.dense\.(weight|bias)", r"cls.predictions.transform.dense.\1"),
    (r"masked_lm_head\.norm\.(weight|bias)", r"cls.predictions.transform.LayerNorm.\1"),
    (r"masked_lm_head\.bias", "cls.predictions.bias"),
    (r"next_sentence_head\.dense\.(weight|bias)", r"cls.seq_relationship.\1"),
)

# The second names under which Hugging Face's checkpoints hold tied parameters.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# A buffer of older checkpoints: 0, 1, 2, …
_IGNORED = frozenset({"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"})
# Names in checkpoints that were converted from Google's own.
_OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


def hugging_face_name(name: str) -> str:
    """The name of one of our parameters in Hugging Face's `BertForPreTraining`.

    Raises:
        KeyError: the model has no parameter of this name.
    """
    for ours, theirs in _NAMES:
        match = re.fullmatch(ours, name)
        if match:
            return match.expand(theirs)
    raise KeyError(name)


def to_hugging_face(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename our state dict to Hugging Face's, tied parameters under both of their names."""
    renamed = {hugging_face_name(name): tensor for name, tensor in state.items()}
    return renamed | {alias: renamed[name] for alias, name in _TIED.items()}


def from_hugging_face(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename Hugging Face's state dict to ours.

    Args:
        state: that of a `BertForPreTraining`; older names (`gamma`, `beta`) are understood.
        expected: our model's own state dict, for the names and shapes that must come out.

    Raises:
        UsageError: a parameter is missing (a model without the pretraining heads, say), has another shape, is
            not tied, or belongs to another kind of model.
    """
    found = {_modern_name(name): tensor for name, tensor in state.items() if name not in _IGNORED}
    tied = {name: (alias, found.pop(alias)) for alias, name in _TIED.items() if alias in found}
    converted = {}
    for name, ours in expected.items():
        theirs = hugging_face_name(name)
        tensor = found.pop(theirs, None)
        if tensor is None:
            raise UsageError(
                f"The Hugging Face weights lack {theirs}; expected those of a BertForPreTraining "
                f"with both heads."
            )
        if tensor.shape != ours.shape:
            raise UsageError(
                f"The Hugging Face weights have {theirs} of shape {list(tensor.shape)}, the model expects "
                f"{list(ours.shape)}. Take the configuration that belongs to the weights."
            )
        alias, same = tied.get(theirs, (theirs, tensor))
        if not torch.equal(same, tensor):
            raise UsageError(
                f"The Hugging Face weights have a {alias} of its own; this model's is tied to {theirs}."
            )
        converted[name] = tensor
    unknown = sorted(found)
    if unknown:
        raise UsageError(
            f"The Hugging Face weights hold {len(unknown)} parameters that this model lacks, {unknown[0]} "
            f"first; expected those of a BertForPreTraining."
        )
    return converted


def hugging_face_config(config: ModelConfig, *, pad_token_id: int = 0) -> dict[str, object]:
    """The `config.json` with which transformers opens weights from `to_hugging_face`."""
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "pad_token_id": pad_token_id,
        "tie_word_embeddings": True,
        **config.model_dump(),
    }


def _modern_name(name: str) -> str:
    for old, new in _OLD_NAMES:
        name = name.replace(old, new)
    return name
