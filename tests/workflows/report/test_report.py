import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from schemas.manifests import CorpusManifest, DatasetManifest, parse_manifest
from schemas.sealing import seal_json
from workflows.cli import main
from workflows.report.intervals import wilson_interval

EVIL_ID = '<img src="https://example.org/x.png" onerror="alert(1)">'


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", *arguments])


def _report(folder: Path, output: Path, *more: str) -> tuple[str, dict[str, Any]]:
    result = _run(str(folder), "--output", str(output), "--json", *more)
    assert result.exit_code == 0, result.output
    return output.read_text(encoding="utf-8"), json.loads(result.stdout)


def test_a_dataset(folders: Path, tmp_path: Path, read_page: Callable[[str], Any]) -> None:
    page, summary = _report(folders / "dataset", tmp_path / "report.html")
    read = read_page(page)
    manifest = parse_manifest(DatasetManifest, (folders / "dataset" / "dataset.json").read_bytes(), "")
    assert read.faults == []
    train = manifest.shards_of("train")
    split = read.row("train")
    assert split[0] == f"{sum(shard.num_examples for shard in train):,}"
    num_next = sum(shard.num_is_next for shard in train)
    num_labels = num_next + sum(shard.num_not_next for shard in train)
    low, high = wilson_interval(num_next, num_labels) or (0, 0)
    labels = [row for row in read.rows if row[0] == "IsNext"]
    assert labels[0][1:] == [
        *(f"{num_next:,}", f"{num_next / num_labels:.2%}"),
        f"{low:.2%} to {high:.2%}",
    ]
    chosen = sum(shard.masking.num_chosen_tokens for shard in manifest.shards)
    masked = sum(shard.masking.num_masked_tokens for shard in manifest.shards)
    assert read.row("[MASK], 80% expected")[:2] == [f"{masked:,}", f"{masked / chosen:.2%}"]
    assert sum(tag == "article" for tag, _ in read.tags) == 10
    assert "clozeline build" in read.text
    assert "--max-seq-length 48" in read.text
    assert manifest.created_by in read.text
    assert manifest.corpus_fingerprint in read.text
    assert f"From all {manifest.num_examples:,} examples." in read.text
    assert summary["kind"] == "dataset"
    assert summary["num_examples"] == manifest.num_examples == summary["sample"]["num_examples"]
    assert summary["fill"] == pytest.approx(manifest.num_tokens / manifest.num_examples / 48, abs=1e-6)
    assert summary["lengths"]["examples"]["count"] == manifest.num_examples
    assert summary["report_bytes"] == len(page.encode())


def test_a_corpus(folders: Path, tmp_path: Path, read_page: Callable[[str], Any]) -> None:
    page, summary = _report(folders / "corpus", tmp_path / "report.html", "--examples", "60")
    read = read_page(page)
    manifest = parse_manifest(CorpusManifest, (folders / "corpus" / "corpus.json").read_bytes(), "")
    assert read.faults == []
    assert read.row("missing_text (no text field, or one that is no string)") == ["2", "50.0%", "3.1%"]
    assert read.row("empty (no character but white space)")[0] == "1"
    assert read.row("invalid_json (a line that is no JSON object)")[0] == "1"
    scripts = summary["bytes_by_script"]
    assert {"Latin", "Digits", "Punctuation and symbols"} <= set(scripts)
    assert read.row("Latin")[0] == f"{scripts['Latin']:,}"
    assert summary["num_documents"] == 60
    assert summary["num_rejected"] == 4
    assert summary["lengths"]["sentences"]["count"] == manifest.num_sentences
    assert "clozeline ingest" in read.text
    assert "--validation-fraction 0.2" in read.text
    assert manifest.fingerprint in read.text


def test_an_identifier_of_markup_stays_text(
    folders: Path, tmp_path: Path, read_page: Callable[[str], Any]
) -> None:
    page, _ = _report(folders / "corpus", tmp_path / "report.html", "--examples", "1000")
    read = read_page(page)
    assert EVIL_ID in read.text
    assert read.attributes_of("img") == []
    assert "<img" not in page


def test_a_token_of_markup_stays_text(folders: Path, tmp_path: Path, read_page: Callable[[str], Any]) -> None:
    evil = "<script>alert(1)</script>"
    folder = tmp_path / "dataset"
    shutil.copytree(folders / "dataset", folder)
    content = (folder / "tokenizer.json").read_text(encoding="utf-8")
    tokenizer = json.loads(content)
    vocabulary = tokenizer["model"]["vocab"]
    # "." stands in every example.
    vocabulary[evil] = vocabulary.pop(".")
    changed = json.dumps(tokenizer).encode()
    (folder / "tokenizer.json").write_bytes(changed)
    manifest = (folder / "dataset.json").read_text()
    old, new = (hashlib.sha256(one).hexdigest() for one in (content.encode(), changed))
    assert old in manifest
    (folder / "dataset.json").write_bytes(seal_json(json.loads(manifest.replace(old, new))))
    page, summary = _report(folder, tmp_path / "report.html")
    read = read_page(page)
    assert evil in {token["token"] for token in summary["frequent_tokens"]}
    assert read.text.count(evil) > 5
    assert "<script" not in page
    assert read.faults == []


