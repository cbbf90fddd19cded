"""What a BERT looks like: its sizes, and nothing about how it is trained.

In: a preset's name or a JSON file. Out: a frozen `ModelConfig`. The field names are those of Google's
`bert_config.json` and of Hugging Face's `BertConfig`, so that either file can be read.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from schemas.configs import FrozenModel
from schemas.errors import UsageError

Size = Annotated[int, Field(ge=1)]
DropoutProbability = Annotated[float, Field(ge=0.0, lt=1.0)]

_HEAD_SIZE = 64

# (layers, hidden size): Devlin et al. 2018, section 3, for base and large; Turc et al. 2019, "Well-read
# students learn better", table 1, for the others. Heads are of 64 and the feed-forward part is four times as
# wide, always.
_PRESET_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
PRESETS = tuple(_PRESET_SIZES)

# Entries of other programs' files that are either implied here or say nothing about the sizes.
_REQUIRED_VALUES: dict[str, object] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "model_type": "bert",
}


class ModelConfig(FrozenModel):
    """The sizes of a BERT with both pretraining heads.

    Attributes:
        vocab_size: entries of the vocabulary.
        hidden_size: width of a token's vector.
        num_hidden_layers: encoder layers.
        num_attention_heads: heads of a layer; must divide `hidden_size`.
        intermediate_size: width inside the feed-forward part.
        max_position_embeddings: tokens in a sequence at most.
        type_vocab_size: kinds of segment.
        hidden_dropout_prob: dropout after the embeddings, the attention and the feed-forward part.
        attention_probs_dropout_prob: dropout on attention probabilities.
        initializer_range: standard deviation of the truncated normal that weights start from.
        layer_norm_eps: added to the variance in layer normalisation.
    """

    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size = 512
    type_vocab_size: Annotated[int, Field(ge=2)] = 2
    hidden_dropout_prob: DropoutProbability = 0.1
    attention_probs_dropout_prob: DropoutProbability = 0.1
    initializer_range: Annotated[float, Field(gt=0.0)] = 0.02
    layer_norm_eps: Annotated[float, Field(gt=0.0)] = 1e-12

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> ModelConfig:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of num_attention_heads "
                f"{self.num_attention_heads}"
            )
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def without_dropout(self) -> ModelConfig:
        """The same model with both dropouts at 0, as suits training that sees each example about once."""
        return self.model_copy(update={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})


def preset_config(name: str, vocab_size: int) -> ModelConfig:
    """A model of Google's published sizes.

    Args:
        name: one of `PRESETS`, with or without `bert-` before it.
        vocab_size: entries of the vocabulary.

    Raises:
        UsageError: there is no such preset.
    """
    sizes = _PRESET_SIZES.get(name.lower().removeprefix("bert-"))
    if sizes is None:
        raise UsageError(
            f"Model {name!r} is no preset; choose one of {', '.join(PRESETS)}, or give the path of a JSON "
            f'configuration such as `{{"num_hidden_layers": 3, "hidden_size": 192, …}}`.'
        )
    num_layers, hidden_size = sizes
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // _HEAD_SIZE,
        intermediate_size=4 * hidden_size,
    )


def parse_model_config(
    content: str | bytes, vocab_size: int, path: str, *, any_vocab_size: bool = False
) -> ModelConfig:
    """Read a JSON configuration: ours, Google's `bert_config.json` or Hugging Face's `config.json`.

    Args:
        content: the text of the file. `vocab_size` may be left out; so may `num_attention_heads`
            (then heads of 64) and `intermediate_size` (then four times the hidden size).
        vocab_size: entries of the vocabulary that the data was made with.
        path: where the content came from, for the message.
        any_vocab_size: pass over the file's own `vocab_size` rather than refuse another one.

    Raises:
        UsageError: no JSON object, a wrong or missing value, another vocabulary size, or a kind of model that
            this one is not (for example relative positions).
    """
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}. Expected a model configuration.") from None
    if not isinstance(fields, dict):
        raise UsageError(f"{path} holds a JSON {type(fields).__name__}; expected an object of model sizes.")
    _refuse_other_models(fields, path)
    if not any_vocab_size and fields.get("vocab_size", vocab_size) != vocab_size:
        raise UsageError(
            f"{path} has vocab_size {fields['vocab_size']}, but the data's vocabulary has {vocab_size} "
            f"entries. Leave vocab_size out, or use the data that belongs to this model."
        )
    known = {name: value for name, value in fields.items() if name in ModelConfig.model_fields}
    if isinstance(known.get("hidden_size"), int):
        known.setdefault("num_attention_heads", max(1, known["hidden_size"] // _HEAD_SIZE))
        known.setdefault("intermediate_size", 4 * known["hidden_size"])
    try:
        return ModelConfig(**{**known, "vocab_size": vocab_size})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the configuration"
        raise UsageError(f"{path} is no valid model configuration: {where}: {first['msg']}.") from None


def _refuse_other_models(fields: dict[str, object], path: str) -> None:
    for name, expected in _REQUIRED_VALUES.items():
        if fields.get(name, expected) != expected:
            raise UsageError(
                f"{path} has {name} = {fields[name]!r}; this model knows {expected!r} only. Change the file "
                f"or take a preset."
            )
