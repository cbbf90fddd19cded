from __future__ import annotations

import json
import shutil
from pathlib import Path

from click.testing import CliRunner

from schemas.manifests import seal_manifest
from workflows.cli import main


def test_data_that_is_longer_than_the_model_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "dataset", tmp_path / "longer")
    manifest = json.loads((made / "dataset" / "dataset.json").read_text())
    manifest["config"]["max_seq_length"] = 600
    (tmp_path / "longer" / "dataset.json").write_bytes(seal_manifest(manifest))
    result = CliRunner().invoke(
        main, ["evaluate", "--data", str(tmp_path / "longer"), "--checkpoint", str(made / "run")]
    )
    assert result.exit_code == 2
    assert "has sequences of up to 600 tokens, but" in result.stderr
    assert "has 512 positions.\nBuild the corpus again with --max-seq-length 512 or less." in result.stderr
