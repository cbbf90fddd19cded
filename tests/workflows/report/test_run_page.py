from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workflows.cli import main

EVIL_ID = '<img src="https://example.org/x.png" onerror="alert(1)">'


@pytest.fixture
def report(tmp_path: Path, read_page: Callable[[str], Any]) -> Callable[[Path], tuple[Any, dict[str, Any]]]:
    """A run folder -> its page as read, and the summary of `--json`."""

    def make(folder: Path) -> tuple[Any, dict[str, Any]]:
        output = tmp_path / "page.html"
        result = CliRunner().invoke(main, ["report", str(folder), "--output", str(output), "--json"])
        assert result.exit_code == 0, result.output
        read = read_page(output.read_text(encoding="utf-8"))
        assert read.faults == []
        return read, json.loads(result.stdout)

    return make


Report = Callable[[Path], tuple[Any, dict[str, Any]]]


@pytest.fixture
def run(folders: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be changed."""
    shutil.copytree(folders / "run", tmp_path / "run")
    return tmp_path / "run"


def _change_record(run: Path, **changes: Any) -> None:
    record = json.loads((run / "config.json").read_text())
    for name, value in changes.items():
        record[name] = {**record[name], **value} if isinstance(value, dict) else value
    (run / "config.json").write_text(json.dumps(record))


def test_a_run_that_goes_on(folders: Path, report: Report) -> None:
    read, summary = report(folders / "run")
    for text in ("3,000of 5,000, 60%", "clozeline train --resume", "Goes on from the newest checkpoint"):
        assert text in read.text, text
    assert read.row("2000") == ["checkpoints/step-00002000"]
    captions = [
        *("Masked-LM loss", "Next-sentence loss", "Loss, both together", "Masked-LM accuracy"),
        *("Next-sentence accuracy", "Tokens a second, padding not counted"),
        *("Waiting for data, share of the time", "Memory held at most, GB", "Learning rate"),
        "Norm of the gradient, before clipping",
    ]
    labels = [a["aria-label"] or "" for a in read.attributes_of("svg") if a.get("role") == "img"]
    assert [label.removeprefix("Curves. ").split(". ")[0].rstrip(". ") for label in labels] == captions
    assert (summary["kind"], summary["step"], summary["num_steps"], summary["is_finished"]) == (
        *("run", 3000, 5000),
        False,
    )
    assert summary["last_metrics"]["masked_lm_loss"] == pytest.approx(1 + 5 * math.exp(-3000 / 900))
    assert summary["last_evaluation"]["step"] == 3000


def test_a_long_curve_is_thinned_and_a_loss_that_is_not_finite_is_said(folders: Path, report: Report) -> None:
    read, summary = report(folders / "run")
    corners = [path["d"].count("L") + 1 for path in read.attributes_of("path")]
    assert max(corners) <= 1000
    assert sum(corners) > 5000
    assert "No finite loss in the line of 1,500." in read.text
    assert "1 step was left out" in read.text
    assert summary["steps_without_loss"] == [1500]


def test_held_out_figures_stand_beside_what_to_expect(folders: Path, report: Report) -> None:
    read, summary = report(folders / "run")
    loss = 1.1 + 5 * math.exp(-3000 / 900)
    (row,) = [row for row in read.rows if row[0] == "3,000" and len(row) == 6]
    assert row[1:4] == [f"{loss:.3f}", f"{math.exp(loss):.4g}", f"{0.45 - 0.45 * math.exp(-3000 / 900):.1%}"]
    assert read.row("published, BERT-base: 12 layers of 768, 12 heads, as this run") == [
        *(f"{math.log(3.99):.3f}", "3.99", "not given"),
    ]
    assert read.row("knowing nothing: all 130 tokens alike")[:2] == [f"{math.log(130):.3f}", "130"]
    baseline = summary["baseline"]
    assert f"{baseline['accuracy']:.1%}" in read.text
    assert f'always guessing "{baseline["token"]}": {baseline["accuracy"]:.1%}' in read.text
    # Evaluations at 0, 500, … 3000 on each of four charts.
    assert len(read.attributes_of("circle")) == 4 * 7


def test_data_configuration_and_versions(folders: Path, report: Report) -> None:
    read, _ = report(folders / "run")
    manifest = json.loads((folders / "dataset" / "dataset.json").read_text())
    assert read.row(str(folders / "dataset")) == [
        *("next-sentence", f"{manifest['num_examples']:,}", f"{manifest['num_tokens']:,}", "48")
    ]
    for text in ("--batch-size 8", "clozeline 0", "max_grad_norm", "warmup_steps", "intermediate_size"):
        assert text in read.text, text


def test_a_path_of_markup_stays_text(folders: Path, report: Report) -> None:
    read, _ = report(folders / "run")
    assert EVIL_ID in read.text
    assert read.attributes_of("img") == []


@pytest.mark.parametrize("content", [None, b"", b'{"step": 5'], ids=["no file", "empty", "torn"])
def test_a_run_without_metrics_yet(run: Path, report: Report, content: bytes | None) -> None:
    (run / "metrics.jsonl").unlink()
    shutil.rmtree(run / "checkpoints")
    if content is not None:
        (run / "metrics.jsonl").write_bytes(content)
    read, summary = report(run)
    assert "No step has been reported yet." in read.text
    assert "Begins again" in read.text
    assert read.attributes_of("svg") == []
    assert (summary["step"], summary["last_metrics"], summary["last_evaluation"]) == (0, {}, None)


def test_a_run_evaluated_once_before_its_first_step(run: Path, report: Report) -> None:
    (run / "metrics.jsonl").write_text('{"step": 0, "validation_masked_lm_loss": 4.87}\n')
    read, _ = report(run)
    assert "No step has been reported yet." in read.text
    assert read.row("0")[0] == "4.870"


def test_a_run_that_diverged(run: Path, report: Report) -> None:
    lines = [{"step": step, "loss": None, "masked_lm_loss": None} for step in range(1, 40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read, summary = report(run)
    assert "No finite loss in the lines of 1, 2, 3" in read.text
    assert "and 19 more." in read.text
    assert len(summary["steps_without_loss"]) == 39


def test_a_run_without_evaluations_says_how_to_make_one(run: Path, report: Report) -> None:
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0, "masked_lm_loss": 800.0}\n')
    read, _ = report(run)
    assert "clozeline evaluate --data" in read.text
    assert "not measured" in read.text
    # exp(800) is beyond any float.
    assert "perplexity huge" in read.text


def test_a_finished_run(run: Path, tmp_path: Path) -> None:
    _change_record(run, plan={"steps": 3000})
    result = CliRunner().invoke(main, ["report", str(run), "--output", str(tmp_path / "page.html")])
    assert result.exit_code == 0
    assert "Next: clozeline fill-mask --checkpoint" in result.stdout
    assert "The run is done" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("how", ["gone", "changed", "no block"])
def test_data_that_is_not_there_any_more(run: Path, folders: Path, report: Report, how: str) -> None:
    if how == "gone":
        _change_record(run, config={"data": ["/nowhere/dataset"]})
    elif how == "changed":
        _change_record(run, dataset_fingerprint="0" * 64)
    else:
        dataset = run.parent / "dataset"
        shutil.copytree(folders / "dataset", dataset)
        for shard in dataset.glob("*.tar"):
            shard.unlink()
        _change_record(run, config={"data": [str(dataset)]})
    read, summary = report(run)
    assert summary["baseline"] is None
    assert ("not found here, or changed since" in read.text) == (how != "no block")
    assert "knowing nothing" in read.text


def test_neither_torch_nor_beam_is_loaded(folders: Path, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom workflows.cli import main\n"
        f"try:\n    main(['report', {str(folders / 'run')!r}, '--output', {str(tmp_path / 'r.html')!r}])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print('loaded:', sorted({'torch', 'apache_beam'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_a_run_that_was_really_trained_finds_its_data(made: Path, report: Report) -> None:
    read, summary = report(made / "run")
    assert (summary["step"], summary["is_finished"], summary["checkpoints"]) == (
        *(3, True),
        ["checkpoints/step-00000003"],
    )
    assert summary["baseline"]["split"] == "validation"
    assert summary["last_metrics"]["masked_lm_loss"] > 0
    assert "not found here" not in read.text
    assert "--steps 3" in read.text
