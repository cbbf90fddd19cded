from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import trainer.export
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import TokenizerRecord
from trainer.checkpoints import CheckpointRecord, load_checkpoint, save_checkpoint
from trainer.config import TrainConfig
from trainer.export import export_checkpoint
from trainer.loop import train
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import name_state
from trainer.optimisation import build_optimizer
from trainer.output_folder import OutputFolder

REPOSITORY = Path(__file__).parents[2]
TOLERANCE = 1e-5
BERT_FILES = [
    *("README.md", "config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
]
TEXTS = [
    "The cats sat, softly!",
    "café CAFÉ cafe 中国",
    "a [MASK] word\x00\u00a0of\u3000text",
    "[unused1] ##s",
]


def save_run(folder: Path, tokenizer: Tokenizer, *, max_seq_length: int = 12) -> Path:
    """A run with one checkpoint and nothing else, of random weights that are far from their start."""
    vocab_size = tokenizer.get_vocab_size()
    config = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
        layer_norm_eps=1e-6,
    )
    model = BertForPretraining(config)
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=draw) * 0.3
    ids = {
        f"{name}_id": tokenizer.token_to_id(f"[{name.upper()}]")
        for name in ("pad", "unk", "cls", "sep", "mask")
    }
    record = CheckpointRecord(
        created_by="clozeline of the tests",
        step=7,
        model=config,
        tokenizer=TokenizerRecord(sha256="a" * 64, vocab_size=vocab_size, **ids),
        max_seq_length=max_seq_length,
        progress={},
    )
    run = OutputFolder(str(folder))
    state = name_state(model, build_optimizer(model, learning_rate=0.1))
    save_checkpoint(run, record, state, _dump(tokenizer), 3)
    return folder


def _dump(tokenizer: Tokenizer) -> bytes:
    content: str = tokenizer.to_str(pretty=True)
    return content.encode()


def _open(kind: Any, folder: Path) -> Any:
    return kind.from_pretrained(folder, local_files_only=True)


@pytest.fixture
def run(tmp_path: Path, tiny_tokenizer: Tokenizer) -> Path:
    return save_run(tmp_path / "run", tiny_tokenizer)


