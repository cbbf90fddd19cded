"""`--init`: weights of Hugging Face's, whose losses transformers itself computes here; other vocabularies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from schemas.errors import CorruptDataError, UsageError
from trainer.checkpoints import load_checkpoint
from trainer.config import TrainConfig
from trainer.data import iterate_once, open_dataset
from trainer.export import export_checkpoint
from trainer.initial_weights import Remarks, copy_initial_weights
from trainer.loop import train
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


@pytest.fixture
def their_model(tiny_vocab_size: int) -> Any:
    """A `BertForPreTraining` with four heads and weights that tell every parameter from the others."""
    torch.set_num_threads(1)
    config = transformers.BertConfig(
        vocab_size=tiny_vocab_size,
        **SIZES,
    )
    model = transformers.BertForPreTraining(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.fixture
def folder(their_model: Any, tiny_tokenizer_path: Path, tmp_path: Path) -> Path:
    """The model as `save_pretrained` leaves it, with its tokenizer."""
    path = tmp_path / "theirs"
    their_model.save_pretrained(path)
    (path / "tokenizer.json").write_bytes((tiny_tokenizer_path / "tokenizer.json").read_bytes())
    return path


@pytest.fixture
def begin(tiny_dataset_path: Path, folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """Train one step from the folder, evaluated before it: the evaluation."""

    def run(on_note: Callable[[str], None] | None = None, **values: Any) -> Any:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / "run"),
            "model": str(folder / "config.json"),
            "init": str(folder),
            "steps": 1,
            "batch_size": 4,
            "precision": "fp32",
            "device": "cpu",
            "evaluate_every": 1,
        }
        return train(TrainConfig(**defaults | values), on_note=on_note).first_evaluation

    return run


def test_losses_equal_those_that_transformers_computes(
    their_model: Any, tiny_dataset_path: Path, begin: Callable[..., Any]
) -> None:
    masked_lm_losses, next_sentence_losses = [], []
    for batch in iterate_once(open_dataset(str(tiny_dataset_path)), "validation", 7):
        with torch.no_grad():
            output = their_model(
                input_ids=batch.input_ids,
                token_type_ids=batch.segment_ids,
                attention_mask=batch.attention_mask.long(),
            )
        logits = output.prediction_logits.flatten(0, 1)[batch.masked_positions]
        masked_lm_losses.append(torch.nn.functional.cross_entropy(logits, batch.masked_ids, reduction="none"))
        next_sentence_losses.append(
            torch.nn.functional.cross_entropy(
                output.seq_relationship_logits, batch.next_sentence_labels, reduction="none"
            )
        )
    evaluation = begin()
    assert evaluation["masked_lm_loss"] == pytest.approx(float(torch.cat(masked_lm_losses).mean()), abs=1e-5)
    assert evaluation["next_sentence_loss"] == pytest.approx(
        float(torch.cat(next_sentence_losses).mean()), abs=1e-5
    )


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_another_number_of_heads_is_refused_though_every_shape_fits(
    folder: Path, begin: Callable[..., Any], tmp_path: Path
) -> None:
    ours = tmp_path / "ours.json"
    ours.write_text((folder / "config.json").read_text())
    change_config(folder, num_attention_heads=2)
    with pytest.raises(
        UsageError,
        match=r"is another model: num_attention_heads 2 there, 4 here.\nLeave out --model",
    ):
        begin(model=str(ours))


def test_another_activation_is_refused(folder: Path, begin: Callable[..., Any], tmp_path: Path) -> None:
    ours = tmp_path / "ours.json"
    ours.write_text((folder / "config.json").read_text())
    change_config(folder, hidden_act="relu")
    with pytest.raises(UsageError, match="hidden_act = 'relu'; this model knows 'gelu' only"):
        begin(model=str(ours))


def test_without_a_model_the_sizes_are_those_of_the_weights(
    folder: Path, begin: Callable[..., Any], tmp_path: Path
) -> None:
    expected = begin()
    for init in (folder, tmp_path / "run"):
        output = tmp_path / f"from-{init.name}"
        evaluation = begin(model=None, init=str(init), output=str(output))
        assert load_checkpoint(str(output)).model_config == load_checkpoint(str(folder)).model_config
        assert (evaluation == expected) is (init == folder)


def test_the_sizes_of_the_weights_are_settled_when_the_run_begins(
    folder: Path, begin: Callable[..., Any], tmp_path: Path
) -> None:
    first = begin(model=None)
    shutil.rmtree(folder)
    assert begin(model=None) == first
    with pytest.raises(UsageError, match="no such run or checkpoint"):
        begin(model=None, output=str(tmp_path / "new"))


def test_dropout_may_be_chosen_anew(begin: Callable[..., Any]) -> None:
    assert begin(dropout=0.0) is not None


def test_without_a_tokenizer_it_is_refused_and_a_list_of_lines_is_one(
    folder: Path, begin: Callable[..., Any], tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    expected = begin()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"has no tokenizer.json.\nSave its tokenizer there"):
        begin(output=str(tmp_path / "without"))
    lines = (tiny_tokenizer_path / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text(lines.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert begin(output=str(tmp_path / "lines")) == expected


def test_a_decoder_of_its_own_is_refused(folder: Path, begin: Callable[..., Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    decoder = weights["bert.embeddings.word_embeddings.weight"].clone()
    save_file(weights | {"cls.predictions.decoder.weight": decoder}, folder / "model.safetensors")
    assert begin() is not None
    save_file(weights | {"cls.predictions.decoder.weight": decoder + 1}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"cls.predictions.decoder.weight of its own"):
        begin(seed=1, output=str(folder.parent / "other"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"\x10", "model.safetensors is no readable safetensors file"),
        ("tokenizer.json", b"{}", "tokenizer.json is no readable tokenizer"),
    ],
)
def test_a_damaged_file_is_named(
    folder: Path, begin: Callable[..., Any], name: str, content: bytes, words: str
) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CorruptDataError, match=words):
        begin()


def test_pickled_weights_are_refused(folder: Path, begin: Callable[..., Any]) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"pickled weights \(pytorch_model.bin\)"):
        begin()


TokenizerChange = Callable[[dict[str, int]], dict[str, int]]


def change_tokenizer(tokenizer_json: str, change: TokenizerChange, **normaliser: bool) -> str:
    """The same tokenizer with another vocabulary, and perhaps other rules."""
    fields = json.loads(tokenizer_json)
    vocabulary = change(fields["model"]["vocab"])
    fields["model"]["vocab"] = vocabulary
    fields["normalizer"] |= normaliser
    fields["added_tokens"] = [
        token | {"id": vocabulary[token["content"]]} for token in fields["added_tokens"]
    ]
    for name in ("sep", "cls"):
        fields["post_processor"][name] = [f"[{name.upper()}]", vocabulary[f"[{name.upper()}]"]]
    return json.dumps(fields)


def reverse(vocabulary: dict[str, int]) -> dict[str, int]:
    return {token: len(vocabulary) - 1 - token_id for token, token_id in vocabulary.items()}


def rename(**names: str) -> TokenizerChange:
    """Put other words in the place of some: `rename(cat="zebra")`; `unused2` stands for `[unused2]`."""
    olds = {f"[{old}]" if old.startswith("unused") else old: new for old, new in names.items()}
    return lambda vocabulary: {olds.get(token, token): token_id for token, token_id in vocabulary.items()}


def begin_model(
    folder: Path, tokenizer_json: str, tokenizer_size: int, **sizes: int
) -> tuple[BertForPretraining, BertForPretraining, Remarks]:
    """A model that began with the folder's weights, the same as the seed drew it, and the remarks."""
    theirs = ModelConfig(vocab_size=tokenizer_size, **SIZES | sizes)
    model, drawn = (BertForPretraining(theirs, seed=3) for _ in range(2))
    return model, drawn, copy_initial_weights(model, str(folder), tokenizer_json.encode())


