from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from schemas.errors import ClozelineError
from trainer.metrics import MetricsLog, keep_lines
from trainer.output_folder import OutputFolder


def line(step: int, **values: float) -> dict[str, float | int | None]:
    return {"step": step, **values}


def read_lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def test_lines_and_scalars(tmp_path: Path) -> None:
    log = MetricsLog(OutputFolder(str(tmp_path)), None)
    log.write(line(0, validation_masked_lm_loss=3.0))
    log.write({"step": 5, "loss": 2.5, "next_sentence_loss": None})
    log.flush()
    log.close()
    assert read_lines(tmp_path / "metrics.jsonl") == [
        {"step": 0, "validation_masked_lm_loss": 3.0},
        {"step": 5, "loss": 2.5, "next_sentence_loss": None},
    ]
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss", "validation/masked_lm_loss"]
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(5, 2.5)]


@pytest.mark.parametrize(
    ("resume_step", "expected"), [(None, []), (2, [1, 2]), (3, [1, 2, 3]), (9, [1, 2, 3])], ids=str
)
def test_a_resumed_run_goes_on_from_its_step(
    tmp_path: Path, resume_step: int | None, expected: list[int]
) -> None:
    content = b"".join(json.dumps(line(step, loss=0.1)).encode() + b"\n" for step in (1, 2, 3))
    (tmp_path / "metrics.jsonl").write_bytes(content + b'{"step": 4, "lo')
    log = MetricsLog(OutputFolder(str(tmp_path)), resume_step)
    log.write(line(7))
    log.close()
    assert [entry["step"] for entry in read_lines(tmp_path / "metrics.jsonl")] == [*expected, 7]


def test_what_is_overtaken_by_a_resume_is_hidden(tmp_path: Path) -> None:
    run = OutputFolder(str(tmp_path))
    for resume_step, losses in ((None, {1: 4.0, 2: 3.0, 3: 9.0}), (2, {3: 2.0, 4: 1.0})):
        log = MetricsLog(run, resume_step)
        for step, loss in losses.items():
            log.write(line(step, loss=loss))
        log.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    scalars = [(event.step, event.value) for event in events.Scalars("loss")]
    assert scalars == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]


def test_where_nothing_can_be_appended_to_files_are_uploaded_whole() -> None:
    folder = OutputFolder(f"memory://{uuid.uuid4().hex}")
    log = MetricsLog(folder, None)
    log.write(line(1, loss=1.0))
    log.flush()
    log.write(line(2, loss=1.0))
    log.flush()
    log.close()
    assert folder.read_bytes("metrics.jsonl") == b'{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 1.0}\n'
    assert len(folder.list_names("tensorboard")) == 1
    resumed = MetricsLog(folder, 1)
    resumed.flush()
    resumed.close()
    assert folder.read_bytes("metrics.jsonl") == b'{"step": 1, "loss": 1.0}\n'


def test_a_disk_that_is_full_is_named_also_when_the_files_are_closed(
    tmp_path: Path, limit_file_size: Callable[[int], None]
) -> None:
    log = MetricsLog(OutputFolder(str(tmp_path)), None)
    log.write(line(1))
    limit_file_size((tmp_path / "metrics.jsonl").stat().st_size + 5)
    for call in (lambda: log.write(line(2)), log.close):
        with pytest.raises(ClozelineError, match=r"/metrics.jsonl could not be written: .*\nFree some space"):
            call()


def test_a_number_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    log = MetricsLog(OutputFolder(str(tmp_path)), None)
    with pytest.raises(ValueError, match="JSON"):
        log.write(line(1, loss=math.nan))
    log.close()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8), st.data())
def test_any_torn_file_keeps_exactly_its_whole_lines(losses: list[float], draw: st.DataObject) -> None:
    encoded = [
        json.dumps(line(step, loss=loss)).encode() + b"\n" for step, loss in enumerate(losses, start=1)
    ]
    content = b"".join(encoded)
    cut = draw.draw(st.integers(0, len(content)))
    last_step = draw.draw(st.integers(0, 9))
    num_whole = content[:cut].count(b"\n")
    kept = keep_lines(content[:cut], last_step)
    assert kept == b"".join(encoded[: min(num_whole, last_step)])
    assert [json.loads(text)["loss"] for text in kept.splitlines()] == losses[: min(num_whole, last_step)]
