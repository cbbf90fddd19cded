"""A folder as Hugging Face's `save_pretrained` leaves it: a BERT with both heads, and its tokenizer.

    hf-model/config.json             sizes of the model
    hf-model/model.safetensors       weights, under Hugging Face's names
    hf-model/tokenizer.json          the tokenizer; or vocab.txt, its tokens by id
    hf-model/tokenizer_config.json   how transformers opens it

In: such a folder. Out: the model, its sizes and its tokenizer. The other way round is `trainer.export`.
transformers itself is not needed, and nothing is unpickled. Deterministic.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from schemas.errors import CorruptDataError, UsageError
from schemas.manifests import TOKENIZER_NAME, TokenizerRecord
from trainer.model.config import ModelConfig, parse_model_config
from trainer.model.hugging_face import from_hugging_face
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import copy_weights
from trainer.output_folder import OutputFolder
from trainer.tensor_files import parse_tensors, read_tensor_file

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
PICKLED_WEIGHTS_NAME = "pytorch_model.bin"
VOCABULARY_NAME = "vocab.txt"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"

_SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


@dataclass(frozen=True)
class HuggingFaceModel:
    """What a folder holds.

    Attributes:
        model: in evaluation mode, on the CPU, in float32.
        config: its sizes.
        tokenizer: the record of its tokenizer, as a manifest would hold it.
        tokenizer_json: the canonical content of its `tokenizer.json`.
        max_seq_length: tokens of a sequence at most: the tokenizer's `model_max_length`, or all positions.
    """

    model: BertForPretraining
    config: ModelConfig
    tokenizer: TokenizerRecord
    tokenizer_json: str
    max_seq_length: int


def holds_hugging_face_model(folder: OutputFolder) -> bool:
    """Whether a folder has the files of one. A run has no weights beside its `config.json`."""
    return folder.exists(CONFIG_NAME) and (folder.exists(WEIGHTS_NAME) or folder.exists(PICKLED_WEIGHTS_NAME))


def read_hugging_face_model(folder: OutputFolder) -> HuggingFaceModel:
    """Open the model in a folder.

    Raises:
        UsageError: it is another kind of model, lacks a head, has pickled weights only, or no tokenizer with
            BERT's special tokens.
        CorruptDataError: a file is damaged.
    """
    config = read_hugging_face_config(folder)
    tokenizer_json, record = _read_tokenizer(folder)
    model = BertForPretraining(config)
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    ours = from_hugging_face(_read_weights(folder), expected)
    copy_weights(model, {name: tensor.to(torch.float32) for name, tensor in ours.items()}, folder.path)
    return HuggingFaceModel(
        model=model.eval(),
        config=config,
        tokenizer=record,
        tokenizer_json=tokenizer_json,
        max_seq_length=_read_max_length(folder, config.max_position_embeddings),
    )


def read_hugging_face_config(folder: OutputFolder) -> ModelConfig:
    """The sizes of the model in a folder.

    Raises:
        UsageError: it is another kind of model.
        CorruptDataError: its `config.json` is damaged.
    """
    content = folder.read_bytes(CONFIG_NAME)
    vocab_size = _parse_object(content, folder.locate(CONFIG_NAME)).get("vocab_size")
    if not isinstance(vocab_size, int):
        raise UsageError(
            f"{folder.locate(CONFIG_NAME)} has vocab_size {vocab_size!r}; expected a number of entries.\n"
            f"Give a folder that transformers' `save_pretrained` or `clozeline export` wrote."
        )
    return parse_model_config(content, vocab_size, folder.locate(CONFIG_NAME))


def _read_weights(folder: OutputFolder) -> dict[str, Tensor]:
    if not folder.exists(WEIGHTS_NAME):
        raise UsageError(
            f"{folder.path} holds pickled weights ({PICKLED_WEIGHTS_NAME}), which clozeline never reads.\n"
            f"Save the model with transformers' `save_pretrained`, which writes {WEIGHTS_NAME}."
        )
    if folder.is_local:
        return read_tensor_file(folder.local_path(WEIGHTS_NAME))
    return parse_tensors(folder.read_bytes(WEIGHTS_NAME), folder.locate(WEIGHTS_NAME))


def _read_tokenizer(folder: OutputFolder) -> tuple[str, TokenizerRecord]:
    if folder.exists(TOKENIZER_NAME):
        path, tokenizer = folder.locate(TOKENIZER_NAME), _parse_tokenizer(folder)
    elif folder.exists(VOCABULARY_NAME):
        path, tokenizer = folder.locate(VOCABULARY_NAME), _bert_tokenizer(folder)
    else:
        raise UsageError(
            f"{folder.path} has no {TOKENIZER_NAME}.\n"
            f"Save its tokenizer there: transformers' AutoTokenizer, then `save_pretrained`."
        )
    ids = {f"{name}_id": tokenizer.token_to_id(token) for name, token in _SPECIAL_TOKENS.items()}
    missing = [token for name, token in _SPECIAL_TOKENS.items() if ids[f"{name}_id"] is None]
    if missing:
        raise UsageError(f"{path} lacks {', '.join(missing)}.\nGive a model with a BERT vocabulary.")
    # `ingest` records a tokenizer in this form, so that a model and data of one vocabulary are known as such.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    canonical = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1) + "\n"
    record = TokenizerRecord(
        sha256=hashlib.sha256(canonical.encode()).hexdigest(),
        vocab_size=max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1,
        **ids,
    )
    return canonical, record


def _parse_tokenizer(folder: OutputFolder) -> Tokenizer:
    try:
        return Tokenizer.from_str(folder.read_bytes(TOKENIZER_NAME).decode())
    except Exception as error:  # the library raises bare Exception
        reason = str(error).split("\n", 1)[0]
        raise CorruptDataError(
            f"{folder.locate(TOKENIZER_NAME)} is no readable tokenizer: {reason}.\nCopy it anew."
        ) from None


def _bert_tokenizer(folder: OutputFolder) -> Tokenizer:
    """BERT's tokenizer over the tokens of `vocab.txt`, as `ingest` makes it of the same file."""
    lines = folder.read_bytes(VOCABULARY_NAME).decode("utf-8-sig", "replace").rstrip("\r\n").split("\n")
    tokens = {line.removesuffix("\r"): token_id for token_id, line in enumerate(lines)}
    if len(tokens) < len(lines):
        raise CorruptDataError(f"{folder.locate(VOCABULARY_NAME)} has a token in two lines.\nCopy it anew.")
    settings = _read_tokenizer_config(folder)
    tokenizer = Tokenizer(models.WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
        lowercase=bool(settings.get("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([token for token in _SPECIAL_TOKENS.values() if token in tokens])
    if "[SEP]" in tokens and "[CLS]" in tokens:
        tokenizer.post_processor = processors.BertProcessing(
            ("[SEP]", tokens["[SEP]"]), ("[CLS]", tokens["[CLS]"])
        )
    return tokenizer


def _read_max_length(folder: OutputFolder, num_positions: int) -> int:
    found = _read_tokenizer_config(folder).get("model_max_length")
    # transformers writes 1e30 for "no limit".
    return int(min(found, num_positions)) if isinstance(found, (int, float)) and found > 0 else num_positions


def _read_tokenizer_config(folder: OutputFolder) -> dict[str, Any]:
    if not folder.exists(TOKENIZER_CONFIG_NAME):
        return {}
    return _parse_object(folder.read_bytes(TOKENIZER_CONFIG_NAME), folder.locate(TOKENIZER_CONFIG_NAME))


def _parse_object(content: bytes, path: str) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise CorruptDataError(f"{path} is no JSON: {error}.\nCopy it anew.") from None
    if not isinstance(fields, dict):
        raise CorruptDataError(f"{path} holds a JSON {type(fields).__name__}; expected an object.")
    return fields
