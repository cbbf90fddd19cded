from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.sealing import seal_json
from workflows.cli import main


def _run(folder: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["verify", str(folder), *more])


def _errors(result: Result) -> list[str]:
    return [line for line in result.stderr.splitlines() if not line.startswith("verify")]


def test_a_sound_dataset_is_described_and_exits_with_0(made: Path) -> None:
    result = _run(made / "dataset")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"  checked +2 shards, [\d,]+ examples, [\d,]+ tokens", lines[0])
    assert re.fullmatch(r"  time +[\d.]+ s, [\d.]+ MB/s", lines[1])
    assert lines[2] == "statistics"
    assert lines[3].split() == ["found", "expected"]
    table = {line[:24].strip(): line for line in lines[4:-2]}
    names = ["chosen", "[MASK]", "random", "kept", "kept, by manifest", "random ids, 16 parts"]
    assert list(table) == [*names, "positions, 8 parts", "is next", "lengths"]
    assert re.search(r"80\.00% +ok +[\d,]+ chosen tokens$", table["[MASK]"])
    assert re.search(
        r"\d to 32 +at most 32 +ok +median \d+, mean [\d.]+, [\d.]+% below half$", table["lengths"]
    )
    assert lines[-2].split() == ["faults", "none"]
    assert lines[-1].startswith("Next: clozeline train --data ")
    assert max(map(len, lines[:-1])) <= 100


def test_the_json_holds_what_the_table_shows(made: Path) -> None:
    summary = json.loads(_run(made / "dataset", "--json").stdout)
    manifest = json.loads((made / "dataset" / "dataset.json").read_text())
    assert (summary["ok"], summary["quick"], summary["kind"], summary["faults"]) == (
        True,
        False,
        "dataset",
        [],
    )
    for name in ("num_examples", "num_tokens"):
        assert summary[name] == manifest[name]
    assert summary["num_bytes"] == sum(shard["size_bytes"] for shard in manifest["shards"])
    statistics = {statistic["name"]: statistic for statistic in summary["statistics"]}
    assert len(statistics) == 8
    assert all(statistic["ok"] for statistic in statistics.values())
    assert statistics["[MASK]"]["expected"] == 0.8
    masked = sum(shard["masking"]["num_masked_tokens"] for shard in manifest["shards"])
    chosen = sum(shard["masking"]["num_chosen_tokens"] for shard in manifest["shards"])
    assert statistics["[MASK]"]["found"] == round(masked / chosen, 6)
    assert statistics["[MASK]"]["num_draws"] == chosen
    assert len(statistics["random ids"]["found"]) == 16
    assert summary["lengths"]["longest"] <= 32


def test_a_corpus_is_checked_too(made: Path) -> None:
    result = _run(made / "corpus")
    assert result.exit_code == 0
    assert re.search(r"checked +2 Parquet files, 60 documents, [\d,]+ tokens\n", result.stdout)
    assert result.stdout.splitlines()[-1].startswith("Next: clozeline build --corpus ")
    summary = json.loads(_run(made / "corpus", "--json").stdout)
    assert (summary["kind"], summary["num_files"], summary["num_documents"]) == ("corpus", 2, 60)


@pytest.mark.parametrize("name", ["corpus", "dataset"])
def test_quick_reads_no_file(made: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.data import opener

    def refuse(*arguments: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(opener.ByteStream, "__init__", refuse)
    result = _run(made / name, "--quick")
    assert result.exit_code == 0
    assert "names and sizes alone" in result.stdout
    assert result.stdout.splitlines()[-1] == f"Next: clozeline verify {made / name}"
    assert json.loads(_run(made / name, "--quick", "--json").stdout)["quick"] is True


@pytest.mark.parametrize("name", ["corpus", "dataset"])
def test_several_processes_on_request(made: Path, name: str) -> None:
    one, two = (json.loads(_run(made / name, "--json", "--workers", n).stdout) for n in ("1", "2"))
    for summary in (one, two):
        del summary["seconds"], summary["megabytes_per_second"]
    assert one == two


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "dataset", tmp_path / "dataset"))


def _truncate(folder: Path) -> None:
    shard = next(folder.glob("train-*.tar"))
    shard.write_bytes(shard.read_bytes()[:-1000])


def _remove_a_shard(folder: Path) -> None:
    next(folder.glob("train-*.tar")).unlink()


