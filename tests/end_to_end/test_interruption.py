"""Ctrl-C: exit code 130, one or two lines that say how to go on, and a run that does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def test_an_interrupted_training_says_how_to_go_on(made: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    arguments = (
        "--data",
        str(made / "dataset"),
        "--output",
        str(output),
        "--model",
        "tiny",
        "--device",
        "cpu",
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from workflows.cli import main; main()",
            "train",
            *arguments,
            "--steps",
            "1000000",
            "--batch-size",
            "4",
            "--log-every",
            "1",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    metrics = output / "metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert f"clozeline train --resume {output}" in stderr.splitlines()[-1]
    logged = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert logged == list(range(1, len(logged) + 1))
    assert (output / "checkpoints" / f"step-{logged[-1]:08d}" / "checkpoint.json").is_file()
