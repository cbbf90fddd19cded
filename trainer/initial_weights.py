"""Weights that a run begins with, other than random ones.

In: a run of ours, one of its checkpoints, or a folder of Hugging Face's with `model.safetensors`. Out: a
model whose weights are those, after the sizes and the vocabulary were compared: weights of the same shapes
may still mean other heads or other words. Nothing is unpickled: a folder that holds only `pytorch_model.bin`
is refused.
"""

from __future__ import annotations

import torch
from tokenizers import Tokenizer

from schemas.errors import CorruptDataError, UsageError
from schemas.manifests import TOKENIZER_NAME, TokenizerRecord
from trainer.checkpoints import MARKER_NAME, MODEL_NAME, find_checkpoint, read_record, read_weights
from trainer.model.config import ModelConfig, parse_model_config
from trainer.model.hugging_face import from_hugging_face
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import copy_weights
from trainer.output_folder import OutputFolder
from trainer.tensor_files import parse_tensors, read_tensor_file

_MODEL_CONFIG_NAME = "config.json"
_VOCABULARY_NAME = "vocab.txt"
# What a run may choose anew: it changes how the weights are trained, not what they mean.
_FREE_SIZES = frozenset({"hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"})


def copy_initial_weights(
    model: BertForPretraining, path: str, tokenizer: TokenizerRecord, tokenizer_json: bytes
) -> None:
    """Overwrite a model's weights by those of `--init`.

    Args:
        model: on the CPU, of the same sizes.
        path: a run, a checkpoint or a Hugging Face folder.
        tokenizer: the one that made the data; a checkpoint of ours must have been trained with it.
        tokenizer_json: the same, whole; a Hugging Face folder must have its vocabulary, if it has any.

    Raises:
        UsageError: there is no such thing, or it is another model or was trained with another tokenizer.
        CorruptDataError: a file is truncated or changed.
    """
    folder = OutputFolder(path)
    if folder.exists(MODEL_NAME) and not folder.exists(MARKER_NAME):
        _copy_from_hugging_face(model, folder, tokenizer_json)
        return
    if folder.exists("pytorch_model.bin"):
        raise UsageError(
            f"{path} holds pickled weights (pytorch_model.bin), which clozeline never reads.\n"
            f"Save the model with transformers' `save_pretrained`, which writes {MODEL_NAME}."
        )
    folder, name = find_checkpoint(path)
    record = read_record(folder, name)
    if record.tokenizer.sha256 != tokenizer.sha256:
        raise UsageError(
            f"--init {path} was trained with another tokenizer ({record.tokenizer.sha256[:12]}…) than the "
            f"one that made the data ({tokenizer.sha256[:12]}…).\n"
            f"Ingest with --tokenizer {path}/tokenizer.json."
        )
    _require_same_sizes(model.config, record.model, path, "the --model that it was trained as")
    copy_weights(model, read_weights(folder, name, record), folder.locate(name))


def _copy_from_hugging_face(model: BertForPretraining, folder: OutputFolder, tokenizer_json: bytes) -> None:
    if folder.exists(_MODEL_CONFIG_NAME):
        config_path = folder.locate(_MODEL_CONFIG_NAME)
        content = folder.read_bytes(_MODEL_CONFIG_NAME)
        theirs = parse_model_config(content, model.config.vocab_size, config_path)
        _require_same_sizes(model.config, theirs, folder.path, f"--model {config_path}")
    _require_same_vocabulary(folder, tokenizer_json)
    if folder.is_local:
        weights = read_tensor_file(folder.local_path(MODEL_NAME))
    else:
        weights = parse_tensors(folder.read_bytes(MODEL_NAME), folder.locate(MODEL_NAME))
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    ours = from_hugging_face(weights, expected)
    copy_weights(model, {name: tensor.to(torch.float32) for name, tensor in ours.items()}, folder.path)


def _require_same_sizes(ours: ModelConfig, theirs: ModelConfig, path: str, remedy: str) -> None:
    here, there = ours.model_dump(exclude=set(_FREE_SIZES)), theirs.model_dump()
    differing = [
        f"{size} {there[size]} there, {here[size]} here" for size in here if here[size] != there[size]
    ]
    if differing:
        raise UsageError(f"--init {path} is another model: {', '.join(differing)}.\nGive {remedy}.")


def _require_same_vocabulary(folder: OutputFolder, tokenizer_json: bytes) -> None:
    if folder.exists(TOKENIZER_NAME):
        theirs = _vocabulary(folder.read_bytes(TOKENIZER_NAME), folder.locate(TOKENIZER_NAME))
    elif folder.exists(_VOCABULARY_NAME):
        lines = folder.read_bytes(_VOCABULARY_NAME).decode(errors="replace").removesuffix("\n").split("\n")
        theirs = {token.removesuffix("\r"): token_id for token_id, token in enumerate(lines)}
    else:
        return
    ours = _vocabulary(tokenizer_json, "the data's tokenizer")
    differing = sorted(token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token))
    if differing:
        raise UsageError(
            f"--init {folder.path} has another vocabulary than the data: {len(differing)} entries differ, "
            f"first {differing[0]!r}.\nIngest the text with --tokenizer {folder.path}, then build again."
        )


def _vocabulary(tokenizer_json: bytes, path: str) -> dict[str, int]:
    try:
        return dict(Tokenizer.from_str(tokenizer_json.decode()).get_vocab(with_added_tokens=True))
    except Exception as error:  # the library raises plain Exception
        raise CorruptDataError(f"{path} is no readable tokenizer: {error}") from None
