"""Which runner is taken, what is reported meanwhile, and what a failure reads like."""

from __future__ import annotations

import copy
import logging
import signal
import sys
import time
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DebugOptions, DirectOptions, PipelineOptions

from pipelines import launching
from pipelines.launching import explain_failure, run_pipeline
from schemas.errors import ClozelineError, CorruptDataError, UsageError

MULTI_PROCESSING = [f"--runner={launching.IN_PROCESS_RUNNER}", "--direct_running_mode=multi_processing"]


def run_and_list_processes(folder: Path, **arguments: object) -> int:
    """Run a pipeline over twenty numbers; returns in how many processes it worked."""

    def construct(pipeline):
        def work(number):
            import os

            time.sleep(0.05)
            Path(str(folder), f"{number}-{os.getpid()}").touch()

        return pipeline | beam.Create(range(20), reshuffle=False) | beam.Reshuffle() | beam.Map(work)

    run_pipeline(construct, **arguments)
    names = [path.name.split("-") for path in folder.iterdir()]
    assert sorted(int(number) for number, _ in names) == list(range(20))
    return len({process for _, process in names})


def test_one_worker_is_this_process_and_two_are_two(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert run_and_list_processes(tmp_path / "one", workers=1) == 1
    assert run_and_list_processes(tmp_path / "two", workers=2) == 2


def test_a_runner_among_the_options_wins(tmp_path: Path) -> None:
    assert (
        run_and_list_processes(tmp_path, workers=2, beam_args=["--runner", launching.IN_PROCESS_RUNNER]) == 1
    )


def test_without_beams_private_names_fn_api_runner_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pipelines.local_runner", None)
    with launching._parse_options(2, []) as options:
        assert options.get_all_options()["runner"] == launching.IN_PROCESS_RUNNER
        assert options.get_all_options()["direct_running_mode"] == "multi_processing"
        assert options.get_all_options()["direct_num_workers"] == 2


def test_views_of_the_options_are_made_once_and_agree() -> None:
    arguments = ["--direct_num_workers=3", "--experiments=one", "--s3_region_name=somewhere"]
    with launching._parse_options(1, arguments) as options:
        view = options.view_as(DirectOptions)
        assert options.view_as(DirectOptions) is view
        assert view.direct_num_workers == 3
        view.direct_num_workers = 5
        options.view_as(DebugOptions).experiments.append("two")
        copied = copy.deepcopy(options)
        copied.view_as(DirectOptions).direct_num_workers = 7
        expected = PipelineOptions([*arguments[2:], f"--runner={launching.IN_PROCESS_RUNNER}"])
        expected.view_as(DirectOptions).direct_num_workers = 5
        expected.view_as(DebugOptions).experiments = ["one", "two"]
        assert options.get_all_options() == expected.get_all_options()


@pytest.mark.parametrize(
    ("beam_args", "message"),
    [
        (["--runer", "FlinkRunner"], r"no option --runer\.\nDid you mean --runner\?"),
        (["--runer=FlinkRunner"], r"no option --runer\.\nDid you mean --runner\?"),
        (["runner=FlinkRunner"], r"no option runner=FlinkRunner\.\nDid you mean --runner\?"),
        (["--qqqqqq", "1", "--qqqqqq"], r"no option --qqqqqq\.\nWhat stands after"),
        (
            ["--runner=DataflowRunner", "--temp_locaton=gs://bucket/t"],
            "--temp_locaton.\nDid you mean --temp_l",
        ),
    ],
)
def test_an_option_that_beam_would_drop_is_the_users_mistake(
    beam_args: list[str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match=message):
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]), workers=1, beam_args=beam_args)
    assert not caplog.records


@pytest.mark.parametrize(
    "beam_args",
    [
        ["--direct_num_workers", "2", "--s3_region_name=somewhere"],
        ["--runner=DataflowRunner", "--region", "r", "--machine_type=m", "--no_use_public_ips"],
        ["--runner=FlinkRunner", "--flink_master=host:8081", "--checkpointing_interval=9"],
        ["--runner=a.module.with.OwnRunner", "--option_of_that_runner"],
    ],
)
def test_options_of_other_runners_are_left_to_them(beam_args: list[str]) -> None:
    with launching._parse_options(1, beam_args):
        pass