def test_transformers_opens_it_with_equal_logits(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "hf-model"
    summary = export_checkpoint(str(run), str(output))
    assert sorted(path.name for path in output.iterdir()) == list(summary.files) == BERT_FILES
    assert summary.size_bytes == sum(path.stat().st_size for path in output.iterdir())
    ours = load_checkpoint(str(run)).model
    draw = torch.Generator().manual_seed(5)
    input_ids = torch.randint(9, ours.config.vocab_size, (3, 20), generator=draw)
    segment_ids = (torch.arange(20) >= 9).long().expand(3, 20)
    attention = torch.arange(20) < torch.tensor([20, 14, 3])[:, None]
    batch = {
        "input_ids": input_ids,
        "token_type_ids": segment_ids,
        "attention_mask": attention.long(),
    }
    with torch.no_grad():
        hidden = ours.encode(input_ids, segment_ids, attention)
        logits = ours.masked_lm_logits(hidden, torch.arange(60)).reshape(3, 20, -1)
        both = _open(transformers.AutoModelForPreTraining, output)(**batch)
        masked = _open(transformers.AutoModelForMaskedLM, output)(**batch).logits
        encoder = _open(transformers.AutoModel, output)(**batch).last_hidden_state
        next_sentence = ours.next_sentence_logits(hidden)
    for theirs, expected in (
        (both.prediction_logits[attention], logits[attention]),
        (masked[attention], logits[attention]),
        (encoder[attention], hidden.reshape(3, 20, -1)[attention]),
        (both.seq_relationship_logits, next_sentence),
    ):
        torch.testing.assert_close(theirs, expected, atol=TOLERANCE, rtol=0)


def test_the_mean_of_padded_texts_is_that_of_each_text_alone(
    run: Path, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    """What sentence-transformers computes of a folder: a padded batch cut to the length, its mean by mask."""
    export_checkpoint(str(run), str(tmp_path / "hf"))
    tokenizer = _open(transformers.AutoTokenizer, tmp_path / "hf")
    texts = ["the cat sat on the mat, and it purred softly over and over again", "a dog", "it ran"]
    batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    assert batch["input_ids"].shape == (3, 12)
    ours = load_checkpoint(str(run)).model
    with torch.no_grad():
        hidden = _open(transformers.AutoModel, tmp_path / "hf")(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None]
        means = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        for text, mean in zip(texts, means, strict=True):
            ids = tiny_tokenizer.encode(text, add_special_tokens=False).ids[:10]
            alone = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
            vectors = ours.encode(alone, torch.zeros_like(alone), torch.ones_like(alone, dtype=torch.bool))
            torch.testing.assert_close(mean, vectors[0].mean(dim=0), atol=TOLERANCE, rtol=0)


def test_no_weight_is_missing_or_left_over(run: Path, tmp_path: Path) -> None:
    export_checkpoint(str(run), str(tmp_path / "hf"))
    _, found = transformers.AutoModelForPreTraining.from_pretrained(
        tmp_path / "hf", local_files_only=True, output_loading_info=True
    )
    assert not any(found.values()), found


def _tokenizer(settings: dict[str, Any]) -> Tokenizer:
    words = "[PAD] [unused0] [unused1] [UNK] [CLS] [SEP] [MASK] the cat café cafe The CAT 中 国 ##国 中国 "
    words += "##s ## sat , ! . a of text softly word café"
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys(words.split()))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = settings.get("normalizer") or normalizers.BertNormalizer(**settings["bert"])
    tokenizer.pre_tokenizer = settings.get("pre_tokenizer") or pre_tokenizers.BertPreTokenizer()
    if settings.get("post_processor", True):
        tokenizer.post_processor = processors.BertProcessing(
            ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
        )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.add_tokens(settings.get("added", []))
    return tokenizer


STRIPPING = {"normalizer": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])}
TOKENIZERS: dict[str, dict[str, Any]] = {
    "uncased": {"bert": {"lowercase": True}},
    "cased": {"bert": {"lowercase": False}},
    "uncased, accents kept": {"bert": {"lowercase": True, "strip_accents": False}},
    "cased, accents stripped": {"bert": {"lowercase": False, "strip_accents": True}},
    "ideographs left together": {"bert": {"handle_chinese_chars": False}},
    "text not cleaned": {"bert": {"clean_text": False}},
    "an added token": {"bert": {}, "added": ["softly!"]},
    "no post-processor": {"bert": {}, "post_processor": False},
    "other rules": {**STRIPPING, "pre_tokenizer": pre_tokenizers.Whitespace()},
}


@pytest.mark.parametrize("settings", TOKENIZERS.values(), ids=TOKENIZERS.keys())
def test_token_ids_are_equal(settings: dict[str, Any], tmp_path: Path) -> None:
    ours = _tokenizer(settings)
    export_checkpoint(str(save_run(tmp_path / "run", ours)), str(tmp_path / "hf"))
    theirs = _open(transformers.AutoTokenizer, tmp_path / "hf")
    for text in TEXTS:
        content = ours.encode(text, add_special_tokens=False).ids
        assert theirs(text, add_special_tokens=False)["input_ids"] == content
        assert theirs(text)["input_ids"] == [theirs.cls_token_id, *content, theirs.sep_token_id]
    first, second = (ours.encode(text, add_special_tokens=False).ids for text in TEXTS[:2])
    pair = theirs(*TEXTS[:2])
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs.mask_token_id == ours.token_to_id("[MASK]")
    assert theirs.pad_token_id == ours.token_to_id("[PAD]")
    assert theirs.model_max_length == 12


