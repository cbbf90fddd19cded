"""SIGKILL from outside, at any moment and while a checkpoint is being written.

The runs are forked from one child process that has loaded torch, so that each costs little. Where it kills
comes from a seed; which instruction it hits doesn't, and must not matter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainConfig

REPOSITORY = Path(__file__).parents[2]
CLOCK_NAMES = (
    *("seconds", "seconds_left", "tokens_per_second", "data_wait_seconds", "data_wait_share"),
    *("utilisation", "memory_bytes"),
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
SAVE_EVERY = 3

KILL_AND_RESUME = """
import os, json, random, signal, sys, time
import torch
import torch._dynamo, tensorboard.compat.proto.event_pb2  # loaded once, before the forks
from trainer.config import TrainConfig
from trainer.loop import train

torch.set_num_threads(1)
whole, killed, num_kills = json.loads(sys.argv[1])
config = TrainConfig.model_validate(killed)
folder = os.path.join(config.output, "checkpoints")
draw = random.Random(7)

def start(config):
    # The child writes a byte after every step.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        train(config, lambda done, total: os.write(writing, b"."))
        os._exit(0)
    os.close(writing)
    os.set_blocking(reading, False)
    return child, reading

def half_written():
    try:
        return [name for name in os.listdir(folder) if name.startswith(".writing-")]
    except FileNotFoundError:
        return []

def wait_for_steps(child, reading, count):
    seen = 0
    while seen < count and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        try:
            seen += len(os.read(reading, 1000))
        except BlockingIOError:
            time.sleep(0.0005)

def wait_for_a_checkpoint(child):
    # Those that an earlier kill left are removed when the run starts.
    old = half_written()
    while set(half_written()) <= set(old):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return

outcomes = []
for number in range(num_kills):
    child, reading = start(config)
    if number % 2:
        wait_for_a_checkpoint(child)
        time.sleep(draw.choice([0, 0, 0.001, 0.003]))
    else:
        # The first byte comes before the first step.
        wait_for_steps(child, reading, 1 + draw.randrange(5))
        time.sleep(draw.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(reading)
    outcomes.append([code, len(half_written()) > 0])
for last in (config, TrainConfig.model_validate(whole)):
    child, reading = start(last)
    os.set_blocking(reading, True)
    while os.read(reading, 1000):
        pass
    outcomes.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(half_written()) > 0])
print(json.dumps(outcomes))
"""


def read_metrics(run: str) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl` without what the clock says."""
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCK_NAMES} for line in lines]


@pytest.mark.parametrize("num_kills", [4, pytest.param(20, marks=pytest.mark.slow)], ids="{} kills".format)
def test_a_run_that_is_killed_again_and_again_equals_one_that_never_was(
    tmp_path: Path, tiny_dataset_path: Path, num_kills: int
) -> None:
    # Far more than the kills can let it take, also on a fast machine.
    num_steps = 12 * num_kills
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES))
    whole, killed = (
        TrainConfig(
            data=(str(tiny_dataset_path),),
            output=str(tmp_path / name),
            model=str(tmp_path / "sizes.json"),
            steps=num_steps,
            batch_size=8,
            gradient_accumulation=2,
            learning_rate=1e-3,
            precision="fp32",
            device="cpu",
            save_every=SAVE_EVERY,
            # Most lines are means over steps on both sides of a checkpoint.
            log_every=2,
        )
        for name in ("whole", "killed")
    )
    work = json.dumps([whole.model_dump(mode="json"), killed.model_dump(mode="json"), num_kills])
    done = subprocess.run(
        [sys.executable, "-c", KILL_AND_RESUME, work],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    outcomes = json.loads(done.stdout)
    assert [code for code, _ in outcomes] == [-9] * num_kills + [0, 0], outcomes
    # A half-written checkpoint was left now and then; none at the end.
    assert any(was_writing for _, was_writing in outcomes[:num_kills])
    assert not any(was_writing for _, was_writing in outcomes[num_kills:])
    assert read_metrics(killed.output) == read_metrics(whole.output)
    assert len(read_metrics(killed.output)) == num_steps // 2
    for file in ("model.safetensors", "optimiser.safetensors"):
        ours, theirs = (
            (Path(config.output) / "checkpoints" / f"step-{num_steps:08d}" / file).read_bytes()
            for config in (killed, whole)
        )
        assert ours == theirs
