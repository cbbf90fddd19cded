from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from trainer.checkpoints import load_checkpoint


@pytest.fixture
def folder(tmp_path: Path, tiny_tokenizer: Tokenizer) -> Path:
    """What transformers itself saves of a small BERT and its tokenizer."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    transformers.BertForPreTraining(config).save_pretrained(tmp_path / "hf")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    ).save_pretrained(tmp_path / "hf")
    return tmp_path / "hf"


def test_what_transformers_saved_gives_equal_logits(folder: Path) -> None:
    loaded = load_checkpoint(str(folder))
    theirs = transformers.BertForPreTraining.from_pretrained(folder, local_files_only=True).eval()
    input_ids = torch.randint(9, 100, (2, 11), generator=torch.Generator().manual_seed(1))
    segment_ids = (torch.arange(11) > 5).long().expand(2, 11)
    with torch.no_grad():
        expected = theirs(input_ids=input_ids, token_type_ids=segment_ids)
        hidden = loaded.model.encode(input_ids, segment_ids, torch.ones_like(input_ids, dtype=torch.bool))
        logits = loaded.model.masked_lm_logits(hidden, torch.arange(22)).reshape(2, 11, -1)
        next_sentence = loaded.model.next_sentence_logits(hidden)
    torch.testing.assert_close(logits, expected.prediction_logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(next_sentence, expected.seq_relationship_logits, atol=1e-5, rtol=0)
    assert (loaded.step, loaded.max_seq_length, loaded.path) == (0, 24, str(folder))
    assert not loaded.model.training


@pytest.mark.parametrize(("limit", "expected"), [(16, 16), (512, 24), (10**30, 24), (None, 24)])
def test_the_length_is_the_tokenizer_s_where_it_has_one(limit: Any, expected: int, folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": limit}))
    assert load_checkpoint(str(folder)).max_seq_length == expected


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: (f / "tokenizer.json").unlink(), UsageError, "has no tokenizer.json"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), CorruptDataError, "no readable tokenizer"),
        (lambda f: (f / "config.json").write_text("{"), CorruptDataError, "is no JSON"),
        (lambda f: (f / "config.json").write_text("[]"), CorruptDataError, "holds a JSON list"),
        (lambda f: (f / "config.json").write_text("{}"), UsageError, "has vocab_size None"),
        (lambda f: (f / "model.safetensors").write_text("x"), CorruptDataError, "no readable safetensors"),
        (lambda f: (f / "model.safetensors").unlink(), UsageError, "holds no checkpoint"),
    ],
    ids=["no tokenizer", "bad tokenizer", "bad config", "no object", "no size", "bad weights", "no weights"],
)
def test_damage_is_named(change: Any, error: type[ClozelineError], message: str, folder: Path) -> None:
    change(folder)
    with pytest.raises(error, match=message):
        load_checkpoint(str(folder))


def test_a_model_without_the_pretraining_heads_is_refused(folder: Path) -> None:
    encoder = transformers.BertModel.from_pretrained(folder, local_files_only=True)
    encoder.save_pretrained(folder)
    with pytest.raises(UsageError, match="with both heads"):
        load_checkpoint(str(folder))
