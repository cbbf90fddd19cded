"""Ctrl-C and SIGTERM: exit code 130, one or two lines that say how to go on, and a run that does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

PROGRAM = (sys.executable, "-c", "from workflows.cli import main; main()")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def train_for_ever(dataset: Path, output: Path, launcher: tuple[str, ...] = PROGRAM) -> subprocess.Popen[str]:
    """A run that has logged its first step."""
    process = subprocess.Popen(
        [
            *(*launcher, "train", "--data", str(dataset), "--output", str(output), "--model", "tiny"),
            *("--device", "cpu", "--precision", "fp32", "--steps", "1000000", "--batch-size", "4"),
            *("--log-every", "1", "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    metrics = output / "metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
        time.sleep(0.05)
    return process


def read_metrics(output: Path) -> list[dict[str, Any]]:
    # Without what stands behind the last line break: it may be written at this moment.
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().split("\n")[:-1]]


def require_checkpoint_of_the_last_step(output: Path) -> int:
    """The last logged step, whose checkpoint is the only one."""
    logged = [line["step"] for line in read_metrics(output)]
    assert logged == list(range(1, len(logged) + 1))
    assert [path.name for path in (output / "checkpoints").iterdir()] == [f"step-{logged[-1]:08d}"]
    assert (output / "checkpoints" / f"step-{logged[-1]:08d}" / "checkpoint.json").is_file()
    return len(logged)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_training_says_how_to_go_on(
    made: Path, tmp_path: Path, number: signal.Signals
) -> None:
    output = tmp_path / "run"
    process = train_for_ever(made / "dataset", output)
    process.send_signal(number)
    stdout, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert f"clozeline train --resume {output}" in stderr.splitlines()[-1]
    require_checkpoint_of_the_last_step(output)


TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"),
    *PROGRAM,
)


def find_ranks(launcher: int) -> list[int]:
    """Process ids of the ranks that a torchrun has started, in the order of their ranks."""
    ranks = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (path / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        found = [entry[5:] for entry in environment if entry.startswith(b"RANK=")]
        if parent == launcher and found:
            ranks[int(found[0])] = int(path.name)
    return [pid for _, pid in sorted(ranks.items())]


def signal_torchrun(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def signal_rank_1(process: subprocess.Popen[str]) -> None:
    os.kill(find_ranks(process.pid)[1], signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("send", [signal_torchrun, signal_rank_1], ids=lambda send: send.__name__)
def test_all_ranks_stop_at_the_same_step_with_one_checkpoint_and_go_on(
    made: Path, tmp_path: Path, invoke: Callable[..., Result], send: Callable[[subprocess.Popen[str]], None]
) -> None:
    output, dataset = tmp_path / "run", tmp_path / "dataset"
    # Blocks enough for two ranks.
    blocks = ("--max-seq-length", "32", "--examples-per-block", "8", "--workers", "1")
    built = invoke("build", "--corpus", str(made / "corpus"), "--output", str(dataset), *blocks)
    assert built.exit_code == 0, built.output
    process = train_for_ever(dataset, output, TORCHRUN)
    assert process.poll() is None, process.communicate()
    send(process)
    stdout, stderr = process.communicate()
    assert process.returncode != 0
    assert stdout == "", stderr
    num_steps = require_checkpoint_of_the_last_step(output)
    # torchrun ends the other rank when the first has ended, maybe while it still says so.
    assert f"Interrupted after step {num_steps} of 1000000; a checkpoint was written." in stderr
    resumed = subprocess.Popen(
        [*TORCHRUN, "train", "--resume", str(output)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    while resumed.poll() is None and len(read_metrics(output)) < num_steps + 2:
        time.sleep(0.05)
    resumed.send_signal(signal.SIGTERM)
    _, stderr = resumed.communicate()
    assert len(read_metrics(output)) >= num_steps + 2, stderr
