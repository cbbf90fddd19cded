import errno

import click
import pytest

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from workflows.failures import describe_failure, run_to_exit_code


def _missing_module(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        pytest.param(ClozelineError("a\nb"), "a\nb", 1, id="work-failed"),
        pytest.param(UsageError("a"), "a", 2, id="usage"),
        pytest.param(CorruptDataError("a\nb\n\nc"), "a\nb c", 1, id="three-lines-become-two"),
        pytest.param(click.UsageError("No such option: --x"), "No such option: --x", 2, id="click"),
        pytest.param(
            _missing_module("torch.nn"),
            "this command needs torch, which is not installed.\nInstall it: pip install 'clozeline[trainer]'",
            1,
            id="no-torch",
        ),
        pytest.param(
            _missing_module("apache_beam"),
            "this command needs apache_beam, which is not installed.\n"
            "Install it: pip install 'clozeline[pipelines]'",
            1,
            id="no-beam",
        ),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device", "x/y"),
            "x/y: No space left on device.\n"
            "Free some space or choose another --output, then type the same command again.",
            1,
            id="full-disk",
        ),
        pytest.param(
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
            ),
            "out of memory.\nGive fewer --workers, a smaller batch, or a smaller model.",
            1,
            id="torch-out-of-memory",
        ),
        pytest.param(
            RuntimeError(
                "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx"
            ),
            "--compile needs a C++ compiler, and none was found.\nInstall g++, or leave it out.",
            1,
            id="torch-without-compiler",
        ),
        pytest.param(
            ZeroDivisionError("division\nby zero"),
            "unexpected ZeroDivisionError: division by zero\n"
            "That is a defect of clozeline: run the command again with --debug and report the traceback.",
            1,
            id="defect",
        ),
    ],
)
def test_describe_failure(error: Exception, message: str, code: int) -> None:
    assert describe_failure(error) == (message, code)


def _raise(error: BaseException) -> None:
    raise error


def test_an_interruption_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(lambda: _raise(KeyboardInterrupt()), []) == 130
    assert capsys.readouterr().err == "interrupted; type the same command again to go on from here\n"


def test_an_interruption_that_says_how_to_go_on_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(lambda: _raise(KeyboardInterrupt("go on with --resume run")), []) == 130
    assert capsys.readouterr().err == "go on with --resume run\n"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [(["x"], False), (["x", "--debug"], True), (["x", "--", "--debug"], False)],
    ids=["without", "with", "belongs-to-beam"],
)
def test_a_traceback_only_with_debug(
    arguments: list[str], shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_to_exit_code(lambda: _raise(ClozelineError("it failed")), arguments) == 1
    error = capsys.readouterr().err
    assert ("Traceback" in error) is shown
    assert error.endswith("error: it failed\n")


def test_success_is_zero() -> None:
    assert run_to_exit_code(lambda: None, []) == 0