@pytest.mark.parametrize("name", ["corpus", "dataset"])
def test_the_same_folder_gives_the_same_bytes(folders: Path, tmp_path: Path, name: str) -> None:
    one, _ = _report(folders / name, tmp_path / "1.html", "--sample-tokens", "100")
    other, _ = _report(folders / name, tmp_path / "2.html", "--sample-tokens", "100")
    assert one == other
    assert "From a sample: " in one


def test_a_sample_says_how_much_was_read(
    folders: Path, tmp_path: Path, read_page: Callable[[str], Any]
) -> None:
    page, summary = _report(folders / "dataset", tmp_path / "report.html", "--sample-tokens", "1")
    sample = summary["sample"]
    assert sample["num_blocks"] == 2 < sample["num_blocks_in_all"]
    said = f"{sample['num_examples']} examples in 2 of {sample['num_blocks_in_all']} blocks, out of 2 of 2"
    assert said in read_page(page).text


def test_an_mlm_dataset_has_one_segment_and_no_label(
    folders: Path, tmp_path: Path, read_page: Callable[[str], Any]
) -> None:
    built = CliRunner().invoke(
        main,
        [
            *("build", "--corpus", str(folders / "corpus"), "--output", str(tmp_path / "mlm")),
            *("--objective", "mlm", "--workers", "1", "--whole-word-mask"),
        ],
    )
    assert built.exit_code == 0, built.output
    page, summary = _report(tmp_path / "mlm", tmp_path / "report.html")
    read = read_page(page)
    assert read.faults == []
    assert "no label" in read.text
    assert "Tokens of segment B" not in read.text
    assert "as whole words" in read.text
    assert summary["is_next_share"] is None


def test_no_examples(folders: Path, tmp_path: Path, read_page: Callable[[str], Any]) -> None:
    for name in ("corpus", "dataset"):
        page, _ = _report(folders / name, tmp_path / f"{name}.html", "--examples", "0")
        assert "None were asked for." in read_page(page).text
        assert "<article" not in page


def test_a_summary_for_a_person(folders: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "report.html")
    result = _run(str(folders / "corpus"), "--output", output)
    assert result.exit_code == 0
    assert output in result.stdout
    assert "Next: clozeline build --corpus" in result.stdout
    assert (
        "Next: clozeline verify" in _run(str(folders / "dataset"), "--output", output, "--overwrite").stdout
    )


def test_what_is_there_is_replaced_only_when_asked(folders: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    output.write_text("mine")
    refused = _run(str(folders / "corpus"), "--output", str(output))
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "--overwrite" in refused.stderr
    assert output.read_text() == "mine"
    _report(folders / "corpus", output, "--overwrite")
    assert output.read_text().startswith("<!DOCTYPE html>")
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_failure_leaves_no_file_behind(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "dataset", tmp_path / "dataset")
    (tmp_path / "dataset" / "tokenizer.json").unlink()
    (tmp_path / "out").mkdir()
    result = _run(str(tmp_path / "dataset"), "--output", str(tmp_path / "out" / "report.html"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("output", "message"),
    [("out/", "is a folder"), ("https://example.org/report.html", "can't be written to")],
)
def test_an_output_that_is_no_file(folders: Path, output: str, message: str) -> None:
    result = _run(str(folders / "corpus"), "--output", output)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_existing_folder_is_no_output(folders: Path, tmp_path: Path) -> None:
    result = _run(str(folders / "corpus"), "--output", str(tmp_path), "--overwrite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is a folder" in result.stderr


def test_no_such_folder(tmp_path: Path) -> None:
    result = _run(str(tmp_path / "nothing"), "--output", str(tmp_path / "report.html"))
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 2)


def test_a_dataset_elsewhere(folders: Path, tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in (folders / "dataset").iterdir():
        memory.pipe_file(f"/report-test/{path.name}", path.read_bytes())
    try:
        result = _run("memory://report-test", "--output", "memory://report-out/report.html")
        assert result.exit_code == 0, result.output
        assert memory.cat_file("/report-out/report.html").startswith(b"<!DOCTYPE html>")
    finally:
        memory.rm("/report-test", recursive=True)
        memory.rm("/report-out", recursive=True)


def test_neither_torch_nor_beam_is_loaded(folders: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys\nfrom workflows.cli import main\n"
        f"code = None\ntry:\n    main(['report', {str(folders / 'corpus')!r}, '--output', "
        f"{str(tmp_path / 'report.html')!r}])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('loaded:', sorted({'torch', 'apache_beam'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"
