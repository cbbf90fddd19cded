from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from schemas.manifests import TokenizerRecord
from trainer import tensor_files
from trainer.checkpoints import (
    CheckpointRecord,
    list_checkpoints,
    load_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import name_state
from trainer.optimisation import build_optimizer
from trainer.output_folder import OutputFolder

CONFIG = ModelConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
TOKENIZER = TokenizerRecord(sha256="a" * 64, vocab_size=30, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
REPOSITORY = Path(__file__).parents[2]


def make_parts(seed: int = 0, num_updates: int = 2) -> tuple[BertForPretraining, torch.optim.Optimizer]:
    """A model after some updates by random gradients."""
    model = BertForPretraining(CONFIG, seed=seed)
    optimiser = build_optimizer(model, learning_rate=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_updates):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimiser.step()
    return model, optimiser


def record(step: int) -> CheckpointRecord:
    return CheckpointRecord(
        created_by="tests",
        step=step,
        model=CONFIG,
        tokenizer=TOKENIZER,
        max_seq_length=32,
        progress={"loss": 0.1 + 0.2, "stream": {"0": [1, 2, 3]}},
    )


def save(run: OutputFolder, step: int, keep: int = 3, seed: int = 0) -> str:
    return save_checkpoint(run, record(step), name_state(*make_parts(seed)), b'{"tokens": 1}', keep)


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> OutputFolder:
    return OutputFolder(str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def test_weights_optimiser_and_progress_come_back_to_the_last_bit(run: OutputFolder) -> None:
    model, optimiser = make_parts()
    name = save(run, 7)
    assert name == "checkpoints/step-00000007"
    other, other_optimiser = make_parts(seed=1, num_updates=5)
    found = restore_checkpoint(run, name, other, other_optimiser)
    assert (found.step, found.progress) == (7, {"loss": 0.1 + 0.2, "stream": {"0": [1, 2, 3]}})
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        ours_state, theirs_state = optimiser.state[ours], other_optimiser.state[theirs]
        assert ours_state.keys() == theirs_state.keys()
        assert all(torch.equal(ours_state[key], theirs_state[key]) for key in ours_state)


def test_the_next_update_is_the_one_that_would_have_come(run: OutputFolder) -> None:
    model, optimiser = make_parts()
    name = save(run, 1)
    other, other_optimiser = make_parts(seed=1, num_updates=0)
    restore_checkpoint(run, name, other, other_optimiser)
    for parts in ((model, optimiser), (other, other_optimiser)):
        for parameter in parts[0].parameters():
            parameter.grad = torch.ones_like(parameter)
        parts[1].step()
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for folder in ("a", "b"):
        name = save(OutputFolder(str(tmp_path / folder)), 1)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / folder / name).iterdir()})
    assert contents[0] == contents[1]
    assert sorted(contents[0]) == [
        "checkpoint.json",
        "model.safetensors",
        "optimiser.safetensors",
        "tokenizer.json",
    ]


def test_the_newest_are_kept(run: OutputFolder) -> None:
    for step in (5, 10, 99_999_999, 100_000_000):
        save(run, step, keep=2)
    assert list_checkpoints(run) == ["checkpoints/step-99999999", "checkpoints/step-100000000"]
    assert run.list_names("checkpoints") == ["step-100000000", "step-99999999"]