def read_folder(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(str(folder)).model.named_parameters())


def test_losses_are_the_same_when_a_vocabulary_is_turned_round(
    folder: Path, begin: Callable[..., Any], tmp_path: Path, tiny_vocab_size: int
) -> None:
    """Another order of the entries, with the rows of the weights in the same order, is the same model."""
    expected = begin()
    weights = load_file(folder / "model.safetensors")
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, folder / "model.safetensors")
    path = folder / "tokenizer.json"
    path.write_text(change_tokenizer(path.read_text(), reverse))
    notes: list[str] = []
    assert begin(notes.append, output=str(tmp_path / "turned")) == expected
    assert notes == [
        f"--init {folder}: the data has another vocabulary: {tiny_vocab_size} entries are shared and keep "
        f"their embeddings, 0 are new and begin at random, 0 are left behind."
    ]


def test_words_in_unused_slots_leave_all_weights_as_they_are(folder: Path, tiny_vocab_size: int) -> None:
    ours = change_tokenizer(
        (folder / "tokenizer.json").read_text(), rename(unused1="zebra", unused3="##osaurus")
    )
    model, _, (notes, warnings) = begin_model(folder, ours, tiny_vocab_size)
    assert warnings == ()
    for name, expected in read_folder(folder).items():
        assert torch.equal(model.get_parameter(name), expected), name
    assert notes == (
        f"--init {folder}: 2 of its [unused] entries are words in the data's vocabulary; they begin with the "
        f"weights of those entries.",
    )


