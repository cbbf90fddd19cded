"""The `vocab` job: learn a WordPiece vocabulary from a sample of documents, or extend one by their words.

In: text files and a `VocabConfig`. Out: a folder with `tokenizer.json`, `vocab.txt` and
`tokenizer_config.json` that `clozeline` and transformers' AutoTokenizer open. Deterministic: the same inputs
and configuration give the same bytes, with any number of workers and on any runner.

    SplitIntoReads -> (break fusion) -> CountWords      one table of counts a read, in `_work/`
    merge, learn, write                                 in the launching process; tokenizer.json is the commit
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
from tokenizers import Tokenizer

from pipelines import storage
from pipelines.launching import Progress, count_cores, run_pipeline
from pipelines.reads import check_formats, expand_inputs
from pipelines.storage import FileEntry
from pipelines.tokenizer_files import (
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG_NAME,
    VOCABULARY_NAME,
    bert_tokenizer,
    describe_tokenizer,
    tokenizer_settings,
)
from pipelines.vocabulary_extension import BaseTokenizer, extend_tokenizer, open_base
from pipelines.vocabulary_sample import SamplePlan, plan_sample
from pipelines.vocabulary_steps import CountWords, load_counts
from pipelines.word_counts import WordCounter
from pipelines.wordpiece_training import train_wordpiece
from pipelines.work_folder import WorkFolder, describe_difference
from schemas.configs import VocabConfig
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import TOKENIZER_NAME

RECORD_NAME = "clozeline"
"""The key of `tokenizer_config.json` that says how the vocabulary was learned."""

_TOTALS = ("num_documents", "num_text_bytes", "num_rejected", "num_bytes_read")


@dataclass(frozen=True, kw_only=True)
class VocabSummary:
    """What `run_vocab` did.

    Attributes:
        output: the tokenizer folder.
        vocab_size: tokens in it, at most those asked for.
        num_documents: documents in the sample.
        num_text_bytes: their text in UTF-8.
        sampled_share: about the share of all text that this is: of the text that was read as counted, and of
            the inputs by their stored bytes.
        num_rejected: unreadable or empty documents met on the way.
        num_distinct_words: distinct pieces of words that were counted.
        sha256: of `tokenizer.json`, as corpora record it.
        num_new_words: words put into `[unused…]` entries; None where the vocabulary was learned anew.
    """

    output: str
    vocab_size: int
    num_documents: int
    num_text_bytes: int
    sampled_share: float
    num_rejected: int
    num_distinct_words: int
    sha256: str
    num_new_words: int | None = None


def run_vocab(
    config: VocabConfig,
    output: str,
    *,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress | None = None,
) -> VocabSummary:
    """Learn a vocabulary or extend one, and write it, or find it written.

    Args:
        config: what to learn from and how.
        output: the tokenizer folder to make.
        workers: processes on this machine, None for one a core.
        beam_args: Beam's own options.
        overwrite: replace what is there.
        progress: told how many reads of how many are counted.

    Raises:
        UsageError: an input is missing or of an unknown format, the tokenizer to extend is missing or can't
            be, or the output holds another vocabulary.
        ClozelineError: no document has a word, or reading or writing failed.
    """
    storage.use_options(beam_args)
    base = open_base(config.extend) if config.extend is not None else None
    num_reserved = len(SPECIAL_TOKENS) + config.num_unused
    if base is None and num_reserved >= config.vocab_size:
        raise UsageError(
            f"a vocabulary of {config.vocab_size} has no room for words: "
            f"{num_reserved} entries are reserved.\n"
            "Raise --vocab-size or lower --num-unused."
        )
    files = expand_inputs(config.inputs)
    check_formats(files, config)
    pinned: dict[str, Any] = {"config": config.model_dump(mode="json"), "inputs": _hash_listing(files)}
    if base is not None:
        pinned["extended_sha256"] = base.sha256
    if not overwrite and storage.exists(storage.join(output, TOKENIZER_NAME)):
        return _find_done(output, pinned)
    plan = plan_sample(files, config)
    reads = plan.reads
    work = WorkFolder(output)
    with work.hold():
        work.start(
            pinned, overwrite=overwrite, owned_names=(TOKENIZER_NAME, VOCABULARY_NAME, TOKENIZER_CONFIG_NAME)
        )
        count_words = CountWords(work, config, plan.fraction)
        run_pipeline(
            lambda pipeline: pipeline | beam.Create(reads, reshuffle=False) | count_words,
            workers=min(workers or count_cores(), len(reads)),
            beam_args=beam_args,
            report=work.report_to(progress, len(reads)),
        )
        summary = _learn(work, config, base, pinned, plan)
        work.remove()
    return summary


def _learn(
    work: WorkFolder,
    config: VocabConfig,
    base: BaseTokenizer | None,
    pinned: dict[str, Any],
    plan: SamplePlan,
) -> VocabSummary:
    counter = WordCounter()
    names = [read.name for read in plan.reads]
    for name in names:
        counter.add_table(load_counts(work, name))
    records = work.read_records(names)
    totals = {key: sum(record[key] for record in records) for key in _TOTALS}
    if not counter.counts:
        raise ClozelineError(
            f"no words to learn from: {totals['num_documents']} documents were sampled and "
            f"{totals['num_rejected']} rejected as empty or unreadable.\n"
            "Check --input, --format and --text-field."
        )
    num_bytes_read = totals.pop("num_bytes_read")
    if base is None:
        tokenizer, num_new_words = _train(counter.counts, config), None
        settings = tokenizer_settings(lowercase=config.lowercase, strip_accents=config.strip_accents)
    else:
        tokenizer, num_new_words = extend_tokenizer(
            counter.counts,
            base,
            max_new_words=config.max_new_words,
            min_frequency=config.min_frequency,
        )
        settings = base.settings
    tokenizer, tokenizer_record, content = describe_tokenizer(tokenizer, work.output)
    summary = VocabSummary(
        output=work.output,
        vocab_size=tokenizer_record.vocab_size,
        sampled_share=plan.read_share * totals["num_text_bytes"] / num_bytes_read,
        num_distinct_words=len(counter.counts),
        sha256=tokenizer_record.sha256,
        num_new_words=num_new_words,
        **totals,
    )
    _write(work, tokenizer, content, {**settings, RECORD_NAME: _record(pinned, summary)})
    return summary


def _train(piece_counts: Mapping[str, int], config: VocabConfig) -> Tokenizer:
    tokens = train_wordpiece(
        piece_counts,
        _make_tokenizer([], config),
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        num_unused=config.num_unused,
    )
    return _make_tokenizer(tokens, config)


def _make_tokenizer(tokens: list[str], config: VocabConfig) -> Tokenizer:
    return bert_tokenizer(
        {token: index for index, token in enumerate(tokens)},
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
    )


def _write(work: WorkFolder, tokenizer: Tokenizer, content: bytes, settings: dict[str, Any]) -> None:
    ids = tokenizer.get_vocab(with_added_tokens=True)
    # The settings come first: a vocab.txt without them would pass for an uncased one.
    with work.write_file(TOKENIZER_CONFIG_NAME) as stream:
        stream.write((json.dumps(settings, indent=1, sort_keys=True) + "\n").encode())
    with work.write_file(VOCABULARY_NAME) as stream:
        stream.write("".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__)).encode())
    work.commit(TOKENIZER_NAME, content)


def _record(pinned: dict[str, Any], summary: VocabSummary) -> dict[str, Any]:
    counts = {key: value for key, value in asdict(summary).items() if key != "output"}
    return {**pinned, "summary": counts}


def _find_done(output: str, pinned: dict[str, Any]) -> VocabSummary:
    path = storage.join(output, TOKENIZER_CONFIG_NAME)
    try:
        record = json.loads(storage.read_bytes(path) if storage.exists(path) else b"{}")[RECORD_NAME]
        summary = VocabSummary(output=output, **record["summary"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{output} holds a tokenizer that this version of `clozeline vocab` did not make.\n"
            "Choose another --output, or add --overwrite to replace it."
        ) from None
    found = {key: record.get(key) for key in pinned}
    if found != pinned:
        raise UsageError(
            f"{output} holds a vocabulary of another configuration: {describe_difference(found, pinned)}\n"
            f"{_advise(found, pinned, output)}Choose another --output, or add --overwrite to replace it."
        )
    work = WorkFolder(output)
    if storage.is_folder(work.path):  # left by a process that ended right after its commit
        with work.hold():
            work.remove()
    return summary


def _advise(before: Mapping[str, Any], now: Mapping[str, Any], output: str) -> str:
    """What a person may be after who asks for another seed alone in the folder that `prepare` made."""
    seed = {"seed": now["config"]["seed"]}
    folder, _, name = output.rstrip("/").rpartition("/")
    corpus = storage.join(folder or ".", "corpus")
    same = {**before, "config": {**(before["config"] or {}), **seed}} == now
    if not same or name != "tokenizer" or not storage.is_folder(corpus):
        return ""
    return (
        "Another dataset needs no other vocabulary: "
        f"`clozeline prepare --corpus {shlex.quote(corpus)} --seed {seed['seed']} --output NEW`. "
    )


def _hash_listing(files: Sequence[FileEntry]) -> str:
    listing = "\n".join(f"{file.path}\t{file.size_bytes}" for file in files)
    return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()
