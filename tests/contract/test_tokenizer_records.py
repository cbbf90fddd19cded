from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipelines.tokenizer_files import load_tokenizer
from trainer.hugging_face_folder import read_hugging_face_model
from trainer.model.config import ModelConfig
from trainer.model.hugging_face import hugging_face_config, to_hugging_face
from trainer.model.pretraining import BertForPretraining
from trainer.output_folder import OutputFolder
from trainer.tensor_files import write_tensors


@pytest.mark.parametrize("padded", [False, True])
def test_a_hugging_face_folder_has_the_record_that_ingest_writes(
    padded: bool, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    config = ModelConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    if padded:
        tiny_tokenizer.enable_padding(length=16)
        tiny_tokenizer.enable_truncation(16)
    (tmp_path / "tokenizer.json").write_text(tiny_tokenizer.to_str(), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(hugging_face_config(config)))
    with (tmp_path / "model.safetensors").open("wb") as file:
        write_tensors(file, to_hugging_face(dict(BertForPretraining(config).named_parameters())))
    found = read_hugging_face_model(OutputFolder(str(tmp_path)))
    _, record, content = load_tokenizer(str(tmp_path))
    assert found.tokenizer == record
    assert found.tokenizer_json == content.decode()