def test_a_run_gives_its_newest_checkpoint_and_a_checkpoint_itself(run: OutputFolder) -> None:
    save(run, 1, seed=1)
    save(run, 2, seed=2)
    newest, first = load_checkpoint(run.path), load_checkpoint(run.locate("checkpoints/step-00000001"))
    assert (newest.step, first.step) == (2, 1)
    assert newest.path == run.locate("checkpoints/step-00000002")
    assert newest.tokenizer_path == run.locate("checkpoints/step-00000002/tokenizer.json")
    assert (newest.tokenizer, newest.tokenizer_json) == (TOKENIZER, '{"tokens": 1}')
    assert (newest.model_config, newest.max_seq_length) == (CONFIG, 32)
    assert not newest.model.training
    for loaded, seed in ((newest, 2), (first, 1)):
        expected, _ = make_parts(seed)
        for ours, theirs in zip(expected.parameters(), loaded.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_a_folder_without_its_record_is_no_checkpoint(tmp_path: Path) -> None:
    run = OutputFolder(str(tmp_path))
    save(run, 1)
    (tmp_path / save(run, 2) / "checkpoint.json").unlink()
    assert list_checkpoints(run) == ["checkpoints/step-00000001"]
    assert load_checkpoint(str(tmp_path)).step == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("file", ["model.safetensors", "optimiser.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, r"has \d+ bytes where \d+ were written"),
        (change, "has the right size but other content"),
        (Path.unlink, "is missing"),
    ],
    ids=["truncated", "changed", "missing"],
)
def test_a_damaged_file_is_named_and_the_way_out_too(
    tmp_path: Path, file: str, damage: Any, words: str
) -> None:
    run = OutputFolder(str(tmp_path))
    save(run, 1)
    name = save(run, 2)
    damage(tmp_path / name / file)
    expected = rf"{tmp_path}/{name}/{file} {words}.*\nRemove {tmp_path}/{name} to go on from step-00000001"
    if file != "tokenizer.json":
        with pytest.raises(CorruptDataError, match=expected):
            restore_checkpoint(run, name, *make_parts())
    if file != "optimiser.safetensors":
        with pytest.raises(CorruptDataError, match=expected):
            load_checkpoint(str(tmp_path))


FILES = ("checkpoint.json", "model.safetensors", "optimiser.safetensors", "tokenizer.json")


@pytest.fixture(scope="module")
def whole_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two checkpoints. Whatever is done to it is undone."""
    folder = tmp_path_factory.mktemp("run")
    for step in (1, 2):
        save(OutputFolder(str(folder)), step)
    return folder


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), st.integers(0, 1 << 30), st.integers(0, 7))
def test_any_flipped_bit_is_found_and_its_file_named(
    whole_checkpoints: Path, file: str, position: int, bit: int
) -> None:
    newest = whole_checkpoints / "checkpoints" / "step-00000002"
    before = (newest / file).read_bytes()
    content = bytearray(before)
    content[position % len(content)] ^= 1 << bit
    (newest / file).write_bytes(bytes(content))

    def read_all() -> None:
        run = OutputFolder(str(whole_checkpoints))
        restore_checkpoint(run, "checkpoints/step-00000002", *make_parts())
        load_checkpoint(str(whole_checkpoints))  # reads the tokenizer too

    try:
        with pytest.raises(CorruptDataError) as caught:
            read_all()
    finally:
        (newest / file).write_bytes(before)
    found, remedy = str(caught.value).splitlines()
    assert found.startswith(f"{newest}/{file} ")
    assert remedy == f"Remove {newest} to go on from step-00000001."


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"format": "clozeline-checkpoint", "version": 2}', b"\xff"]
)
def test_a_malformed_record_is_named(tmp_path: Path, content: bytes) -> None:
    name = save(OutputFolder(str(tmp_path)), 1)
    (tmp_path / name / "checkpoint.json").write_bytes(content)
    with pytest.raises(CorruptDataError, match=rf"{name}/checkpoint.json is no valid checkpoint record"):
        load_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("before", "after"),
    [(b'"step": 2,', b'"step": 3,'), (b"0.30000000000000004", b"0.3000000000000001"), (b"tests", b"testz")],
    ids=["step", "a bit of a sum", "text"],
)
def test_a_changed_record_is_named(tmp_path: Path, before: bytes, after: bytes) -> None:
    run = OutputFolder(str(tmp_path))
    save(run, 1)
    name = save(run, 2)
    path = tmp_path / name / "checkpoint.json"
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    expected = rf"{path} was changed .*\nRemove {tmp_path}/{name} to go on from step-00000001"
    with pytest.raises(CorruptDataError, match=expected):
        restore_checkpoint(run, name, *make_parts())
    with pytest.raises(CorruptDataError, match=expected):
        load_checkpoint(str(tmp_path))


def test_a_record_of_another_model_is_refused(tmp_path: Path) -> None:
    name = save(OutputFolder(str(tmp_path)), 1)
    path = tmp_path / name / "checkpoint.json"
    found = json.loads(path.read_bytes())
    found["model"]["num_hidden_layers"] = 2
    del found["checksum"]  # as a person does who means the change
    path.write_text(json.dumps(found))
    with pytest.raises(
        CorruptDataError, match=r"model.safetensors is of another model: it differs in 16 weights"
    ):
        load_checkpoint(str(tmp_path))


@pytest.mark.parametrize("full_at", [1, 500, 5000])
def test_a_full_disk_leaves_no_half_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    run = OutputFolder(str(tmp_path))
    save(run, 1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    written = 0

    class FullFile:
        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, content: Any) -> int:
            nonlocal written
            written += len(content)
            if written > full_at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(self._file.write(content))

    def write_to_full_disk(file: Any, tensors: Any) -> None:
        tensor_files.write_tensors(FullFile(file), tensors)  # type: ignore[arg-type]

    monkeypatch.setattr("trainer.checkpoints.write_tensors", write_to_full_disk)
    with pytest.raises(ClozelineError, match=r"step-00000002 could not be written: No space left on device"):
        save(run, 2)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000001"]


@pytest.mark.parametrize("kind", ["nothing", "empty folder", "run without checkpoints"])
def test_no_checkpoint_is_said_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run"
    if kind != "nothing":
        path.mkdir()
    if kind == "run without checkpoints":
        (path / "checkpoints").mkdir()
    with pytest.raises(UsageError, match="no such run" if kind == "nothing" else "holds no checkpoint"):
        load_checkpoint(str(path))


def test_a_checkpoint_may_be_copied_elsewhere(tmp_path: Path) -> None:
    name = save(OutputFolder(str(tmp_path / "run")), 3)
    shutil.copytree(tmp_path / "run" / name, tmp_path / "copy")
    assert load_checkpoint(str(tmp_path / "copy")).step == 3


def test_nothing_in_the_trainer_pickles() -> None:
    forbidden = {
        *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "torch.load", "torch.save", "np.load"),
        *("dist.all_gather_object", "dist.broadcast_object_list", "dist.gather_object"),
    }
    found = []
    for path in sorted((REPOSITORY / "trainer").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Attribute):
                names = [ast.unparse(node)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            found += [(path.name, node.lineno, name) for name in names if name in forbidden]
    assert found == []