def _add_a_shard(folder: Path) -> None:
    shutil.copy(next(folder.glob("train-*.tar")), folder / "train-00005-of-00016.tar")


def _change_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def _edit_manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        manifest = json.loads((folder / "dataset.json").read_text())
        change(manifest)
        (folder / "dataset.json").write_bytes(seal_json(manifest))

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
        pytest.param(_remove_a_shard, "is missing", id="missing-shard"),
        pytest.param(_add_a_shard, "train-00005-of-00016.tar is no file of the manifest's", id="stray-shard"),
        pytest.param(_change_the_tokenizer, "is not the tokenizer", id="other-tokenizer"),
        pytest.param(_edit_manifest(_move_labels), "num_is_next is", id="labels-of-the-manifest"),
        pytest.param(_edit_manifest(_keep_more), "stand as they stood", id="masking-of-the-manifest"),
    ],
)
def test_a_fault_is_named_and_the_exit_code_is_1(
    copied: Path, spoil: Callable[[Path], None], found: str
) -> None:
    spoil(copied)
    result = _run(copied, "--json")
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    assert summary["ok"] is False
    assert any(found in fault for fault in summary["faults"])
    errors = _errors(result)
    assert errors[0].startswith("error: ")
    assert len(errors) <= 2
    for_a_person = _run(copied).stdout
    assert f"{len(summary['faults'])} fault" in for_a_person
    assert f"1.  {summary['faults'][0]}" in for_a_person


@contextmanager
def _flipped(path: Path, place: float, bit: int) -> Iterator[None]:
    content = path.read_bytes()
    changed = bytearray(content)
    changed[int(place * len(content))] ^= 1 << bit
    path.write_bytes(changed)
    try:
        yield
    finally:
        path.write_bytes(content)


@pytest.fixture(scope="module")
def to_flip(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, one of whose documents was rejected, and a dataset; each is as it was after each flip."""
    folder = tmp_path_factory.mktemp("flipped")
    shutil.copytree(made / "dataset", folder / "dataset")
    (folder / "texts.jsonl").write_text((made / "texts.jsonl").read_text() + '{"text": ""}\n')
    arguments = ["--input", str(folder / "texts.jsonl"), "--tokenizer", str(made / "tokenizer")]
    arguments += ["--output", str(folder / "corpus"), "--validation-fraction", "0.2", "--workers", "1"]
    done = CliRunner().invoke(main, ["ingest", *arguments])
    assert done.exit_code == 0, done.output
    assert len(list((folder / "corpus" / "rejects").iterdir())) == 1
    return folder


@pytest.mark.parametrize("name", ["corpus", "dataset"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_anywhere_is_found(to_flip: Path, name: str, data: st.DataObject) -> None:
    files = sorted(path for path in (to_flip / name).rglob("*") if path.is_file())
    assert len(files) == {"corpus": 5, "dataset": 4}[name]
    file = data.draw(st.sampled_from(files))
    place = data.draw(st.floats(0, 1, exclude_max=True), label="place in the file")
    with _flipped(file, place, data.draw(st.integers(0, 7))):
        result = _run(to_flip / name, "--json")
    assert result.exit_code == 1
    assert file.name in "".join(_errors(result))


@pytest.mark.parametrize("place", [0.0, 0.5, 0.99999])
def test_the_padding_of_a_shard_is_no_exception(to_flip: Path, place: float) -> None:
    shard = next((to_flip / "dataset").glob("validation-*.tar"))
    assert shard.read_bytes().endswith(bytes(1024))
    with _flipped(shard, place, 0):
        assert _run(to_flip / "dataset").exit_code == 1
    assert _run(to_flip / "dataset").exit_code == 0


@pytest.mark.parametrize(("name", "said"), [("run", "is a training run"), ("nothing", "does not exist")])
def test_a_folder_that_is_neither(made: Path, name: str, said: str) -> None:
    result = _run(made / name)
    assert result.exit_code == 2
    assert f"{made / name} {said}" in result.stderr
    assert "Give the folder that `clozeline ingest`" in result.stderr
    assert result.stdout == ""


def test_verifying_changes_nothing(made: Path) -> None:
    def digest() -> dict[str, str]:
        files = sorted(path for name in ("corpus", "dataset") for path in (made / name).rglob("*"))
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}

    before = digest()
    for name in ("corpus", "dataset"):
        _run(made / name)
        _run(made / name, "--quick")
    assert digest() == before
