"""Whether a dataset is what its manifest says, and every example what an example must be.

In: an opened dataset. Out: a `DatasetVerification`: what was counted, the statistics of its draws, and the
faults found, each naming the shard and the example. Sizes, checksums, tar structure, schema and value ranges
are checked by the trainer's own reader. Deterministic: the same for any number of processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from schemas.errors import ClozelineError
from schemas.manifests import TOKENIZER_NAME, ShardRecord
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import arrays_from_blocks
from workflows.verifying.chosen_tokens import ChosenTokens
from workflows.verifying.draw_statistics import Statistic, judge_draws
from workflows.verifying.draw_tally import DrawTally
from workflows.verifying.example_rules import find_broken_rules
from workflows.verifying.folder_files import Progress, find_wrong_sizes, list_files
from workflows.verifying.processes import spread
from workflows.verifying.rulebook import Rulebook, make_rulebook
from workflows.verifying.shard_counts import ShardCounts, compare_counts

_SHARD_NAME = re.compile(r"(train|validation)-\d{5,}-of-\d{5,}\.tar")


@dataclass(frozen=True)
class DatasetVerification:
    """The outcome.

    Attributes:
        num_shards: shards looked at.
        num_examples: examples looked at.
        num_tokens: their tokens.
        lengths: figures of their lengths; empty after a look at the sizes alone.
        statistics: of the draws in shards without a fault; none after a look at the sizes alone.
        faults: one line each; none means that everything holds.
        listed: whether the folder could be listed, so that files too many were found.
    """

    num_shards: int
    num_examples: int = 0
    num_tokens: int = 0
    lengths: dict[str, float] = field(default_factory=dict)
    statistics: tuple[Statistic, ...] = ()
    faults: tuple[str, ...] = ()
    listed: bool = True


@dataclass(frozen=True)
class ShardOutcome:
    """What was found in one shard, and its draws, which count only where nothing is wrong."""

    counts: ShardCounts
    tally: DrawTally
    faults: tuple[str, ...]


def verify_sizes(dataset: Dataset, progress: Progress) -> DatasetVerification:
    """Check that every file is there, as long as the manifest says, and none too many; read none of them."""
    expected = _expected_sizes(dataset)
    files = list_files(dataset.url, expected)
    faults = list(find_wrong_sizes(dataset.url, expected, files, progress))
    faults += files.find_strays(expected, _SHARD_NAME) if files is not None else ()
    shards = dataset.manifest.shards
    return DatasetVerification(len(shards), faults=tuple(faults), listed=files is not None)


def verify_dataset(dataset: Dataset, progress: Progress, workers: int = 1) -> DatasetVerification:
    """Check every shard and every example.

    Args:
        dataset: an opened dataset.
        progress: called with (shards done, shards in all).
        workers: processes to spread the shards over.

    Raises:
        ClozelineError: a process died.
    """
    expected = _expected_sizes(dataset)
    files = list_files(dataset.url, expected)
    faults = list(files.find_strays(expected, _SHARD_NAME)) if files is not None else []
    tokenizer_json = None
    try:
        tokenizer_json = dataset.read_tokenizer()
    except ClozelineError as error:
        faults.append(one_line(error))
    rulebook = make_rulebook(dataset.manifest, tokenizer_json)
    shards = dataset.manifest.shards
    # A process needs the settings of the manifest, not the records of all shards.
    bare = Dataset(dataset.url, dataset.manifest.model_copy(update={"shards": ()}))
    order = sorted(range(len(shards)), key=lambda number: -shards[number].size_bytes)
    faults_of: dict[int, tuple[str, ...]] = {}
    counts, tally = ShardCounts(), DrawTally()
    work = partial(check_shard, bare, rulebook)
    for number, outcome in spread(work, [shards[number] for number in order], workers):
        faults_of[order[number]] = outcome.faults
        counts.merge(outcome.counts)
        if not outcome.faults:
            tally.merge(outcome.tally)
        progress(len(faults_of), len(shards))
    for number, shard in enumerate(shards):
        faults += faults_of[number]
        if not faults_of[number]:
            tally.add_record(shard)
    statistics = tuple(judge_draws(tally, rulebook.config, rulebook.vocabulary))
    faults += [statistic.complaint for statistic in statistics if not statistic.ok]
    return DatasetVerification(
        num_shards=len(shards),
        num_examples=counts.num_examples,
        num_tokens=counts.num_tokens,
        lengths=tally.describe_lengths(rulebook.config.max_seq_length),
        statistics=statistics,
        faults=tuple(faults),
        listed=files is not None,
    )


def check_shard(dataset: Dataset, rulebook: Rulebook, shard: ShardRecord) -> ShardOutcome:
    """Check one shard; a fault of its file ends the search, of the rules each is named once."""
    counts, tally, faults = ShardCounts(), DrawTally(), dict[str, str]()
    try:
        for block in iterate_blocks(dataset, shard, verify=True):
            examples = arrays_from_blocks([block])
            chosen = ChosenTokens.of(examples, rulebook)
            for rule, row in find_broken_rules(examples, chosen, rulebook):
                faults.setdefault(rule, f"{shard.name}: example {counts.num_examples + row:,}: {rule}")
            counts.add(examples, chosen, rulebook.tokenizer.mask_id)
            if not faults:
                tally.add(examples, chosen, rulebook)
    except ClozelineError as error:
        return ShardOutcome(counts, tally, (*faults.values(), one_line(error)))
    return ShardOutcome(counts, tally, (*faults.values(), *compare_counts(shard, counts)))


def one_line(error: ClozelineError) -> str:
    """A message without its line breaks."""
    return " ".join(str(error).split())


def _expected_sizes(dataset: Dataset) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {shard.name: shard.size_bytes for shard in dataset.manifest.shards}
    return {TOKENIZER_NAME: None, **sizes}
