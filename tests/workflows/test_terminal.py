import json
import subprocess
import sys

import pytest

from workflows.terminal import (
    Terminal,
    _BarReporter,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_format_count_and_share() -> None:
    assert format_count(1234567) == "1,234,567"
    assert format_share(0.1234) == "12.3%"


def test_format_bytes() -> None:
    assert [format_bytes(size) for size in (0, 999, 1234, 5e6, 7.25e9, 3e12)] == [
        *("0 bytes", "999 bytes", "1.2 kB", "5.0 MB", "7.2 GB", "3.0 TB")
    ]


def test_the_summary_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().finish({}, [("Stage", ""), ("a", "1"), ("longer", "2")], "clozeline next")
    captured = capsys.readouterr()
    assert captured.out == "Stage\n  a       1\n  longer  2\nNext: clozeline next\n"
    assert captured.err == ""


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(as_json=True).finish({"a": None, "b": "é"}, [("a", "1")], "next")
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": "é"}


def test_progress_off_a_terminal_is_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The reporter looks at the clock twice in a call.
    seconds = iter([100.0, 105.0, 105.0, 111.0, 111.0, 112.0, 112.0, 130.0, 130.0])
    monkeypatch.setattr("workflows.terminal.time.monotonic", lambda: next(seconds))
    with Terminal().work("ingest", "reads") as progress:
        progress(1, 10)  # 5 s after the start: too early for a line
        progress(2, 10)  # 11 s: one piece in 6 s, whatever came before the first report
        progress(3, 10)
        progress.note("loss 1.0")
        progress(10, 10)  # 30 s
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "ingest ...\ningest: 2 of 10 reads, 48 s left\ningest: 10 of 10 reads, finishing, loss 1.0\n"
    )


def test_only_rank_0_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    terminal = Terminal()
    with terminal.work("train", "steps") as progress:
        progress(1, 2)
    terminal.warn("w")
    terminal.finish({"a": 1}, [("a", "1")], "next")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_nothing_else_reaches_standard_output() -> None:
    program = """
import os, subprocess, sys
from workflows.terminal import Terminal
terminal = Terminal(as_json=True)
with terminal.work("w", "pieces") as progress:
    print("a library prints")
    os.write(1, b"a library writes\\n")
    subprocess.run([sys.executable, "-c", "print('a child prints')"], check=True)
terminal.finish({"ok": True}, [], "")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"ok": True}
    for said in ("a library prints", "a library writes", "a child prints"):
        assert said in done.stderr


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Terminal().work("ingest", "reads") as progress:
        progress(3, 4)
        progress.note("half way")
        progress(4, 4)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "4/4 reads" in captured.err
    assert "half way" in captured.err


def test_a_bar_says_what_comes_after_the_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[dict[str, object]] = []
    now = 100.0
    monkeypatch.setattr("workflows.terminal.time.monotonic", lambda: now)
    reporter = _BarReporter("reads", "learning the entries")
    reporter.update = lambda **fields: updates.append(fields)
    reporter(0, 2)
    now = 101.0
    reporter(2, 2)
    now = 170.0
    assert reporter.elapsed == "1 min 10 s"
    reporter.close()
    assert [update["facts"] for update in updates] == [
        "0/2 reads",
        "2/2 reads, 2.0/s, learning the entries",
        "2/2 reads",
    ]


def test_what_an_earlier_process_did_is_not_in_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[dict[str, object]] = []
    now = 100.0
    monkeypatch.setattr("workflows.terminal.time.monotonic", lambda: now)
    reporter = _BarReporter("steps", "finishing")
    reporter.update = lambda **fields: updates.append(fields)
    now = 104.0
    reporter(150, 200)
    now = 109.0
    reporter(160, 200)
    assert [update["facts"] for update in updates] == ["150/200 steps", "160/200 steps, 2.0/s, 20 s left"]


@pytest.mark.parametrize("before_note", [", ", "\n"], ids=["wide", "narrow"])
def test_a_note_stands_beside_the_progress_or_below_it(before_note: str) -> None:
    updates: list[dict[str, object]] = []
    reporter = _BarReporter("steps", "finishing", before_note)
    reporter.update = lambda **values: updates.append(values)
    reporter(3, 3)
    reporter.note("loss 2.000")
    reporter(3, 3)
    reporter.close()
    assert [str(update["facts"]).partition(before_note + "loss")[1] != "" for update in updates] == [
        False,
        True,
        True,
    ]


def test_no_bar_stays_of_work_that_was_found_done() -> None:
    updates: list[dict[str, object]] = []
    reporter = _BarReporter("reads", "finishing")
    reporter.update = lambda **fields: updates.append(fields)
    reporter.close()
    assert updates == [{"visible": False}]
