import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from schemas.configs import BuildConfig
from schemas.manifests import TokenizerRecord
from trainer.data.dataset import open_dataset
from trainer.data.example_arrays import NO_LABEL, ExampleArrays
from workflows.cli import main
from workflows.verifying import find_broken_rules, verify_dataset

PAD, UNK, CLS, SEP, MASK = range(5)
TOKENIZER = TokenizerRecord(
    sha256="0" * 64, vocab_size=50, pad_id=PAD, unk_id=UNK, cls_id=CLS, sep_id=SEP, mask_id=MASK
)
CONFIG = BuildConfig(max_seq_length=16, masked_lm_prob=0.2)


def _worked_examples() -> ExampleArrays:
    """The worked example of the literature, twice: 12 tokens, A of 6, B of 3, positions 2 and 9 chosen."""
    one = np.array([CLS, 10, MASK, 12, 13, 10, 14, SEP, 15, 16, 17, SEP])
    return ExampleArrays(
        input_ids=np.concatenate([one, one, np.zeros(12, dtype=np.int64)]).astype(np.uint16),
        starts=np.array([0, 12]),
        lengths=np.array([12, 12]),
        segment_a_lengths=np.array([8, 8]),
        masked_starts=np.array([0, 2]),
        masked_counts=np.array([2, 2]),
        masked_lm_positions=np.array([2, 9, 2, 9], dtype=np.uint16),
        masked_lm_ids=np.array([11, 16, 11, 16], dtype=np.uint16),
        labels=np.array([0, 1]),
    )


def _with(field: str, index: int, value: int) -> ExampleArrays:
    examples = _worked_examples()
    values = getattr(examples, field).copy()
    values[index] = value
    return replace(examples, **{field: values})


def test_the_worked_example_breaks_no_rule() -> None:
    assert list(find_broken_rules(_worked_examples(), CONFIG, TOKENIZER)) == []


@pytest.mark.parametrize(
    ("examples", "rule"),
    [
        pytest.param(_with("input_ids", 12, 10), "it doesn't begin with [CLS]", id="no-cls"),
        pytest.param(_with("input_ids", 23, 10), "it doesn't end with [SEP]", id="no-sep"),
        pytest.param(_with("input_ids", 19, 10), "segment A doesn't end with [SEP]", id="no-sep-after-a"),
        pytest.param(_with("segment_a_lengths", 1, 2), "segment A has no token", id="empty-a"),
        pytest.param(_with("segment_a_lengths", 1, 11), "segment B has no token", id="empty-b"),
        pytest.param(_with("labels", 1, NO_LABEL), "it has no label", id="no-label"),
        pytest.param(_with("input_ids", 15, CLS), "it has another [CLS] than the first", id="cls-inside"),
        pytest.param(_with("input_ids", 15, SEP), "it has a [SEP] within a segment", id="sep-inside"),
        pytest.param(_with("input_ids", 15, PAD), "it has padding", id="padding"),
        pytest.param(
            _with("input_ids", 15, MASK), "it has a [MASK] where nothing was chosen", id="extra-mask"
        ),
        pytest.param(
            _with("masked_lm_positions", 2, 0), "[CLS] or the last [SEP] was chosen", id="cls-chosen"
        ),
        pytest.param(
            _with("masked_lm_positions", 3, 7), "the [SEP] after segment A was chosen", id="sep-chosen"
        ),
        pytest.param(
            _with("masked_lm_ids", 3, SEP), "a special token is to be predicted", id="special-label"
        ),
        pytest.param(
            _with("input_ids", 21, CLS), "a special token other than [MASK] was put in", id="special-put-in"
        ),
    ],
)
def test_each_rule_is_found_with_its_example(examples: ExampleArrays, rule: str) -> None:
    assert (rule, 1) in list(find_broken_rules(examples, CONFIG, TOKENIZER))


