"""The worker processes of this one, as the operating system sees them."""

import psutil


def find_workers() -> list[psutil.Process]:
    """Children of this process that run Beam's steps; other tests may have left children of other kinds."""
    return [child for child in psutil.Process().children() if "pipelines.local_worker" in _command(child)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
