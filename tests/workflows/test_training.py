from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.sealing import seal_json
from workflows.cli import main
from workflows.training import describe_metrics


def test_data_that_is_longer_than_the_model_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "dataset", tmp_path / "longer")
    manifest = json.loads((made / "dataset" / "dataset.json").read_text())
    manifest["config"]["max_seq_length"] = 600
    (tmp_path / "longer" / "dataset.json").write_bytes(seal_json(manifest))
    result = CliRunner().invoke(
        main, ["evaluate", "--data", str(tmp_path / "longer"), "--checkpoint", str(made / "run")]
    )
    assert result.exit_code == 2
    assert "has sequences of up to 600 tokens, but" in result.stderr
    assert "has 512 positions.\nBuild the corpus again with --max-seq-length 512 or less." in result.stderr


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "loss 3.142, MLM 35%, NSP 81%, 12,346 tokens/s"),
        ({"next_sentence_accuracy": None}, "loss 3.142, MLM 35%, 12,346 tokens/s"),
        (
            {
                "loss": None,
                "masked_lm_accuracy": None,
                "next_sentence_accuracy": None,
                "num_skipped_steps": 2,
            },
            "12,346 tokens/s, 2 steps skipped",
        ),
    ],
    ids=["all", "no labels", "skipped"],
)
def test_a_line_of_metrics_in_few_words(changes: dict[str, float | None], expected: str) -> None:
    metrics = {
        "loss": 3.14159,
        "masked_lm_accuracy": 0.3512,
        "next_sentence_accuracy": 0.8149,
        "tokens_per_second": 12345.6,
        "num_skipped_steps": 0,
    }
    assert describe_metrics(metrics | changes) == expected


def test_a_resumed_run_may_skip_more_steps(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "run", tmp_path / "run")
    arguments = ["train", "--resume", str(tmp_path / "run"), "--skip-nonfinite", "5", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    refused = CliRunner().invoke(main, [*arguments, "--max-grad-norm", "2"])
    assert refused.exit_code == 2
    assert "--resume keeps the run's own options" in refused.stderr
    assert "--init" not in refused.stderr
    longer = CliRunner().invoke(main, [*arguments, "--steps", "90"])
    assert longer.exit_code == 2
    assert (
        f"leave out --steps. To train longer from its weights, begin a new run with `--init {tmp_path}"
        in (" ".join(longer.stderr.split()))
    )
