"""The process that works for `pipelines.local_runner`: `python -m pipelines.local_worker`.

In: Beam's environment variables (where the runner listens, the pipeline options) and a pipe as standard input
that the runner holds open. Out: nothing but what the pipeline writes. It ends when the runner says so, and at
once when the pipe closes, which the operating system does whichever way the runner dies.
"""

from __future__ import annotations

import os
import sys
import threading

_EXIT_ORPHANED = 3


def main() -> None:
    """Run Beam's worker until the runner ends it."""
    threading.Thread(target=_end_with_the_runner, name="end_with_the_runner", daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


def _end_with_the_runner() -> None:
    while os.read(0, 1):
        pass
    os._exit(_EXIT_ORPHANED)


if __name__ == "__main__":
    main()
