"""The trainer half: streams a dataset of shards, trains a BERT on it, evaluates it and asks it.

    from tokenizers import Tokenizer
    from trainer import TrainConfig, export_checkpoint, fill_mask, load_checkpoint, open_dataset, train

    print(open_dataset("data-1/").manifest.num_examples)
    config = TrainConfig(data=("data-1/",), output="run-5/", model="tiny", steps=2000, learning_rate=1e-3)
    summary = train(config)
    trained = load_checkpoint(summary.checkpoint)
    tokenizer = Tokenizer.from_str(trained.tokenizer_json)
    print(fill_mask(trained.model, tokenizer, "the [MASK] sat on the mat").text)
    export_checkpoint(summary.checkpoint, "hf-model-5/")

Importing this package loads neither torch nor anything else that is heavy: the names below are loaded when
they are first used. Nothing here imports Beam. `trainer.data` has the parts of the loader, for trainers of
one's own. Importing it sets `ONEDNN_PRIMITIVE_CACHE_CAPACITY` and `LRU_CACHE_CAPACITY` in the environment,
unless they are set: on CPUs torch then keeps what it compiles for 64 shapes rather than 1024.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.checkpoints import LoadedCheckpoint, load_checkpoint
    from trainer.config import TrainConfig
    from trainer.data.dataset import Dataset, open_dataset
    from trainer.export import ExportSummary, export_checkpoint
    from trainer.loop import TrainSummary, resume, train
    from trainer.model.config import ModelConfig
    from trainer.model.pretraining import BertForPretraining
    from trainer.prediction import fill_mask, next_sentence_probability

__all__ = [
    "BertForPretraining",
    "Dataset",
    "ExportSummary",
    "LoadedCheckpoint",
    "ModelConfig",
    "TrainConfig",
    "TrainSummary",
    "export_checkpoint",
    "fill_mask",
    "load_checkpoint",
    "next_sentence_probability",
    "open_dataset",
    "resume",
    "train",
]

# In bfloat16 each length of a row and each number of masked tokens is a shape: a tiny model took 0.8 GB after
# 300 steps, still growing, and stays at 0.53 GB with these. Read when torch computes for the first time.
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "64")

_HOMES = {
    "BertForPretraining": "trainer.model.pretraining",
    "Dataset": "trainer.data.dataset",
    "ExportSummary": "trainer.export",
    "LoadedCheckpoint": "trainer.checkpoints",
    "ModelConfig": "trainer.model.config",
    "TrainConfig": "trainer.config",
    "TrainSummary": "trainer.loop",
    "export_checkpoint": "trainer.export",
    "fill_mask": "trainer.prediction",
    "load_checkpoint": "trainer.checkpoints",
    "next_sentence_probability": "trainer.prediction",
    "open_dataset": "trainer.data.dataset",
    "resume": "trainer.loop",
    "train": "trainer.loop",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