def test_an_option_that_beam_refuses_is_the_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--direct_num_workers=many"):
        run_pipeline(
            lambda pipeline: pipeline | beam.Create([1]), workers=1, beam_args=["--direct_num_workers=many"]
        )
    assert "invalid int value" in capsys.readouterr().err


def test_reports_come_while_it_runs_and_once_at_the_end(tmp_path: Path) -> None:
    seen: list[bool] = []

    def construct(pipeline):
        def work(_):
            while not (tmp_path / "go").exists():
                time.sleep(0.01)
            (tmp_path / "done").touch()

        return pipeline | beam.Create([1]) | beam.Map(work)

    def report() -> None:
        seen.append((tmp_path / "done").exists())
        (tmp_path / "go").touch()

    run_pipeline(construct, workers=1, report=report, report_seconds=0.02)
    assert seen[0] is False
    assert seen[-1] is True


@pytest.mark.parametrize("workers", [1, 2])
def test_our_errors_come_out_as_they_were_raised(
    workers: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def construct(pipeline):
        def work(number):
            if number == 3:
                raise CorruptDataError("shard 7 is truncated: 12 bytes\nMake it [anew].")
            return number

        first = (
            pipeline
            | beam.Create(range(9), reshuffle=False)
            | beam.Reshuffle()
            | "A" >> beam.Map(lambda n: n)
        )
        return first | "B" >> beam.Map(work) | "C" >> beam.Map(lambda n: n)

    level = logging.getLogger("apache_beam").level
    with pytest.raises(CorruptDataError) as caught:
        run_pipeline(construct, workers=workers)
    assert str(caught.value) == "shard 7 is truncated: 12 bytes\nMake it [anew]."
    assert "while running 'B'" in str(caught.value.__cause__)
    assert not caplog.records
    assert capfd.readouterr().err == ""
    assert logging.getLogger("apache_beam").level == level


@pytest.mark.parametrize("workers", [1, 2])
def test_other_errors_name_the_step(workers: int) -> None:
    def construct(pipeline):
        return pipeline | beam.Create([1]) | "Divide" >> beam.Map(lambda number: number // 0)

    with pytest.raises(ClozelineError) as caught:
        run_pipeline(construct, workers=workers)
    assert type(caught.value) is ClozelineError
    message = str(caught.value)
    assert (
        message == "the pipeline failed in step Divide: ZeroDivisionError: integer division or modulo by zero"
    )


def test_ctrl_c_in_a_step_is_ctrl_c() -> None:
    # Beam wraps whatever a step raises in this process, an interrupt too.
    def construct(pipeline):
        return pipeline | beam.Create([1]) | beam.Map(lambda _: signal.raise_signal(signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        run_pipeline(construct, workers=1)


def test_an_error_in_this_process_is_left_alone() -> None:
    def construct(_):
        raise UsageError("as it was")

    with pytest.raises(UsageError, match=r"^as it was$"):
        run_pipeline(construct, workers=1)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "Traceback (most recent call last):\n  File x\n"
            "schemas.errors.UsageError: one\ntwo [while running 'S/A']\n",
            UsageError,
            "one\ntwo",
        ),
        (
            "Traceback (most recent call last):\n  File x\nValueError: one\n\nDuring handling …:\n\n"
            "Traceback (most recent call last):\n  File y\n"
            "schemas.errors.ClozelineError: last [while running 'A']",
            ClozelineError,
            "last",
        ),
        (
            "Traceback (most recent call last):\n  File x\nMemoryError [while running 'Read']",
            ClozelineError,
            "the pipeline failed in step Read: MemoryError",
        ),
        ("something odd", ClozelineError, "the pipeline failed: RuntimeError: something odd"),
        ("", ClozelineError, "the pipeline failed: RuntimeError"),
    ],
    ids=["ours", "chained", "no message", "no traceback", "nothing"],
)
def test_a_failure_is_told_in_a_line_or_two(text: str, kind: type[Exception], message: str) -> None:
    error = explain_failure(RuntimeError(text))
    assert type(error) is kind
    assert str(error) == message


def test_a_long_message_is_cut() -> None:
    text = "Traceback (most recent call last):\n  File x\nValueError: " + "x" * 100_000
    assert len(str(explain_failure(RuntimeError(text)))) < 1_000
