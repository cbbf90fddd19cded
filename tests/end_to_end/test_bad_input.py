"""What goes wrong ends in one or two lines, the right exit code, and nothing half-written."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]


def _assert_fails(result: Result, code: int, *said: str, silent: bool = True) -> None:
    """The exit code, one or two lines of error (after lines of progress), and nothing on standard output.

    `verify` alone is not silent there: its summary lists the faults.
    """
    assert result.exit_code == code, result.output
    assert result.stdout == "" or not silent
    lines = result.stderr.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("error: "))
    assert 1 <= len(lines) - start <= 2, result.stderr
    assert "Traceback" not in result.stderr
    for text in said:
        assert text in result.stderr, result.stderr


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def vocabulary_without_mask(made: Path, tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    tokens = (made / "tokenizer" / "vocab.txt").read_text().splitlines()
    path.write_text("\n".join(token for token in tokens if token != "[MASK]") + "\n")
    return path


@pytest.mark.parametrize("command", ["vocab", "ingest"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("nothing.txt", "nothing.txt", id="no-such-file"),
        pytest.param("*.jsonl", "*.jsonl", id="glob-without-a-match"),
        pytest.param("", "/*", id="a-folder"),
        pytest.param("odd.xyz", "--format", id="unknown-format"),
    ],
)
def test_inputs(command: str, name: str, said: str, made: Path, tmp_path: Path, invoke: Invoke) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "odd.xyz").write_text("text")
    tokenizer = ("--tokenizer", str(made / "tokenizer")) if command == "ingest" else ()
    output = tmp_path / "out"
    result = invoke(command, "--input", str(texts / name).rstrip("/"), *tokenizer, "--output", str(output))
    _assert_fails(result, 2, said)
    assert not output.exists()


def test_a_tokenizer_that_is_not_there(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    source = ("--input", str(made / "my.txt"), "--output", str(tmp_path / "out"))
    _assert_fails(invoke("ingest", *source, "--tokenizer", str(tmp_path / "none.json")), 2, "none.json")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_vocabulary(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "empty").mkdir()
    source = ("--input", str(made / "my.txt"), "--output", str(tmp_path / "out"))
    _assert_fails(invoke("ingest", *source, "--tokenizer", str(tmp_path / "empty")), 2, "empty")
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_without_mask(
    vocabulary_without_mask: Path, made: Path, tmp_path: Path, invoke: Invoke
) -> None:
    source = ("--input", str(made / "my.txt"), "--output", str(tmp_path / "out"))
    _assert_fails(invoke("ingest", *source, "--tokenizer", str(vocabulary_without_mask)), 2, "[MASK]")
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_is_none(tmp_path: Path, invoke: Invoke) -> None:
    output = tmp_path / "out"
    result = invoke("build", "--corpus", str(tmp_path / "nothing"), "--output", str(output))
    _assert_fails(result, 2, "nothing")
    assert not output.exists()


def test_a_corpus_made_with_another_tokenizer(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    other = tmp_path / "tokenizer"
    source = ("--input", str(made / "my.txt"), "--format", "text-sentences")
    assert invoke("vocab", *source, "--output", str(other), "--vocab-size", "80").exit_code == 0
    corpus = shutil.copytree(made / "corpus", tmp_path / "corpus")
    # Another tokenizer for the corpus that is there, and a corpus whose own tokenizer was exchanged.
    ingest = ("ingest", *source, "--tokenizer", str(other), "--output", str(corpus))
    before = (corpus / "corpus.json").read_bytes()
    result = invoke(*ingest, "--segmenter", "newline", "--validation-fraction", "0.2")
    _assert_fails(result, 2, "tokenizer", "--overwrite")
    assert (corpus / "corpus.json").read_bytes() == before
    shutil.copy(other / "tokenizer.json", corpus / "tokenizer.json")
    result = invoke("build", "--corpus", str(corpus), "--output", str(tmp_path / "out"))
    _assert_fails(result, 1, "tokenizer")
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_dataset_of_another_tokenizer(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    source = ("--input", str(made / "my.txt"), "--format", "text-sentences", "--workers", "1")
    names = {name: str(tmp_path / name) for name in ("tokenizer", "corpus", "dataset")}
    invoke("vocab", *source, "--output", names["tokenizer"], "--vocab-size", "80")
    ingest = ("ingest", *source, "--tokenizer", names["tokenizer"], "--output", names["corpus"])
    assert invoke(*ingest, "--validation-fraction", "0.2").exit_code == 0
    build = invoke("build", "--corpus", names["corpus"], "--output", names["dataset"], "--workers", "1")
    assert build.exit_code == 0, build.output
    result = invoke("evaluate", "--data", names["dataset"], "--checkpoint", str(made / "run"))
    _assert_fails(result, 2, "another tokenizer")


def test_a_truncated_corpus_file(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    corpus = shutil.copytree(made / "corpus", tmp_path / "corpus")
    victim = next((corpus / "train").glob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-100])
    result = invoke("build", "--corpus", str(corpus), "--output", str(tmp_path / "out"), "--workers", "1")
    _assert_fails(result, 1, victim.name)
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize("command", ["train", "evaluate", "verify"])
def test_a_truncated_shard(command: str, made: Path, tmp_path: Path, invoke: Invoke) -> None:
    dataset = shutil.copytree(made / "dataset", tmp_path / "dataset")
    for shard in dataset.glob("*.tar"):
        shard.write_bytes(shard.read_bytes()[:-512])
    arguments: Sequence[str] = {
        "train": (
            "--data",
            str(dataset),
            "--output",
            str(tmp_path / "run"),
            "--model",
            "tiny",
            "--steps",
            "2",
            "--batch-size",
            "4",
        ),
        "evaluate": ("--data", str(dataset), "--checkpoint", str(made / "run")),
        "verify": (str(dataset),),
    }[command]
    result = invoke(command, *arguments)
    name = "validation-00000-of-00001.tar" if command == "evaluate" else "train-00000-of-00001.tar"
    _assert_fails(result, 1, f"{name} is truncated", silent=command != "verify")
    # What `train` leaves is whole: with the shard put back, the same command goes on to the end.
    assert not list((tmp_path / "run").glob("checkpoints/*"))
    assert not [name for name in _files(tmp_path) if ".writing-" in name]
    for shard in dataset.glob("*.tar"):
        shutil.copy(made / "dataset" / shard.name, shard)
    assert invoke(command, *arguments).exit_code == 0


@pytest.mark.parametrize("command", ["vocab", "ingest", "build", "train", "quickstart"])
def test_an_output_that_cannot_be_written(command: str, made: Path, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "file").write_text("a file, below which no folder can be")
    output = str(tmp_path / "file" / "out")
    source = ("--input", str(made / "my.txt"), "--format", "text-sentences")
    arguments: Sequence[str] = {
        "vocab": source,
        "ingest": (*source, "--tokenizer", str(made / "tokenizer")),
        "build": ("--corpus", str(made / "corpus")),
        "train": ("--data", str(made / "dataset"), "--model", "tiny", "--steps", "2"),
        "quickstart": (),
    }[command]
    _assert_fails(invoke(command, *arguments, "--output", output), 1, str(tmp_path / "file"))
    assert _files(tmp_path) == ["file"]


@pytest.mark.parametrize("command", ["vocab", "ingest", "build", "train"])
def test_a_full_disk(
    command: str, made: Path, clozeline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A limit on the size of a file stands for a full disk: the kernel refuses the write in the same way."""
    output = tmp_path / "out"
    source = ("--input", str(made / "my.txt"), "--format", "text-sentences")
    arguments: Sequence[str] = {
        "vocab": (*source, "--vocab-size", "120"),
        "ingest": (*source, "--tokenizer", str(made / "tokenizer")),
        "build": ("--corpus", str(made / "corpus"), "--max-seq-length", "32"),
        "train": (
            *("--data", str(made / "dataset"), "--model", "tiny", "--steps", "2", "--batch-size", "4"),
            *("--device", "cpu"),
        ),
    }[command]
    arguments = (*arguments, *(() if command == "train" else ("--workers", "1")))
    # The weights of a checkpoint are the first file of `train` that doesn't fit.
    limit = 100_000 if command == "train" else 2_000
    limited = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "from workflows.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, command, *arguments, "--output", str(output)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    error = done.stderr[done.stderr.index("error: ") :]
    assert len(error.splitlines()) <= 2
    assert re.search("too large|space", error), error
    committed = {
        "vocab": "tokenizer.json",
        "ingest": "corpus.json",
        "build": "dataset.json",
        "train": "checkpoints/step-00000002",
    }[command]
    assert not (output / committed).exists()
    assert not [name for name in _files(output) if name.endswith(".tmp") or ".writing-" in name]

    # Once there is room again, the same command goes on to the end.
    again = clozeline(command, *arguments, "--output", str(output), "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["output"] == str(output)
    assert (output / committed).exists()


def test_one_document_has_no_next_sentence(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "one.txt").write_text("The cat sat on the mat. It purred softly. Then it slept.")
    corpus = str(tmp_path / "corpus")
    ingest = ("ingest", "--input", str(tmp_path / "one.txt"), "--tokenizer", str(made / "tokenizer"))
    result = invoke(*ingest, "--output", corpus, "--validation-fraction", "0", "--workers", "1")
    assert result.exit_code == 0, result.output
    result = invoke("build", "--corpus", corpus, "--output", str(tmp_path / "out"), "--workers", "1")
    _assert_fails(result, 1, "the corpus has one document in `train`", "--objective mlm")
    assert not (tmp_path / "out").exists()
    result = invoke(
        *("build", "--corpus", corpus, "--output", str(tmp_path / "mlm"), "--workers", "1"),
        *("--objective", "mlm", "--json"),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["is_next_share"] is None


def test_rejected_documents_are_counted_by_reason(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    text = tmp_path / "mixed.jsonl"
    lines = [
        b'{"text": "a cat sat."}',
        b'{"text": ""}',
        b'{"text": 3}',
        b"{",
        b'{"text": "\xff"}',
        b'{"text": "it sang."}',
    ]
    text.write_bytes(b"\n".join(lines) + b"\n")
    ingest = ("ingest", "--input", str(text), "--tokenizer", str(made / "tokenizer"), "--workers", "1")
    result = invoke(*ingest, "--output", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["num_documents_read"] == 6
    assert summary["num_documents"] == 2
    assert {reason: n for reason, n in summary["rejected"].items() if n} == {
        "empty": 1,
        "missing_text": 1,
        "invalid_json": 1,
        "invalid_utf8": 1,
    }
    human = invoke(*ingest, "--output", str(tmp_path / "out"))
    assert "6 read, 2 kept, 4 rejected" in human.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "--corpus", "c", "--output", "o", "--max-seq-length", "4"), "--max-seq-length"),
        (("build", "--corpus", "c", "--output", "o", "--masked-lm-prob", "1.5"), "--masked-lm-prob"),
        (("build", "--corpus", "c", "--output", "o", "--seed", "-1"), "--seed"),
        (("ingest", "--input", "x", "--output", "o"), "--tokenizer"),
        (("ingest", "--input", "x", "--tokenizer", "t", "--output", "o", "--workers", "0"), "--workers"),
        (("train", "--data", "d", "--output", "o"), "--steps"),
        (("train", "--data", "d", "--output", "o", "--steps", "0"), "--steps"),
        (("train", "--output", "o", "--steps", "1"), "--data"),
        (("train", "--resume", "r", "--steps", "5"), "--steps"),
        (("train", "--resume", "nowhere"), "nowhere"),
        (("evaluate", "--data", "nowhere", "--checkpoint", "c"), "nowhere"),
        (("fill-mask", "--checkpoint", "nowhere", "a [MASK]"), "nowhere"),
        (("verify", "nowhere"), "nowhere"),
        (("quickstart", "--output", "gs://bucket/q"), "gs://bucket/q"),
        (("quickstart", "--minutes", "0"), "--minutes"),
        (("prepare", "--output", "o"), "--input"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line_exits_with_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _assert_fails(invoke(*arguments), 2, said)
    assert _files(tmp_path) == []


def test_a_prompt_without_a_mask(made: Path, invoke: Invoke) -> None:
    _assert_fails(invoke("fill-mask", "--checkpoint", str(made / "run"), "no gap here"), 2, "[MASK]")


@pytest.mark.parametrize("name", ["corpus", "dataset", "tokenizer", "run"])
def test_another_configuration_never_overwrites(name: str, made: Path, invoke: Invoke) -> None:
    source = ("--input", str(made / "my.txt"), "--format", "text-sentences")
    arguments: Sequence[str] = {
        "tokenizer": ("vocab", *source, "--vocab-size", "90"),
        "corpus": ("ingest", *source, "--tokenizer", str(made / "tokenizer")),
        "dataset": ("build", "--corpus", str(made / "corpus"), "--max-seq-length", "64"),
        "run": ("train", "--data", str(made / "dataset"), "--model", "tiny", "--steps", "5"),
    }[name]
    before = {path: path.read_bytes() for path in (made / name).rglob("*") if path.is_file()}
    result = invoke(*arguments, "--output", str(made / name))
    _assert_fails(result, 2, "--overwrite")
    assert {path: path.read_bytes() for path in (made / name).rglob("*") if path.is_file()} == before