def test_rules_that_are_not_bert_s_keep_their_own_post_processor_or_get_one(tmp_path: Path) -> None:
    tokenizer = _tokenizer({**TOKENIZERS["other rules"], "post_processor": False})
    export_checkpoint(str(save_run(tmp_path / "run", tokenizer)), str(tmp_path / "hf"))
    theirs = _open(transformers.AutoTokenizer, tmp_path / "hf")
    assert theirs("the cat")["input_ids"] == [theirs.cls_token_id, 7, 8, theirs.sep_token_id]
    assert not (tmp_path / "hf" / "vocab.txt").exists()


def test_an_export_is_opened_as_a_checkpoint(run: Path, tmp_path: Path) -> None:
    export_checkpoint(str(run), str(tmp_path / "hf"))
    before, after = load_checkpoint(str(run)), load_checkpoint(str(tmp_path / "hf"))
    assert (after.model_config, after.max_seq_length) == (before.model_config, 12)
    for ours, theirs in zip(before.model.parameters(), after.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_same_again_is_found_done_and_another_is_refused(
    run: Path, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    output = tmp_path / "hf"
    assert not export_checkpoint(str(run), str(output)).already_done
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in output.iterdir()}
    assert export_checkpoint(str(run), f"{output}/").already_done
    other = save_run(tmp_path / "other", tiny_tokenizer, max_seq_length=20)
    with pytest.raises(UsageError, match="holds another export already"):
        export_checkpoint(str(other), str(output))
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in output.iterdir()}
    export_checkpoint(str(other), str(output), overwrite=True)
    assert json.loads((output / "tokenizer_config.json").read_text())["model_max_length"] == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "other", "run"]


