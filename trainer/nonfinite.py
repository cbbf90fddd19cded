"""Steps whose loss or gradient is not finite: named, counted, and ended when there are too many.

In: the result of such a step, whose update the device left out. Out: a line of `nonfinite.jsonl` with the
shards, blocks and rows of its examples, and an error once more steps than allowed were skipped.
Deterministic: the same on every rank.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from itertools import chain
from typing import Any

from schemas.errors import ClozelineError
from trainer.data.loader import merge_states
from trainer.data.order import Order
from trainer.data.origins import ExampleOrigin, locate_examples
from trainer.job import TrainingJob
from trainer.metrics import keep_lines
from trainer.run_folder import NONFINITE_NAME, RunFolder
from trainer.step_result import StepResult

# More examples than these are in the file, not in the message.
LARGEST_LISTED = 24
_NAMES = {
    "masked_lm_loss": "masked-LM loss",
    "next_sentence_loss": "next-sentence loss",
    "gradient_norm": "norm of the gradient",
}


class NonfiniteSteps:
    """Deals with the steps of a run that were skipped.

    Args:
        job: of the run.
        run: its folder.
        order: of its stream.
    """

    def __init__(self, job: TrainingJob, run: RunFolder, order: Order) -> None:
        self._job = job
        self._run = run
        self._order = order

    def handle(self, step: int, result: StepResult, stream_state: dict[str, Any], num_skipped: int) -> None:
        """Note a skipped step.

        Args:
            step: its number.
            result: what it gave.
            stream_state: of this rank before it.
            num_skipped: skipped steps of the run until now, this one included.

        Raises:
            ClozelineError: there were more than `skip_nonfinite`, on every rank.
        """
        ranks = self._job.ranks
        state = merge_states(ranks.gather_json(stream_state))
        place = ranks.broadcast_json(ranks.run_on_first(lambda: self._record(step, result, state)))
        allowed = self._job.record.config.skip_nonfinite
        if num_skipped <= allowed:
            return
        numbers = [(name, getattr(result, field)) for field, name in _NAMES.items()]
        name, value = next((name, value) for name, value in numbers if not math.isfinite(value))
        after = f" after {allowed} skipped {'step' if allowed == 1 else 'steps'}" if allowed else ""
        raise ClozelineError(
            f"Training diverged: the {name} of step {step} is {value}{after}; {place}.\n"
            f"No checkpoint holds it: go on without such steps by `clozeline train --resume "
            f"{shlex.quote(self._run.path)} --skip-nonfinite {max(10, 2 * num_skipped)}`, or train anew with "
            f"a lower --learning-rate or more --warmup-steps."
        )

    def _record(self, step: int, result: StepResult, stream_state: dict[str, Any]) -> str:
        """Write down a step; where its examples lie, in words."""
        numbers = {field: getattr(result, field) for field in _NAMES}
        # JSON has no word for them.
        written = {field: x if math.isfinite(x) else str(x) for field, x in numbers.items()}
        try:
            lanes = locate_examples(self._job.datasets, self._order, stream_state)
        except ClozelineError as error:
            # The loss is what the person must hear of first.
            return f"its examples could not be found ({str(error).splitlines()[0]})"
        origins = sorted(chain.from_iterable(lanes.values()))
        line = json.dumps({"step": step, **written, "examples": _group(origins)}) + "\n"
        before = self._run.read_bytes(NONFINITE_NAME) if self._run.exists(NONFINITE_NAME) else b""
        self._run.write_bytes(NONFINITE_NAME, keep_lines(before, step - 1) + line.encode())
        return _describe(origins, self._run.locate(NONFINITE_NAME))


def _group(origins: Sequence[ExampleOrigin]) -> dict[str, dict[str, list[int]]]:
    """Rows by shard and block."""
    grouped: dict[str, dict[str, list[int]]] = {}
    for shard, block, row in origins:
        grouped.setdefault(shard, {}).setdefault(str(block), []).append(row)
    return grouped


def _describe(origins: Sequence[ExampleOrigin], path: str) -> str:
    shown = []
    for shard, blocks in _group(origins[:LARGEST_LISTED]).items():
        rows = [f"block {block} rows {', '.join(map(str, rows))}" for block, rows in blocks.items()]
        shown.append(f"{shard} {', '.join(rows)}")
    shards = len({origin.shard for origin in origins})
    more = f", and more in {shards} shards" if len(origins) > LARGEST_LISTED else ""
    return f"its {len(origins)} examples are {'; '.join(shown)}{more} (all in {path})"