def test_another_number_of_chosen_tokens() -> None:
    config = BuildConfig(
        max_seq_length=16, masked_lm_prob=0.5
    )  # 5 of 9 maskable tokens, round half to even: 4
    rule = "another number of tokens was chosen than the configuration says"
    assert list(find_broken_rules(_worked_examples(), config, TOKENIZER)) == [(rule, 0)]
    whole_words = BuildConfig(max_seq_length=16, masked_lm_prob=0.5, whole_word_mask=True)
    assert list(find_broken_rules(_worked_examples(), whole_words, TOKENIZER)) == []


def test_one_segment_without_a_label() -> None:
    rules = [
        rule for rule, _ in find_broken_rules(_worked_examples(), BuildConfig(objective="mlm"), TOKENIZER)
    ]
    assert "it has a second segment, which --objective mlm doesn't make" in rules
    assert "it has a label, which --objective mlm doesn't make" in rules


def test_a_dataset_that_was_built_is_sound(made: Path) -> None:
    calls: list[tuple[int, int]] = []
    dataset = open_dataset(str(made / "dataset"))
    outcome = verify_dataset(dataset, lambda done, total: calls.append((done, total)))
    assert outcome.faults == []
    assert outcome.num_examples == dataset.manifest.num_examples
    assert outcome.num_tokens == dataset.manifest.num_tokens
    num_shards = len(dataset.manifest.shards)
    assert calls == [(n, num_shards) for n in range(1, num_shards + 1)]


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "dataset", tmp_path / "dataset"))


def _truncate(folder: Path) -> None:
    shard = next(folder.glob("train-*.tar"))
    shard.write_bytes(shard.read_bytes()[:-1000])


def _flip_a_byte(folder: Path) -> None:
    shard = next(folder.glob("train-*.tar"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))


def _remove_a_shard(folder: Path) -> None:
    next(folder.glob("train-*.tar")).unlink()


def _change_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def _edit_manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        manifest = json.loads((folder / "dataset.json").read_text())
        change(manifest)
        (folder / "dataset.json").write_text(json.dumps(manifest))

    return edit


def _move_labels(manifest: dict[str, Any]) -> None:
    manifest["shards"][0]["num_is_next"] += 1
    manifest["shards"][0]["num_not_next"] -= 1


def _keep_more(manifest: dict[str, Any]) -> None:
    masking = manifest["shards"][0]["masking"]
    masking["num_kept_tokens"] += masking["num_random_tokens"] + 1000


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        pytest.param(_truncate, "is truncated", id="truncated-shard"),
        pytest.param(_flip_a_byte, "train-00000-of-00001.tar", id="one-bit"),
        pytest.param(_remove_a_shard, "is missing", id="missing-shard"),
        pytest.param(_change_the_tokenizer, "is not the tokenizer", id="other-tokenizer"),
        pytest.param(_edit_manifest(_move_labels), "num_is_next is", id="labels-of-the-manifest"),
        pytest.param(_edit_manifest(_keep_more), "stand as they stood", id="masking-of-the-manifest"),
    ],
)
def test_a_fault_is_named_and_the_exit_code_is_1(
    copied: Path, spoil: Callable[[Path], None], found: str
) -> None:
    spoil(copied)
    result = CliRunner().invoke(main, ["verify", str(copied), "--json"])
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    assert summary["ok"] is False
    assert any(found in fault for fault in summary["faults"])
    errors = [line for line in result.stderr.splitlines() if not line.startswith("verify")]
    assert errors[0].startswith("error: ")
    assert len(errors) <= 2


def test_a_sound_dataset_exits_with_0(made: Path) -> None:
    result = CliRunner().invoke(main, ["verify", str(made / "dataset")])
    assert result.exit_code == 0
    assert "faults   none" in result.stdout


def test_verifying_changes_nothing(made: Path) -> None:
    def digest() -> dict[str, str]:
        files = sorted((made / "dataset").rglob("*"))
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}

    before = digest()
    CliRunner().invoke(main, ["verify", str(made / "dataset")])
    assert digest() == before
