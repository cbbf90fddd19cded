"""How a failure reaches the person: one or two lines on standard error, and an exit code.

In: a call and the arguments it came from. Out: 0 done; 1 the work failed; 2 the command line or a recipe is
wrong; 130 interrupted. A traceback is shown only where `--debug` was given.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from schemas.errors import ClozelineError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_EXTRA_OF_MODULE = {
    "apache_beam": "pipelines",
    "sentencex": "pipelines",
    "orjson": "pipelines",
    "zstandard": "pipelines",
    "torch": "trainer",
    "safetensors": "trainer",
    "webdataset": "trainer",
    "tensorboard": "trainer",
    "gcsfs": "gcp",
    "s3fs": "aws",
}

# torch raises RuntimeErrors of its own kinds, which can't be named here without importing it.
_TORCH_OUT_OF_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "CUDA out of memory")
_TORCH_NO_COMPILER = "InvalidCxxCompiler"


def run_to_exit_code(call: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Run a command and turn whatever it raises into an exit code and a message.

    Args:
        call: the command; an integer that it returns is an exit code.
        arguments: the command line; `--debug` before any `--` asks for tracebacks.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        result = call()
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        # click turns an interruption into Abort; the trainer's own says how to go on.
        told = str(error.__cause__ or error)
        click.echo(told or "interrupted; type the same command again to go on from here", err=True)
        return EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except Exception as error:
        if "--debug" in own:
            traceback.print_exc()
        message, code = describe_failure(error)
        click.echo(f"error: {message}", err=True)
        return code
    return result if isinstance(result, int) else 0


def describe_failure(error: Exception) -> tuple[str, int]:
    """The message, of one or two lines, and the exit code for an exception."""
    if isinstance(error, ClozelineError):
        return _at_most_two_lines(str(error)), error.exit_code
    if isinstance(error, click.UsageError):
        hint = f"\nSee `{error.ctx.command_path} --help`." if error.ctx else ""
        return _at_most_two_lines(" ".join(error.format_message().split()) + hint), EXIT_USAGE
    if isinstance(error, click.ClickException):
        return _at_most_two_lines(error.format_message()), error.exit_code
    if isinstance(error, ModuleNotFoundError):
        return _describe_missing_module(error), EXIT_FAILED
    if isinstance(error, OSError) and error.errno is not None:
        return _describe_os_error(error), EXIT_FAILED
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(words in text for words in _TORCH_OUT_OF_MEMORY):
        return "out of memory.\nGive fewer --workers, a smaller batch, or a smaller model.", EXIT_FAILED
    if _TORCH_NO_COMPILER in text:
        return (
            "--compile needs a C++ compiler, and none was found.\nInstall g++, or leave it out.",
            EXIT_FAILED,
        )
    return (
        f"unexpected {type(error).__name__}: {text[:300]}\n"
        "That is a defect of clozeline: run the command again with --debug and report the traceback."
    ), EXIT_FAILED


def _describe_missing_module(error: ModuleNotFoundError) -> str:
    top = (error.name or "").split(".")[0]
    extra = _EXTRA_OF_MODULE.get(top)
    if extra is None:
        return f"the Python module {error.name!r} is not installed.\nInstall it with pip, then try again."
    return f"this command needs {top}, which is not installed.\nInstall it: pip install 'clozeline[{extra}]'"


def _describe_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedies = {
        errno.ENOSPC: "Free some space or choose another --output, then type the same command again.",
        errno.EROFS: "Choose an --output that can be written.",
        errno.EACCES: "Check the permissions, or choose another path.",
        errno.ENOTDIR: "A part of that path is a file; choose another path.",
    }
    remedy = remedies.get(error.errno or 0, "")
    return f"{where}{error.strerror}." + (f"\n{remedy}" if remedy else "")


def _at_most_two_lines(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return "\n".join([*lines[:1], " ".join(lines[1:])]).strip()
