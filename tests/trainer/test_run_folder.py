from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from schemas.manifests import TokenizerRecord
from schemas.sealing import seal_json
from trainer.config import TrainConfig, TrainPlan
from trainer.model.config import preset_config
from trainer.run_folder import RunFolder, RunRecord, find_run, parse_record


def config(**values: Any) -> TrainConfig:
    return TrainConfig(**{"data": "d", "output": "o", "steps": 10} | values)


def record(**values: Any) -> RunRecord:
    return RunRecord(
        created_by="tests",
        config=config(**values),
        plan=TrainPlan(steps=10, warmup_steps=1, lanes=2, microbatch_size=4),
        model=preset_config("tiny", 30),
        precision="fp32",
        tokenizer=TokenizerRecord(
            sha256="a" * 64, vocab_size=30, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4
        ),
        dataset_fingerprint="b" * 64,
    )


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return RunFolder(str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def test_a_run_is_found_by_the_same_configuration(folder: RunFolder) -> None:
    folder.acquire()
    assert find_run(folder, config(), overwrite=False) is None
    folder.begin(record(), b"tokens")
    assert find_run(folder, config(output="elsewhere"), overwrite=False) == record()
    assert folder.list_names() == ["config.json", "tokenizer.json"]


def test_a_run_of_another_configuration_is_refused_and_named(folder: RunFolder) -> None:
    folder.begin(record(), b"tokens")
    expected = r"holds a run with other values: steps 10 there, 20 now; seed 0 there, 1 now.\n.*--overwrite"
    with pytest.raises(UsageError, match=expected):
        find_run(folder, config(steps=20, seed=1), overwrite=False)


def test_a_longer_run_is_told_to_begin_from_the_weights(folder: RunFolder) -> None:
    folder.begin(record(), b"tokens")
    with pytest.raises(UsageError, match=rf"to train longer .*another --output and `--init {folder.path}`"):
        find_run(folder, config(steps=20), overwrite=False)
    with pytest.raises(UsageError, match=r"now.\nGive another --output, `--resume"):
        find_run(folder, config(seed=1), overwrite=False)


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe"], ids=["good", "torn", "no text"])
def test_overwriting_removes_the_run_and_nothing_else(tmp_path: Path, content: bytes | None) -> None:
    folder = RunFolder(str(tmp_path))
    folder.begin(record(), b"tokens")
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    (tmp_path / "notes.txt").touch()
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    assert find_run(folder, config(steps=20), overwrite=True) is None
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"holds no run of clozeline \(found thesis.tex"):
        find_run(RunFolder(str(tmp_path)), config(), overwrite)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_model_of_hugging_face_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertForPreTraining"], "model_type": "bert"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds a config\.json that is no run's.*\n.*another --output"):
        find_run(RunFolder(str(tmp_path)), config(), overwrite)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "tokenizer.json"]


def test_what_a_killed_beginning_left_is_completed(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    folder.begin(record(), b"tokens")
    (tmp_path / "tokenizer.json").unlink()
    folder.begin(record(seed=5), b"tokens")
    assert folder.read_record() == record()
    assert (tmp_path / "tokenizer.json").read_bytes() == b"tokens"


def test_a_second_trainer_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    first, second = RunFolder(str(tmp_path / "run")), RunFolder(str(tmp_path / "run"))
    first.acquire()
    first.begin(record(), b"tokens")
    with pytest.raises(ClozelineError, match="run is in use by another clozeline process"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    assert (tmp_path / "run" / "config.json").exists()


def test_a_folder_that_was_made_for_nothing_goes_away(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.acquire()
    folder.release()
    assert os.listdir(tmp_path) == []


def test_an_output_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClozelineError, match=rf"{tmp_path}/file/run could not be written: Not a directory"):
        RunFolder(str(tmp_path / "file" / "run")).acquire()
    with pytest.raises(ClozelineError, match=rf"{tmp_path}/file could not be written: File exists"):
        RunFolder(str(tmp_path / "file")).acquire()


def test_an_output_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The superuser, as whom tests may run, is allowed everything: so the system's answer is given here.
    monkeypatch.setattr("trainer.run_folder.os.access", lambda path, mode: False)
    with pytest.raises(ClozelineError, match=r"could not be written: Permission denied.\nGive a folder"):
        RunFolder(str(tmp_path)).acquire()


def test_a_web_address_is_no_output() -> None:
    with pytest.raises(UsageError, match=r"example.org/run can( be read only|'t be opened)"):
        RunFolder("https://example.org/run").acquire()


def test_other_data_and_another_model_are_refused() -> None:
    record().require_same_data("b" * 64, ("d",))
    with pytest.raises(UsageError, match="there is not the data that the run in o began with"):
        record().require_same_data("c" * 64, ("there",))
    record().require_same_model(preset_config("tiny", 30))
    with pytest.raises(UsageError, match="o holds a run of another model: vocab_size 30 there, 31 now"):
        record().require_same_model(preset_config("tiny", 31))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": "clozeline-run"}', b" " * ((1 << 24) + 1)])
def test_a_malformed_record_is_named(content: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"run/config.json is no valid record of a run"):
        parse_record(content, "run/config.json")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 7))
def test_any_flipped_bit_of_the_record_is_found(position: int, bit: int) -> None:
    content = bytearray(record().to_sealed_json())
    assert parse_record(bytes(content), "run/config.json") == record()
    content[position % len(content)] ^= 1 << bit
    with pytest.raises(
        CorruptDataError, match=r"run/config.json (was changed|is no valid record)(.|\n)*--overwrite"
    ):
        parse_record(bytes(content), "run/config.json")


def test_a_person_may_change_the_record_by_leaving_its_checksum_out() -> None:
    fields = json.loads(record().to_sealed_json())
    del fields["checksum"]
    fields["config"]["seed"] = 5
    assert parse_record(json.dumps(fields).encode(), "run/config.json") == record(seed=5)


def test_a_record_of_an_earlier_version_which_knew_fewer_fields_is_still_whole() -> None:
    fields = json.loads(record().to_sealed_json())
    del fields["config"]["skip_nonfinite"]
    assert parse_record(seal_json(fields), "run/config.json") == record()
