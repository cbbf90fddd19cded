"""A checkpoint as a folder that Hugging Face's transformers opens.

    hf-model/config.json, model.safetensors                       the model, under transformers' names
    hf-model/tokenizer.json, tokenizer_config.json, vocab.txt     the tokenizer (vocab.txt of a BERT one only)
    hf-model/README.md                                            the model card

In: a run or one of its checkpoints. Out: the folder, whole or not at all: it is written under another name
and renamed (away from a local disk `config.json` is uploaded last). What lies in the output is never replaced
unless that was asked for, and even then nothing that an export did not write. Deterministic: the same
checkpoint gives the same bytes. transformers itself is not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tokenizers import Tokenizer, processors
from torch import Tensor

from schemas.errors import UsageError
from schemas.manifests import TOKENIZER_NAME
from trainer.checkpoints import (
    CHECKPOINTS_NAME,
    CheckpointRecord,
    LoadedCheckpoint,
    find_checkpoint,
    load_checkpoint,
    read_record,
)
from trainer.hugging_face_folder import (
    CONFIG_NAME,
    TOKENIZER_CONFIG_NAME,
    VOCABULARY_NAME,
    WEIGHTS_NAME,
    holds_hugging_face_model,
)
from trainer.model.hugging_face import hugging_face_config, hugging_face_name
from trainer.model_card import ModelFacts, write_model_card
from trainer.output_folder import FolderWriter, OutputFolder
from trainer.run_data import find_datasets
from trainer.run_folder import RunRecord, parse_record
from trainer.tensor_files import write_tensors

CARD_NAME = "README.md"

_OWN_NAMES = frozenset(
    {CONFIG_NAME, WEIGHTS_NAME, TOKENIZER_NAME, TOKENIZER_CONFIG_NAME, VOCABULARY_NAME, CARD_NAME}
)
_MAX_INPUT_CHARS_PER_WORD = 100  # of BERT's WordPiece


@dataclass(frozen=True)
class ExportSummary:
    """What an export did.

    Attributes:
        output: the folder.
        checkpoint: the folder of the checkpoint that it comes from.
        step: optimiser steps that the model has seen.
        num_parameters: weights, tied ones once.
        max_seq_length: tokens of a sequence at most in the data that it was trained on.
        size_bytes: of all files.
        files: their names, sorted.
        has_data_facts: whether the card tells of the data; it can't where the dataset is no longer at hand.
        already_done: the same export lay there and was left as it is.
    """

    output: str
    checkpoint: str
    step: int
    num_parameters: int
    max_seq_length: int
    size_bytes: int
    files: tuple[str, ...]
    has_data_facts: bool
    already_done: bool

    def as_dict(self) -> dict[str, Any]:
        """The fields under their names, as `clozeline export --json` prints them."""
        return asdict(self) | {"files": list(self.files)}


def export_checkpoint(
    checkpoint: str,
    output: str,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExportSummary:
    """Write a checkpoint as a Hugging Face folder.

    Args:
        checkpoint: a run folder, of which the newest checkpoint is taken, or the folder of one checkpoint.
        output: the folder to write, local or where fsspec can write.
        overwrite: replace another export that lies there.
        progress: called with (files written, files in all).

    Raises:
        UsageError: there is no checkpoint, or the output holds something that may not be replaced.
        CorruptDataError: a file of the checkpoint is missing, truncated or changed.
        ClozelineError: the output can't be written; nothing half-written is left.
    """
    parent, name = _split_output(output)
    target = OutputFolder(parent.locate(name))
    occupied = _check_output(target, overwrite)
    folder, checkpoint_name = _find_checkpoint(checkpoint)
    record = read_record(folder, checkpoint_name)
    loaded = load_checkpoint(folder.locate(checkpoint_name))
    run = _read_run(folder, checkpoint_name, record)
    manifests = tuple(one.manifest for one in find_datasets(run)) if run is not None else ()
    weights = {hugging_face_name(key): value.detach() for key, value in loaded.model.named_parameters()}
    num_parameters = sum(tensor.numel() for tensor in weights.values())
    facts = ModelFacts(name, num_parameters, record, run, manifests)
    contents = {**_tokenizer_files(loaded), CARD_NAME: write_model_card(facts).encode()}
    contents[CONFIG_NAME] = _as_json(hugging_face_config(record.model, pad_token_id=record.tokenizer.pad_id))
    weights_record = _measure_weights(weights)
    already_done = occupied and _holds_same(target, contents, weights_record)
    if occupied and not already_done and not overwrite:
        raise UsageError(
            f"{output} holds another export already.\nGive another --output, or --overwrite to replace it."
        )
    if not already_done:
        with parent.write_subfolder(name, CONFIG_NAME) as writer:
            _write_files(writer, weights, contents, progress)
    return ExportSummary(
        output=output,
        checkpoint=loaded.path,
        step=record.step,
        num_parameters=num_parameters,
        max_seq_length=record.max_seq_length,
        size_bytes=weights_record[0] + sum(map(len, contents.values())),
        files=tuple(sorted([WEIGHTS_NAME, *contents])),
        has_data_facts=bool(manifests),
        already_done=already_done,
    )


def _split_output(output: str) -> tuple[OutputFolder, str]:
    """The folder that the output lies in, and its name there."""
    whole = OutputFolder(output)
    if whole.is_read_only:
        raise UsageError(f"{output} can be read only.\nGive a local path, or a gs:// or s3:// URL.")
    path = os.path.abspath(whole.local_path("")) if whole.is_local else whole.path
    parent, _, name = path.rpartition("/")
    if not name or parent.endswith((":", ":/")):
        raise UsageError(f"{output!r} is no folder that can be made.\nGive a new folder as --output.")
    return OutputFolder(parent or "/"), name


def _check_output(target: OutputFolder, overwrite: bool) -> bool:
    """Whether an export lies in the output; anything else there is refused."""
    names = target.list_names() if target.exists() else []
    if not names:
        return False
    strange = sorted(set(names) - _OWN_NAMES)
    if strange or CONFIG_NAME not in names:
        remedy = " (--overwrite replaces exports only)" if overwrite else ""
        raise UsageError(
            f"{target.path} is not empty and holds more than an export (found {(strange or names)[0]})."
            f"\nGive a new folder as --output{remedy}."
        )
    return True


def _find_checkpoint(path: str) -> tuple[OutputFolder, str]:
    try:
        return find_checkpoint(path)
    except UsageError:
        if holds_hugging_face_model(OutputFolder(path)):
            raise UsageError(
                f"{path} is a Hugging Face folder already.\nGive a run or a checkpoint of `clozeline train`."
            ) from None
        raise


def _read_run(folder: OutputFolder, name: str, checkpoint: CheckpointRecord) -> RunRecord | None:
    """The record of the run that a checkpoint belongs to; None where it was taken out of its run."""
    if name:
        run = folder
    else:
        parent, _, base = folder.path.rpartition("/")
        if folder.is_local:
            parent, base = os.path.split(os.path.abspath(folder.local_path("")))
        if not base.startswith("step-") or os.path.basename(parent) != CHECKPOINTS_NAME:
            return None
        run = OutputFolder(parent.rpartition("/")[0])
    if not run.exists(CONFIG_NAME):
        return None
    record = parse_record(run.read_bytes(CONFIG_NAME), run.locate(CONFIG_NAME))
    return record if record.tokenizer == checkpoint.tokenizer else None


def _tokenizer_files(loaded: LoadedCheckpoint) -> dict[str, bytes]:
    tokenizer = Tokenizer.from_str(loaded.tokenizer_json)
    fields = json.loads(loaded.tokenizer_json)
    settings: dict[str, Any] = {
        "model_max_length": min(loaded.max_seq_length, loaded.model_config.max_position_embeddings),
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    files = {TOKENIZER_NAME: loaded.tokenizer_json.encode()}
    if _is_bert_tokenizer(fields):
        normaliser = fields["normalizer"]
        settings |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": normaliser["lowercase"],
            "strip_accents": normaliser["strip_accents"],
            "tokenize_chinese_chars": normaliser["handle_chinese_chars"],
        }
        tokens = sorted(fields["model"]["vocab"], key=fields["model"]["vocab"].__getitem__)
        files[VOCABULARY_NAME] = "".join(f"{token}\n" for token in tokens).encode()
    else:
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        if tokenizer.post_processor is None:
            # The generic class adds what the file says and no more; BERT's own brings [CLS] and [SEP] along.
            tokenizer.post_processor = processors.BertProcessing(
                ("[SEP]", loaded.tokenizer.sep_id), ("[CLS]", loaded.tokenizer.cls_id)
            )
            files[TOKENIZER_NAME] = tokenizer.to_str(pretty=True).encode()
    return {**files, TOKENIZER_CONFIG_NAME: _as_json(settings)}


def _is_bert_tokenizer(fields: dict[str, Any]) -> bool:
    """Whether transformers' BertTokenizer, which knows BERT's rules only, gives the same ids."""
    model, normaliser = fields["model"], fields["normalizer"] or {}
    return (
        model["type"] == "WordPiece"
        and (model["unk_token"], model["continuing_subword_prefix"]) == ("[UNK]", "##")
        and model["max_input_chars_per_word"] == _MAX_INPUT_CHARS_PER_WORD
        and sorted(model["vocab"].values()) == list(range(len(model["vocab"])))
        and not any("\n" in token or "\r" in token for token in model["vocab"])
        and (normaliser.get("type"), normaliser.get("clean_text")) == ("BertNormalizer", True)
        and (fields["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    )


def _as_json(fields: dict[str, Any]) -> bytes:
    return (json.dumps(fields, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def _write_files(
    writer: FolderWriter,
    weights: dict[str, Tensor],
    contents: dict[str, bytes],
    progress: Callable[[int, int], None] | None,
) -> None:
    with writer.open(WEIGHTS_NAME) as file:
        write_tensors(file, weights)
    # config.json last: without it there is no model.
    for name, content in sorted(contents.items(), key=lambda entry: (entry[0] == CONFIG_NAME, entry[0])):
        if progress is not None:
            progress(len(writer.records), 1 + len(contents))
        writer.write(name, content)
    if progress is not None:
        progress(len(writer.records), 1 + len(contents))


def _measure_weights(weights: dict[str, Tensor]) -> tuple[int, str]:
    """Size in bytes and SHA-256 of the file that the weights give."""
    sink = _Sink()
    write_tensors(sink, weights)  # type: ignore[arg-type]
    return sink.size_bytes, sink.digest.hexdigest()


def _holds_same(target: OutputFolder, contents: dict[str, bytes], weights_record: tuple[int, str]) -> bool:
    if set(target.list_names()) != {WEIGHTS_NAME, *contents}:
        return False
    if any(target.read_bytes(name) != content for name, content in contents.items()):
        return False
    found = target.read_bytes(WEIGHTS_NAME)
    return (len(found), hashlib.sha256(found).hexdigest()) == weights_record


class _Sink:
    """Takes what is written to it and keeps its size and checksum only."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: bytes | memoryview) -> None:
        self.digest.update(content)
        self.size_bytes += len(content)
