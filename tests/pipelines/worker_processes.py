"""The worker processes of this one, as the operating system sees them."""

import psutil


def find_workers() -> list[psutil.Process]:
    """The processes that run Beam's steps: forked from one, or more, that this process started."""
    return [worker for server in find_fork_servers() for worker in _children(server)]


def find_fork_servers() -> list[psutil.Process]:
    """The processes that workers are forked from; other tests may have left children of other kinds."""
    return [child for child in psutil.Process().children() if "pipelines.local_worker" in _command(child)]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
