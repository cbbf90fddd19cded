"""Weights that a run begins with, other than random ones.

In: a run of ours, one of its checkpoints, or a folder of Hugging Face's with `model.safetensors`. Out: a
model whose weights are those. Nothing is unpickled: a folder that holds only `pytorch_model.bin` is refused.
"""

from __future__ import annotations

import torch

from schemas.errors import UsageError
from schemas.manifests import TokenizerRecord
from trainer.checkpoints import MARKER_NAME, MODEL_NAME, find_checkpoint, read_record, read_weights
from trainer.model.hugging_face import from_hugging_face
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import copy_weights
from trainer.output_folder import OutputFolder
from trainer.tensor_files import parse_tensors, read_tensor_file


def copy_initial_weights(model: BertForPretraining, path: str, tokenizer: TokenizerRecord) -> None:
    """Overwrite a model's weights by those of `--init`.

    Args:
        model: on the CPU, of the same sizes.
        path: a run, a checkpoint or a Hugging Face folder.
        tokenizer: the one that made the data; a checkpoint of ours must have been trained with it.

    Raises:
        UsageError: there is no such thing, or it is another model or was trained with another tokenizer.
        CorruptDataError: a file is truncated or changed.
    """
    folder = OutputFolder(path)
    if folder.exists(MODEL_NAME) and not folder.exists(MARKER_NAME):
        _copy_from_hugging_face(model, folder)
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
    ours, theirs = model.config.model_dump(), record.model.model_dump()
    sizes = [
        name for name in ours if ours[name] != theirs[name] and not name.endswith(("_prob", "_eps", "_range"))
    ]
    if sizes:
        differences = ", ".join(f"{size} {theirs[size]} there, {ours[size]} here" for size in sizes)
        raise UsageError(
            f"--init {path} is another model: {differences}.\nGive the --model that it was trained as."
        )
    copy_weights(model, read_weights(folder, name, record), folder.locate(name))


def _copy_from_hugging_face(model: BertForPretraining, folder: OutputFolder) -> None:
    if folder.is_local:
        theirs = read_tensor_file(folder.local_path(MODEL_NAME))
    else:
        theirs = parse_tensors(folder.read_bytes(MODEL_NAME), folder.locate(MODEL_NAME))
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    ours = from_hugging_face(theirs, expected)
    copy_weights(model, {name: tensor.to(torch.float32) for name, tensor in ours.items()}, folder.path)
