"""The loop from start to end, and what a kill at any moment does to it.

Runs that are to die are forked from one child process that has loaded torch, so that each costs little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from trainer import checkpoint_writer
from trainer.checkpoint_record import CheckpointRecord, list_checkpoints
from trainer.checkpoints import load_checkpoint
from trainer.config import TrainConfig
from trainer.loop import resume, train
from trainer.loop_state import Metrics
from trainer.output_folder import OutputFolder

REPOSITORY = Path(__file__).parents[2]
CLOCK_NAMES = (
    *("seconds", "seconds_left", "tokens_per_second", "data_wait_seconds", "data_wait_share"),
    *("utilisation", "memory_bytes"),
)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}

RUN_AND_DIE = """
import json, os, signal, sys
import torch
import torch._dynamo, tensorboard.compat.proto.event_pb2  # loaded once, before the forks
import trainer.checkpoints, trainer.metrics, trainer.output_folder
from trainer.config import TrainConfig
from trainer.interruption import TrainingInterrupted
from trainer.loop import train

torch.set_num_threads(1)
die = lambda: os.kill(os.getpid(), signal.SIGKILL)

def arrange(kind, number):
    if kind == "step":
        return lambda done, total: done == number and die()
    if kind == "terminate":
        return lambda done, total: done == number and os.kill(os.getpid(), signal.SIGTERM)
    if kind == "while a checkpoint is written":
        write = trainer.checkpoints.write_tensors
        class DyingFile:
            def __init__(self, file): self.file = file
            def write(self, content):
                self.file.write(content[:len(content) // 2])
                die()
        calls = []
        def write_half(file, tensors):
            calls.append(None)
            write(DyingFile(file) if len(calls) == number else file, tensors)
        trainer.checkpoints.write_tensors = write_half
    if kind == "before a checkpoint is renamed":
        replace = os.replace
        trainer.output_folder.os.replace = lambda a, b: die() if "step-" in b else replace(a, b)
    if kind == "after a checkpoint is renamed":
        replace = os.replace
        trainer.output_folder.os.replace = lambda a, b: (replace(a, b), "step-" in b and die())
    if kind == "within a line of metrics":
        write = trainer.metrics.MetricsLog.write
        def write_half(log, metrics):
            if metrics["step"] == number:
                os.write(log._file.fileno(), b'{"step": ' + str(number).encode())
                die()
            write(log, metrics)
        trainer.metrics.MetricsLog.write = write_half

for encoded, deaths in json.loads(sys.argv[1]):
    config = TrainConfig.model_validate_json(encoded)
    outcomes = []
    for kind, number in deaths:
        child = os.fork()
        if child == 0:
            try:
                train(config, arrange(kind, number))
            except TrainingInterrupted as error:
                print(error, flush=True)
                os._exit(130)
            os._exit(0)
        outcomes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(outcomes), flush=True)
"""


@pytest.fixture
def make_config(tmp_path: Path, tiny_dataset_path: Path) -> Callable[..., TrainConfig]:
    """Configurations of short runs; the model has dropout, so that its draws are tested too."""
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps(SIZES))

    def make(**values: Any) -> TrainConfig:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / "run"),
            "model": str(sizes),
            "steps": 12,
            "batch_size": 8,
            "gradient_accumulation": 2,
            "learning_rate": 1e-3,
            "precision": "fp32",
            "device": "cpu",
            "save_every": 4,
            "log_every": 1,
        }
        return TrainConfig(**defaults | values)

    return make


def run_and_die(*runs: tuple[TrainConfig, list[tuple[str, int]]]) -> list[str]:
    """Train each configuration in processes that die as told: what was printed, and the exit codes."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            RUN_AND_DIE,
            json.dumps([(run.model_dump_json(), deaths) for run, deaths in runs]),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def crash(config: TrainConfig, step: int) -> None:
    """Train until an error that nobody expects comes out of this process after some step."""

    def fail(done: int, total: int) -> None:
        if done == step:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        train(config, fail)


def read_metrics(run: str | Path) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl` without what the clock says."""
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCK_NAMES} for line in lines]


def read_weights(run: str | Path, step: int) -> tuple[bytes, bytes]:
    folder = Path(run) / "checkpoints" / f"step-{step:08d}"
    return (folder / "model.safetensors").read_bytes(), (folder / "optimiser.safetensors").read_bytes()


def test_a_run_leaves_all_that_the_interface_names(make_config: Callable[..., TrainConfig]) -> None:
    logged: list[Metrics] = []
    done: list[tuple[int, int]] = []
    config = make_config(steps=6, evaluate_every=3, log_every=2, evaluation_examples=10)
    summary = train(config, lambda step, steps: done.append((step, steps)), logged.append)
    run = Path(config.output)
    names = sorted(path.name for path in run.iterdir())
    assert names == ["checkpoints", "config.json", "metrics.jsonl", "tensorboard", "tokenizer.json"]
    assert done == [(step, 6) for step in range(7)]
    assert [line["step"] for line in logged] == [0, 2, 3, 4, 6]
    assert [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] == logged
    assert list(logged[1]) == [
        *("step", "loss", "masked_lm_loss", "masked_lm_accuracy", "next_sentence_loss"),
        *("next_sentence_accuracy", "gradient_norm", "learning_rate", "num_examples", "num_tokens"),
        *("num_skipped_steps", "tokens_per_second", "data_wait_seconds", "data_wait_share", "utilisation"),
        *("memory_bytes", "seconds", "seconds_left"),
    ]
    assert [line["step"] for line in logged if "validation_masked_lm_accuracy" in line] == [0, 3, 6]
    # Of 12 that are held out.
    assert logged[0]["validation_num_examples"] == 10
    assert list_checkpoints(OutputFolder(str(run))) == [
        "checkpoints/step-00000004",
        "checkpoints/step-00000006",
    ]
    assert (summary.steps, summary.resumed_from_step) == (6, None)
    assert summary.loss == logged[-1]["loss"]
    assert summary.last_evaluation == {
        name.removeprefix("validation_"): value for name, value in logged[-1].items() if "validation" in name
    }
    assert summary.as_dict()["output"] == config.output
    assert load_checkpoint(config.output).step == 6


DEATHS: dict[str, list[tuple[str, int]]] = {
    "at steps": [("step", 1), ("step", 3), ("step", 7), ("step", 11), ("step", 12)],
    "while writing": [("while a checkpoint is written", 1), ("while a checkpoint is written", 2)],
    "around renaming": [("before a checkpoint is renamed", 0), ("after a checkpoint is renamed", 0)],
    "within metrics": [("within a line of metrics", step) for step in (3, 6, 9)],
}


def test_a_killed_run_repeats_the_uninterrupted_one_bit_for_bit(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    # Lines at 6 and 9 are means over steps on both sides of the checkpoints of steps 4 and 8.
    configs = {
        name: make_config(output=str(tmp_path / name), log_every=3, evaluate_every=6)
        for name in ("whole", *DEATHS)
    }
    printed = run_and_die(
        *((config, [*DEATHS.get(name, []), ("never", 0)]) for name, config in configs.items())
    )
    assert [json.loads(line) for line in printed] == [
        [0],
        *([-9] * len(deaths) + [0] for deaths in DEATHS.values()),
    ]
    whole = configs["whole"].output
    assert [line["step"] for line in read_metrics(whole)] == [0, 3, 6, 9, 12]
    for name in DEATHS:
        killed = configs[name].output
        assert read_metrics(killed) == read_metrics(whole), name
        assert read_weights(killed, 12) == read_weights(whole, 12), name
        names = sorted(path.name for path in (Path(killed) / "checkpoints").iterdir())
        assert names == ["step-00000004", "step-00000008", "step-00000012"], name


def test_a_terminated_run_saves_and_says_how_to_go_on(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    whole, stopped = make_config(output=str(tmp_path / "whole")), make_config(save_every=1000)
    # The signal comes while step 5 is reported, so that step 6 is the last one.
    assert run_and_die((stopped, [("terminate", 5), ("never", 0)])) == [
        "Interrupted after step 6 of 12; a checkpoint was written.",
        f"Continue with: clozeline train --resume {stopped.output}",
        "[130, 0]",
    ]
    train(whole)
    assert read_metrics(stopped.output) == read_metrics(whole.output)


def test_a_resumed_run_takes_its_own_configuration(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = make_config(steps=5, save_every=2)
    crash(config, step=3)
    (tmp_path / "sizes.json").unlink()
    os.rename(config.output, tmp_path / "moved")
    summary = resume(str(tmp_path / "moved"))
    assert (summary.steps, summary.resumed_from_step) == (5, 2)
    assert summary.output == str(tmp_path / "moved")
    assert [line["step"] for line in read_metrics(tmp_path / "moved")] == [1, 2, 3, 4, 5]


def test_a_finished_run_is_found_done(make_config: Callable[..., TrainConfig]) -> None:
    config = make_config(steps=3)
    first = train(config)
    before = (Path(config.output) / "metrics.jsonl").stat().st_mtime_ns
    again, resumed = train(config), resume(config.output)
    assert (Path(config.output) / "metrics.jsonl").stat().st_mtime_ns == before
    assert again == resumed
    assert again.resumed_from_step == 3
    assert (again.loss, again.seconds, again.checkpoint) == (first.loss, first.seconds, first.checkpoint)


def test_another_configuration_is_refused_unless_it_may_overwrite(
    make_config: Callable[..., TrainConfig],
) -> None:
    train(make_config(steps=3))
    with pytest.raises(UsageError, match="seed 0 there, 1 now"):
        train(make_config(steps=3, seed=1))
    summary = train(make_config(steps=2), overwrite=True)
    assert (summary.steps, summary.resumed_from_step) == (2, None)
    assert [line["step"] for line in read_metrics(summary.output)] == [1, 2]


def test_changed_sizes_under_the_same_name_are_refused(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    train(make_config(steps=1))
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES | {"hidden_size": 32}))
    with pytest.raises(UsageError, match="hidden_size 16 there, 32 now"):
        train(make_config(steps=1))


def test_two_runs_of_one_configuration_are_equal_and_of_another_seed_not(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    configs = [
        make_config(steps=3, output=str(tmp_path / str(n)), seed=seed) for n, seed in enumerate((0, 0, 1))
    ]
    losses = [[line["loss"] for line in read_metrics(train(config).output)] for config in configs]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_a_damaged_checkpoint_is_named_and_removing_it_is_enough(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    whole, damaged = make_config(output=str(tmp_path / "whole")), make_config()
    train(whole)
    crash(damaged, step=10)
    newest = Path(damaged.output) / "checkpoints" / "step-00000008"
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(
        CorruptDataError, match=rf"{weights} has .*\nRemove {newest} to go on from step-00000004"
    ):
        train(damaged)
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    assert train(damaged).resumed_from_step == 4
    assert read_metrics(damaged.output) == read_metrics(whole.output)


def test_a_checkpoint_of_another_model_than_that_of_the_run_is_refused(
    make_config: Callable[..., TrainConfig],
) -> None:
    # The number of heads shows in no shape.
    config = make_config()
    crash(config, step=5)
    path = Path(config.output) / "config.json"
    record = json.loads(path.read_text())
    record["model"]["num_attention_heads"] = 4
    del record["checksum"]  # as a person does who means the change
    path.write_text(json.dumps(record))
    with pytest.raises(CorruptDataError, match=r"step-00000004 is of another model .* config.json says"):
        resume(config.output)


def test_a_disk_that_fills_up_between_checkpoints_is_named_and_no_step_is_lost(
    make_config: Callable[..., TrainConfig], tmp_path: Path, limit_file_size: Callable[[int], None]
) -> None:
    whole, full = make_config(output=str(tmp_path / "whole")), make_config()
    train(whole)
    metrics = Path(full.output) / "metrics.jsonl"

    def fill(done: int, total: int) -> None:
        if done == 7:
            limit_file_size(metrics.stat().st_size + 100)

    with pytest.raises(ClozelineError, match=f"{metrics} could not be written: .*\nFree some space"):
        train(full, fill)
    limit_file_size(1 << 30)
    assert train(full).resumed_from_step == 4
    assert read_metrics(full.output) == read_metrics(whole.output)


def test_a_checkpoint_that_can_not_be_written_ends_the_run_and_no_step_is_lost(
    make_config: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, full = make_config(output=str(tmp_path / "whole")), make_config()
    train(whole)
    save = checkpoint_writer.save_checkpoint

    def save_once(run: OutputFolder, record: CheckpointRecord, *rest: Any) -> str:
        if record.step == 8:
            raise ClozelineError(f"{run.path} could not be written: the disk is full.\nFree some space.")
        return save(run, record, *rest)

    def wait_for_writer(done: int, total: int) -> None:
        for thread in threading.enumerate():
            if done == 9 and thread.name == checkpoint_writer.WRITER_THREAD_NAME:
                thread.join()

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_writer, "save_checkpoint", save_once)
        with pytest.raises(ClozelineError, match=f"{full.output} could not be written: the disk is full"):
            train(full, wait_for_writer)
    # The loop stops after the step that it hears of it, not at the next checkpoint.
    assert read_metrics(full.output)[-1]["step"] in (9, 10)
    assert list_checkpoints(OutputFolder(full.output)) == ["checkpoints/step-00000004"]
    assert train(full).resumed_from_step == 4
    assert read_metrics(full.output) == read_metrics(whole.output)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "colossal"}, "no preset"),
        ({"model": "missing.json"}, "no such model configuration"),
        ({"data": "/nowhere"}, "does not exist"),
        ({"init": "/nowhere"}, "no such run or checkpoint"),
        ({"batch_size": 7}, "can't be cut into 2 equal"),
        ({"gradient_accumulation": 1000, "batch_size": 1000}, "1000|1,000"),
        ({"device": "cuda:99"}, "torch finds"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_choice_that_fails_leaves_no_run_behind(
    make_config: Callable[..., TrainConfig], values: dict[str, Any], words: str
) -> None:
    config = make_config(**values)
    with pytest.raises(UsageError, match=words):
        train(config)
    assert not Path(config.output).exists()


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        resume(str(tmp_path))


def test_changed_data_is_refused(
    make_config: Callable[..., TrainConfig], tmp_path: Path, write_tiny_dataset: Callable[..., Path]
) -> None:
    config = make_config(steps=1)
    train(config)
    example = {
        "input_ids": [6, 8, 7, 12, 7],
        "segment_a_length": 3,
        "masked_lm_positions": [1],
        "masked_lm_ids": [11],
        "next_sentence_label": 0,
    }
    other = write_tiny_dataset(tmp_path / "other", {"train": [[example] * 30]})
    with pytest.raises(
        UsageError, match=f"{other} is not the data that the run in {config.output} began with"
    ):
        resume(config.output, data=(str(other),))


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(
    make_config: Callable[..., TrainConfig],
) -> None:
    config = make_config(
        learning_rate=1e30, warmup_steps=0, max_grad_norm=0.0, save_every=1, keep_checkpoints=99
    )
    with pytest.raises(ClozelineError, match=r"Training diverged: the .* of step \d+ is (nan|inf)"):
        train(config)
    newest = load_checkpoint(config.output)
    lines = read_metrics(config.output)
    assert newest.step == lines[-1]["step"] < 12


def test_a_run_begins_with_the_weights_of_another(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    first = train(make_config(steps=4, learning_rate=1e-2))
    config = make_config(
        output=str(tmp_path / "second"),
        init=first.output,
        steps=1,
        learning_rate=1e-9,
        dropout=0.0,
        log_every=1,
    )
    train(config)
    theirs, ours = load_checkpoint(first.output).model, load_checkpoint(config.output).model
    for before, after in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(after, before, atol=1e-7, rtol=0)
    with pytest.raises(UsageError, match="is another model: hidden_size 16 there, 128 here"):
        train(make_config(output=str(tmp_path / "third"), init=first.output, model="tiny"))


def test_a_run_that_has_saved_nothing_is_resumed_from_any_folder(
    make_config: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(make_config(output=str(tmp_path / "first"), steps=1))
    monkeypatch.chdir(tmp_path)
    second = make_config(output=str(tmp_path / "second"), init="first", steps=3)
    crash(second, step=2)
    monkeypatch.chdir("/")
    assert resume(second.output).resumed_from_step is None


def test_a_run_lives_where_nothing_can_be_renamed_too(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    local, remote = make_config(steps=5), make_config(steps=5, output=f"memory://{tmp_path.name}/run")
    train(local)
    summary = train(remote)
    folder = OutputFolder(remote.output)
    assert list_checkpoints(folder) == ["checkpoints/step-00000004", "checkpoints/step-00000005"]
    losses = [json.loads(line)["loss"] for line in folder.read_bytes("metrics.jsonl").splitlines()]
    assert losses == [line["loss"] for line in read_metrics(local.output)]
    assert load_checkpoint(remote.output).step == 5
    assert resume(remote.output) == train(remote)
    assert summary.checkpoint == f"{remote.output}/checkpoints/step-00000005"


def test_several_datasets_are_read_as_one(
    make_config: Callable[..., TrainConfig], tiny_dataset_path: Path
) -> None:
    config = make_config(data=(str(tiny_dataset_path), str(tiny_dataset_path)), steps=3, evaluate_every=3)
    summary = train(config)
    assert summary.last_evaluation is not None
    assert summary.last_evaluation["num_examples"] == 50
    assert resume(config.output).resumed_from_step == 3
