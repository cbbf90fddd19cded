"""The model that a person names, as sizes that fit their data.

In: a preset's name, the path of a JSON file, or a model that weights come from, and what the data says.
Out: a `ModelConfig`. Deterministic. torch is loaded only for the sizes of another model.
"""

from __future__ import annotations

from schemas.errors import UsageError
from schemas.manifests import DatasetManifest
from trainer.config import DEFAULT_MODEL, TrainConfig
from trainer.data.opener import read_bytes
from trainer.model.config import ModelConfig, parse_model_config, preset_config

_LARGEST_MODEL_CONFIG_BYTES = 1 << 20


def choose_model(
    name: str,
    vocab_size: int,
    max_seq_length: int,
    *,
    dropout: float | None = None,
    any_vocab_size: bool = False,
) -> ModelConfig:
    """The sizes of a preset, or of a JSON file.

    Args:
        name: a preset, or a path that ends in `.json`.
        vocab_size: entries of the vocabulary of the data.
        max_seq_length: tokens of its longest sequences at most.
        dropout: if given, replaces both dropout probabilities of the model.
        any_vocab_size: pass over the file's own `vocab_size` rather than refuse another one.

    Raises:
        UsageError: no such preset, a wrong file, or sequences longer than the model has positions.
    """
    if name.endswith(".json"):
        try:
            content = read_bytes(name, _LARGEST_MODEL_CONFIG_BYTES)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise UsageError(f"{name}: no such model configuration. Give a JSON file or a preset.") from None
        model = parse_model_config(content, vocab_size, name, any_vocab_size=any_vocab_size)
    else:
        model = preset_config(name, vocab_size)
    return _fit_data(model, name, max_seq_length, dropout)


def _fit_data(model: ModelConfig, name: str, max_seq_length: int, dropout: float | None) -> ModelConfig:
    if max_seq_length > model.max_position_embeddings:
        raise UsageError(
            f"Sequences have up to {max_seq_length} tokens, but model {name} has "
            f"{model.max_position_embeddings} positions.\nGive a model configuration with "
            f"max_position_embeddings of {max_seq_length}, or data of a smaller --max-seq-length."
        )
    if dropout is None:
        return model
    return model.model_copy(update={"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout})


def settle_model(config: TrainConfig, manifest: DatasetManifest) -> ModelConfig:
    """The sizes of the model that the configuration of a run means, for its data.

    Raises:
        UsageError: as `choose_model` does, or the sizes are those of `init` and there is no such model.
        CorruptDataError: a record of `init` is malformed.
    """
    vocab_size, max_seq_length = manifest.tokenizer.vocab_size, manifest.config.max_seq_length
    if config.model is None and config.init is not None:
        from trainer.checkpoints import read_model_config  # loads torch

        model = read_model_config(config.init).model_copy(update={"vocab_size": vocab_size})
        return _fit_data(model, config.init, max_seq_length, config.dropout)
    return choose_model(
        config.model or DEFAULT_MODEL,
        vocab_size,
        max_seq_length,
        dropout=config.dropout,
        # Of the model that weights come from: they are fitted to the vocabulary of the data.
        any_vocab_size=config.init is not None,
    )