def test_a_larger_vocabulary_keeps_what_is_shared_and_draws_the_rest(
    folder: Path, tiny_vocab_size: int
) -> None:
    def change(vocabulary: dict[str, int]) -> dict[str, int]:
        return {**reverse(rename(cat="zebra")(vocabulary)), "horse": len(vocabulary)}

    theirs = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    ours = change(theirs)
    tokenizer_json = change_tokenizer((folder / "tokenizer.json").read_text(), change)
    model, drawn, (notes, _) = begin_model(folder, tokenizer_json, tiny_vocab_size + 1)
    before = read_folder(folder)
    for name, parameter in model.named_parameters():
        if name not in ("embeddings.token.weight", "masked_lm_head.bias"):
            assert torch.equal(parameter, before[name]), name
            continue
        for token, token_id in ours.items():
            known = token not in ("zebra", "horse")
            row = before[name][theirs[token]] if known else drawn.get_parameter(name)[token_id]
            assert torch.equal(parameter[token_id], row), (name, token)
    shared = tiny_vocab_size - 1
    assert f"{shared} entries are shared and keep their embeddings, 2 are new" in notes[0]
    assert "1 are left behind" in notes[0]


def test_a_case_that_differs_is_warned_of(folder: Path, tiny_vocab_size: int) -> None:
    cased = change_tokenizer((folder / "tokenizer.json").read_text(), dict, lowercase=False)
    _, _, (notes, warnings) = begin_model(folder, cased, tiny_vocab_size)
    assert notes == ()
    assert warnings == (
        f"--init {folder}: its tokenizer reads text by other rules than the data's: lowercase yes there, no "
        f"here, strip_accents yes there, no here.",
    )


def test_more_positions_begin_at_random(folder: Path, tiny_vocab_size: int) -> None:
    tokenizer_json = (folder / "tokenizer.json").read_text()
    model, drawn, (notes, _) = begin_model(
        folder, tokenizer_json, tiny_vocab_size, max_position_embeddings=96
    )
    positions = model.embeddings.position.weight
    assert torch.equal(positions[:64], read_folder(folder)["embeddings.position.weight"])
    assert torch.equal(positions[64:], drawn.embeddings.position.weight[64:])
    assert notes == (
        f"--init {folder}: it has 64 positions; the embeddings of the other 32 begin at random.",
    )
    with pytest.raises(UsageError, match="max_position_embeddings 64 there, 32 here"):
        begin_model(folder, tokenizer_json, tiny_vocab_size, max_position_embeddings=32)


@pytest.mark.parametrize("source", ["run", "checkpoint", "export"])
def test_each_kind_of_source_gives_its_weights_to_data_of_another_vocabulary(
    source: str,
    begin: Callable[..., Any],
    tmp_path: Path,
    tiny_tokenizer_path: Path,
    make_tiny_examples: Callable[[int, int], list[Any]],
    write_tiny_dataset: Callable[..., Path],
) -> None:
    begin()
    paths = {
        "run": tmp_path / "run",
        "checkpoint": tmp_path / "run" / "checkpoints" / "step-00000001",
        "export": tmp_path / "export",
    }
    export_checkpoint(str(paths["run"]), str(paths["export"]))
    tokenizer = change_tokenizer((tiny_tokenizer_path / "tokenizer.json").read_text(), rename(cat="zebra"))
    splits = {"train": [make_tiny_examples(20, 1)], "validation": [make_tiny_examples(20, 2)]}
    data = write_tiny_dataset(tmp_path / "data", splits, tokenizer_json=tokenizer.encode())
    notes: list[str] = []
    begin(notes.append, data=str(data), init=str(paths[source]), output=str(tmp_path / "second"))
    assert [note.split(": ", 1)[0] for note in notes] == [f"--init {paths[source]}"]
    assert "1 are new and begin at random, 1 are left behind" in notes[0]
