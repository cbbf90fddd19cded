"""The errors that a person is meant to read.

Every message is one or two lines that name the thing, what was found, what was expected and what to do. The
command line prints it without a traceback and exits with `exit_code`.
"""

from __future__ import annotations


class ClozelineError(Exception):
    """The work failed for a reason that the message explains (exit code 1)."""

    exit_code = 1


class UsageError(ClozelineError):
    """The command line, a configuration or a recipe is wrong; nothing was started (exit code 2)."""

    exit_code = 2


class CorruptDataError(ClozelineError):
    """A file of ours is not what its manifest says: truncated, changed, or malformed (exit code 1)."""