def test_a_damaged_export_is_no_export_that_is_done(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "hf"
    export_checkpoint(str(run), str(output))
    weights = output / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UsageError, match="--overwrite"):
        export_checkpoint(str(run), str(output))
    export_checkpoint(str(run), str(output), overwrite=True)
    assert weights.read_bytes() == whole


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_no_export_wrote_is_never_replaced(overwrite: bool, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    export_checkpoint(str(run), str(tmp_path / "hf"))
    (tmp_path / "hf" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for output in (folder, tmp_path / "hf", tmp_path / "file", run, tmp_path):
        with pytest.raises(UsageError, match="holds more than an export"):
            export_checkpoint(str(run), str(output), overwrite=overwrite)
    assert (folder / "README.md").read_text() == (tmp_path / "file").read_text() == "mine"


def test_nothing_half_written_is_left(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "hf"
    write = trainer.export.write_tensors

    def fill_the_disk(file: Any, tensors: Any) -> None:
        if hasattr(file, "_raw"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, tensors)

    monkeypatch.setattr(trainer.export, "write_tensors", fill_the_disk)
    with pytest.raises(ClozelineError, match="No space left"):
        export_checkpoint(str(run), str(output))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_export_away_from_a_local_disk(run: Path, tmp_path: Path) -> None:
    remote = f"memory://{uuid.uuid4().hex}/models/hf"
    summary = export_checkpoint(str(run), remote)
    export_checkpoint(str(run), str(tmp_path / "hf"))
    folder = OutputFolder(remote)
    assert folder.list_names() == list(summary.files)
    for name in summary.files:
        assert folder.read_bytes(name) == (tmp_path / "hf" / name).read_bytes()
    assert export_checkpoint(str(run), remote).already_done


@pytest.mark.parametrize(
    ("checkpoint", "output", "message"),
    [
        ("absent", "hf", "no such run or checkpoint"),
        ("done", "hf", "is a Hugging Face folder already"),
        ("run", "https://example.org/hf", "can be read only|can't be opened"),
        ("run", "memory://bucket", "no folder that can be made"),
        ("run", "/", "no folder that can be made"),
    ],
)
def test_wrong_paths(
    checkpoint: str, output: str, message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export_checkpoint("run", "done")
    with pytest.raises(UsageError, match=message):
        export_checkpoint(checkpoint, output)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_dataset_path: Path) -> Path:
    """A run of three steps, measured on held-out examples."""
    folder = tmp_path_factory.mktemp("trained")
    sizes = folder / "sizes.json"
    sizes.write_text('{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}')
    config = TrainConfig(
        data=(str(tiny_dataset_path),),
        output=str(folder / "run"),
        model=str(sizes),
        steps=3,
        batch_size=8,
        learning_rate=0.25,
        log_every=1,
        evaluate_every=3,
        device="cpu",
        precision="fp32",
    )
    train(config)
    return folder / "run"


def _rows(card: str) -> dict[str, str]:
    cells = [line.strip("|").split("|") for line in card.splitlines() if line.startswith("| ")]
    return {label.strip(): value.strip() for label, value in cells}


def test_the_card_tells_of_data_training_and_results(
    trained: Path, tmp_path: Path, tiny_dataset_path: Path
) -> None:
    summary = export_checkpoint(str(trained), str(tmp_path / "my-bert"))
    assert summary.has_data_facts
    assert summary.step == 3
    card = (tmp_path / "my-bert" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "# my-bert\n" in card
    rows = _rows(card)
    assert rows["`--next-sentence-balance`"] == "on"
    manifest = json.loads((tiny_dataset_path / "dataset.json").read_text())
    assert rows["documents"] == "5"
    assert rows["examples"] == "217, of which 25 held out"
    assert rows["tokens in examples"] == f"{manifest['num_tokens']:,}"
    assert rows["`--max-seq-length`"] == "32"
    assert rows["`--objective`"] == "next-sentence"
    assert rows["steps"] == "3 of 3"
    assert rows["`--learning-rate`"] == "0.25"
    assert rows["examples seen"] == "24"
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    assert rows["examples measured"] == "25"
    assert rows["masked-LM perplexity"] == f"{last['validation_perplexity']:,.4f}"
    assert rows["next-sentence accuracy"] == f"{last['validation_next_sentence_accuracy']:,.4f}"
    assert "the position embeddings from 32 to 511" in card
    for path in (tmp_path, trained.parent, tiny_dataset_path):
        assert str(path) not in card


def test_one_checkpoint_of_a_run_gives_the_same_as_the_run(trained: Path, tmp_path: Path) -> None:
    export_checkpoint(str(trained), str(tmp_path / "a" / "hf"))
    export_checkpoint(str(trained / "checkpoints" / "step-00000003"), str(tmp_path / "b" / "hf"))
    for name in BERT_FILES:
        assert (tmp_path / "a" / "hf" / name).read_bytes() == (tmp_path / "b" / "hf" / name).read_bytes()


def test_a_checkpoint_taken_out_of_its_run_is_exported_too(trained: Path, tmp_path: Path) -> None:
    (trained / "checkpoints" / "step-00000003").rename(tmp_path / "alone")
    try:
        summary = export_checkpoint(str(tmp_path / "alone"), str(tmp_path / "hf"))
    finally:
        (tmp_path / "alone").rename(trained / "checkpoints" / "step-00000003")
    assert not summary.has_data_facts
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "The dataset was not at hand" in card
    assert _rows(card)["steps"] == "3"


def test_a_run_begins_with_the_weights_of_an_export(
    trained: Path, tmp_path: Path, tiny_dataset_path: Path
) -> None:
    output = tmp_path / "hf"
    export_checkpoint(str(trained), str(output))
    config = TrainConfig(
        data=(str(tiny_dataset_path),),
        output=str(tmp_path / "second"),
        model=str(output / "config.json"),
        init=str(output),
        steps=1,
        batch_size=8,
        learning_rate=1e-9,
        device="cpu",
        precision="fp32",
    )
    train(config)
    before, after = load_checkpoint(str(trained)).model, load_checkpoint(config.output).model
    for ours, theirs in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-7, rtol=0)
    export_checkpoint(config.output, str(tmp_path / "again"))
    assert _rows((tmp_path / "again" / "README.md").read_text())["began with"] == "the weights of `hf`"


def test_the_export_needs_no_transformers(run: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['transformers'] = None\n"
        "from trainer.export import export_checkpoint\n"
        f"export_checkpoint({str(run)!r}, {str(tmp_path / 'hf')!r})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)
    assert (tmp_path / "hf" / "config.json").exists()
