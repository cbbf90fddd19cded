import json
from pathlib import Path
from typing import Any

from schemas.sealing import seal_json
from workflows.commands.train import _following
from workflows.summaries import ingest_lines, share_lines, train_lines, vocab_lines

TRAINED: dict[str, Any] = {
    "num_parameters": 1_528_130,
    "precision": "bf16",
    "steps": 200,
    "resumed_from_step": 7,
    "num_examples": 12_783,
    "num_tokens": 1_542_595,
    "data": ["data-1"],
    "passes": [1.7249],
    "masked_lm_loss": 7.9066,
    "next_sentence_loss": None,
    "seconds": 123.0,
    "tokens_per_second": 12541.4,
    "checkpoint": "run/checkpoints/step-00000200",
    "already_done": False,
    "last_evaluation": None,
}


def test_a_vocabulary() -> None:
    summary = {
        "vocab_size": 30_522,
        "num_documents": 38_000,
        "num_text_bytes": 1_000_000_000,
        "sampled_share": 0.1234,
        "seconds": 61.0,
        "output": "tokenizer/",
    }
    assert vocab_lines(summary) == [
        ("sample", "12.3% of the text: 38,000 documents, 1,000.0 MB"),
        ("vocabulary", "30,522 entries"),
        ("time", "1 min 01 s"),
        ("output", "tokenizer/"),
    ]


def test_a_vocabulary_that_the_text_did_not_fill_and_what_was_left_out() -> None:
    summary = {
        "vocab_size": 30_838,
        "exhausted_at_min_frequency": 2,
        "num_documents": 2_000,
        "num_rejected": 1_250,
        "num_text_bytes": 1_000_000,
        "sampled_share": 1.0,
        "seconds": 1.0,
        "output": "tokenizer/",
    }
    assert vocab_lines(summary)[1:3] == [
        ("rejected", "1,250 documents, empty or unreadable"),
        ("vocabulary", "30,838 entries; the text gives no more at --min-frequency 2"),
    ]


def test_a_training_run() -> None:
    assert train_lines(TRAINED) == [
        ("model", "1,528,130 parameters, bf16"),
        ("steps", "200, resumed from 7"),
        ("seen", "12,783 examples, 1,542,595 tokens"),
        ("passes", "1.7 over the data"),
        ("loss", "masked LM 7.907"),
        ("time", "2 min 03 s, 12,541 tokens/s"),
        ("checkpoint", "run/checkpoints/step-00000200"),
    ]


def test_passes_over_each_of_several_datasets() -> None:
    lines = train_lines({**TRAINED, "data": ["data-1", "data-2"], "passes": [1234.5, 0.04321]})
    assert lines[3] == ("passes", "1,234 over data-1, 0.043 over data-2")


def test_a_run_that_was_measured_says_so() -> None:
    evaluation = {
        "masked_lm_loss": 7.8396,
        "perplexity": 2539.14,
        "masked_lm_accuracy": 0.0408,
        "next_sentence_accuracy": None,
        "num_examples": 355,
        "num_masked_tokens": 6223,
    }
    lines = train_lines({**TRAINED, "last_evaluation": evaluation})
    assert lines[5] == ("held out", "loss 7.840, perplexity 2539.1, accuracy 4.1%")


def test_labels_are_named_by_their_objective() -> None:
    shares = {"chosen_share": 0.1523, "mask_share": 0.801, "random_share": 0.1, "kept_share": 0.099}
    masking = ("masking", "15.2% of tokens: 80.1% [MASK], 10.0% random, 9.9% kept")
    for objective, label in (("next-sentence", "is next"), ("sentence-order", "in order")):
        summary = {"objective": objective, "is_next_share": 0.4973, **shares}
        assert share_lines(summary) == [(label, "49.7%"), masking]
    assert share_lines({"objective": "mlm", "is_next_share": None, **shares}) == [masking]


def test_a_small_input_is_told_in_kilobytes() -> None:
    summary = {
        "num_input_files": 1,
        "num_input_bytes": 13_987,
        "num_documents_read": 2,
        "num_documents": 1,
        "num_rejected": 1,
        "rejected": {"empty": 1, "duplicate": 0},
        "num_sentences": 94,
        "num_tokens": 2988,
        "seconds": 1.4,
        "megabytes_per_second": 0.01,
        "output": "corpus/",
    }
    assert ingest_lines(summary)[:3] == [
        ("input", "1 file, 14.0 kB"),
        ("documents", "2 read, 1 kept, 1 rejected"),
        ("rejected", "empty 1 (see corpus/rejects/)"),
    ]


def test_what_follows_a_training_can_be_run(made: Path, tmp_path: Path) -> None:
    dataset = str(made / "dataset")
    assert _following(dataset, "run") == f"clozeline evaluate --data {dataset} --checkpoint run"
    manifest = (made / "dataset" / "dataset.json").read_text()
    content = json.loads(manifest)
    content["shards"] = [shard for shard in content["shards"] if shard["split"] == "train"]
    for total in ("num_examples", "num_tokens"):
        content[total] = sum(shard[total] for shard in content["shards"])
    (tmp_path / "dataset.json").write_bytes(seal_json(content))
    (tmp_path / "tokenizer.json").write_bytes((made / "dataset" / "tokenizer.json").read_bytes())
    assert _following(str(tmp_path), "run") == (
        "clozeline fill-mask --checkpoint run 'the [MASK] sat on the mat'"
    )
