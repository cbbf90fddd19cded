"""LocalRunner against FnApiRunner, and what it adds: dealing as workers ask, death, Ctrl-C, options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import apache_beam as beam
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given
from hypothesis import strategies as st

from pipelines.local_runner import bundle_sizes
from schemas.errors import ClozelineError
from tests.pipelines.worker_processes import find_workers

REPOSITORY = Path(__file__).parents[2]
LOCAL = ["--runner=pipelines.local_runner.LocalRunner", "--direct_num_workers=2"]
REFERENCE = ["--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"]


# The functions of the pipelines are nested ones: pickled by value, so that workers needn't import this
# module.


def run_reference_pipeline(arguments: list[str], output: Path) -> dict[str, object]:
    class SplitFn(beam.DoFn):
        def process(self, number):
            if number % 3:
                yield number
            else:
                yield beam.pvalue.TaggedOutput("thirds", number)

    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        numbers = pipeline | beam.Create(range(50), reshuffle=False) | beam.Reshuffle()
        parts = numbers | beam.ParDo(SplitFn()).with_outputs("thirds", main="others")
        sums = (
            parts.others
            | "Key" >> beam.Map(lambda number: (number % 5, number))
            | "Group" >> beam.GroupByKey()
            | "Sort" >> beam.MapTuple(lambda key, values: (key, sorted(values)))
        )
        total = beam.pvalue.AsSingleton(parts.thirds | "Sum" >> beam.CombineGlobally(sum))
        thirds = parts.thirds | "Wrap" >> beam.Map(lambda number: [number, [], 0])
        joined = (sums | "AddTotal" >> beam.Map(lambda pair, total: [*pair, total], total), thirds)
        _ = (
            joined
            | "Join" >> beam.Flatten()
            | "Collect" >> beam.combiners.ToList()
            | "Write"
            >> beam.Map(lambda values, path: Path(path).write_text(json.dumps(sorted(values))), str(output))
        )
    return json.loads(output.read_text())


def test_results_are_those_of_fn_api_runner(tmp_path: Path) -> None:
    expected = run_reference_pipeline(REFERENCE, tmp_path / "reference.json")
    assert run_reference_pipeline(LOCAL, tmp_path / "local.json") == expected
    assert not find_workers()


def test_a_free_worker_takes_what_is_left(tmp_path: Path) -> None:
    # The first element waits for all the others: a share dealt beforehand would hold some of them back.
    def work(number: int, folder: str) -> None:
        Path(folder, str(number)).touch()
        while number == 0 and len(os.listdir(folder)) < 12:
            time.sleep(0.01)

    with beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
        numbers = pipeline | beam.Create(range(12), reshuffle=False) | beam.Reshuffle()
        _ = numbers | beam.Map(work, str(tmp_path))
    assert len(os.listdir(tmp_path)) == 12


def test_counters_come_back() -> None:
    def count(number):
        beam.metrics.Metrics.counter("test", "numbers").inc()
        return number

    pipeline = beam.Pipeline(options=PipelineOptions(LOCAL))
    _ = pipeline | beam.Create(range(20), reshuffle=False) | beam.Reshuffle() | beam.Map(count)
    counters = pipeline.run().metrics().query()["counters"]
    assert [(counter.key.metric.name, counter.committed) for counter in counters] == [("numbers", 20)]


def test_options_and_environment_reach_the_workers(tmp_path: Path) -> None:
    def write(_, path):
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import S3Options

        region = FileSystems._pipeline_options.view_as(S3Options).s3_region_name
        Path(path).write_text(
            f"{region} {os.environ['TOKENIZERS_PARALLELISM']} {os.environ['OMP_NUM_THREADS']}"
        )

    path = tmp_path / "seen"
    with beam.Pipeline(options=PipelineOptions([*LOCAL, "--s3_region_name=somewhere"])) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(write, str(path))
    assert path.read_text() == "somewhere false 1"


def test_workers_look_often_at_the_step_that_runs(tmp_path: Path) -> None:
    # The end of a bundle waits for the last look: at Beam's own 200 ms, a tenth of a second a bundle.
    def write(_, path):
        from apache_beam.runners.worker import statesampler

        Path(path).write_text(str(statesampler.get_current_tracker().sampling_period_ms))

    with beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(write, str(tmp_path / "seen"))
    assert (tmp_path / "seen").read_text() == "5"


@pytest.mark.parametrize(
    ("die", "described"),
    [
        (lambda: os._exit(7), "exit code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL); the usual cause is too little memory"),
        (lambda: os.kill(os.getppid(), signal.SIGKILL), "with the process that it was forked from"),
        (lambda: (sys.stderr.write("last words\n"), sys.stderr.flush(), os.abort()), "SIGABRT): last words"),
    ],
    ids=["exit", "killed", "all at once", "aborted"],
)
def test_a_dead_worker_ends_the_pipeline(die, described: str, capfd: pytest.CaptureFixture[str]) -> None:
    def work(number):
        if number == 5:
            die()
        time.sleep(600 if number == 6 else 0)

    with (
        pytest.raises(ClozelineError) as caught,
        beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline,
    ):
        _ = pipeline | beam.Create(range(8), reshuffle=False) | beam.Reshuffle() | beam.Map(work)
    assert described in str(caught.value)
    assert "run the same command again" in str(caught.value)
    assert not find_workers()
    assert "Traceback" not in capfd.readouterr().err


def test_an_exception_comes_back_with_its_traceback() -> None:
    def work(number):
        if number == 3:
            raise ValueError(f"bad number {number}")
        time.sleep(600 if number == 4 else 0)

    with (
        pytest.raises(RuntimeError, match=r"ValueError: bad number 3 \[while running"),
        beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline,
    ):
        _ = pipeline | beam.Create(range(6), reshuffle=False) | beam.Reshuffle() | beam.Map(work)
    assert not find_workers()


def start_sleeping_pipeline(folder: Path) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """Start a pipeline in a process of its own; returns when both workers are busy for ten minutes.

    Returns:
        The process, and its own: the workers and the one that they are forked from.
    """
    program = f"""
        import time
        from pathlib import Path
        import apache_beam as beam
        from pipelines.launching import run_pipeline

        def construct(pipeline):
            def work(number):
                Path({str(folder)!r}, str(number)).touch()
                time.sleep(600)
            return pipeline | beam.Create([1, 2], reshuffle=False) | beam.Reshuffle() | beam.Map(work)

        run_pipeline(construct, workers=2)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    while len(os.listdir(folder)) < 2:
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.02)
    return process, psutil.Process(process.pid).children(recursive=True)


