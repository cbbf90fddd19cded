from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipelines.tokenizer_files import load_tokenizer
from pipelines.vocabulary_extension import extend_tokenizer, open_base
from trainer.hugging_face_folder import read_hugging_face_model
from trainer.model.config import ModelConfig
from trainer.model.hugging_face import hugging_face_config, to_hugging_face
from trainer.model.pretraining import BertForPretraining
from trainer.output_folder import OutputFolder
from trainer.tensor_files import write_tensors
from trainer.vocabulary_match import describe_rules, match_vocabularies


@pytest.mark.parametrize("form", ["as it is", "padded", "a list of lines", "a cased list of lines"])
def test_a_hugging_face_folder_has_the_record_that_ingest_writes(
    form: str, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    config = ModelConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    if form == "padded":
        tiny_tokenizer.enable_padding(length=16)
        tiny_tokenizer.enable_truncation(16)
    if form.endswith("lines"):
        ids = tiny_tokenizer.get_vocab()
        (tmp_path / "vocab.txt").write_text("\n".join(sorted(ids, key=ids.__getitem__)) + "\n")
    else:
        (tmp_path / "tokenizer.json").write_text(tiny_tokenizer.to_str(), encoding="utf-8")
    if form == "a cased list of lines":
        settings = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps(hugging_face_config(config)))
    with (tmp_path / "model.safetensors").open("wb") as file:
        write_tensors(file, to_hugging_face(dict(BertForPretraining(config).named_parameters())))
    found = read_hugging_face_model(OutputFolder(str(tmp_path)))
    _, record, content = load_tokenizer(str(tmp_path))
    assert found.tokenizer == record
    assert found.tokenizer_json == content.decode()


def test_an_extended_tokenizer_is_known_as_such_by_the_weights_of_its_base(tiny_tokenizer_path: Path) -> None:
    base = open_base(str(tiny_tokenizer_path))
    extended, num_new_words = extend_tokenizer({"zebra": 2, "okapi": 1, "cat": 9}, base)
    size = base.tokenizer.get_vocab_size()
    match = match_vocabularies(extended.get_vocab(), base.tokenizer.get_vocab(), size, size)
    assert (match.num_in_slots, num_new_words, match.num_new) == (2, 2, 0)
    assert match.rows.tolist() == list(range(size))
    assert describe_rules(extended.to_str(), base.tokenizer.to_str()) == []