def test_ctrl_c_ends_the_workers_at_once(tmp_path: Path) -> None:
    process, started = start_sleeping_pipeline(tmp_path)
    # To the whole group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGINT, output
    assert output.count("Traceback") == 1, output  # Python's own, for the KeyboardInterrupt
    assert len(started) == 3
    assert not any(child.is_running() for child in started)


def test_workers_end_with_a_killed_runner(tmp_path: Path) -> None:
    process, started = start_sleeping_pipeline(tmp_path)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(started, timeout=30)
    assert len(started) == 3
    assert not alive


@given(st.integers(0, 100_000), st.integers(1, 256))
def test_bundles_take_every_element_once_and_get_smaller(num_elements: int, num_workers: int) -> None:
    sizes = bundle_sizes(num_elements, num_workers)
    assert sum(sizes) == num_elements
    assert sizes == sorted(sizes, reverse=True)
    assert sizes == [0] or sizes[-1] == 1
    assert sizes[0] * num_workers * 4 <= max(num_elements, num_workers * 4)


def test_a_few_elements_are_dealt_one_by_one() -> None:
    assert bundle_sizes(8, 2) == [1] * 8
    assert bundle_sizes(20, 2) == [2, 2, 2, 1] + [1] * 13
    assert bundle_sizes(0, 2) == [0]
