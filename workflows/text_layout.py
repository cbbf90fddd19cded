"""Text files whose documents can't be told apart: refused before any work, with what to type instead.

In: a configuration of `vocab` or `ingest`. Out: nothing, or an error. Under `--format auto` a text file is one
document. That is right for a folder of texts, and never for a whole collection in one file: it would be
tokenized at length, and only `build` would find that one document makes no dataset.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.configs import IngestConfig, VocabConfig
from schemas.errors import UsageError

LARGEST_TEXT_BYTES = 16_000_000
"""Stored bytes that one document may plausibly have: three times the Bible."""


def require_told_layout(config: IngestConfig | VocabConfig, beam_args: Sequence[str] = ()) -> None:
    """Refuse a text file that would be taken as one document and is none.

    That is a file larger than `LARGEST_TEXT_BYTES`, and for a corpus also one that is the only input. A
    vocabulary may well be learnt from one document.

    Args:
        config: the inputs and their format; any format but `auto` is the person's word and is not questioned.
        beam_args: Beam's own options, which reading from cloud storage may need.

    Raises:
        UsageError: there is such a file, or an input is missing or of an unknown format.
    """
    if config.format != "auto":
        return
    from pipelines import storage
    from pipelines.reads import detect_format, expand_inputs

    storage.use_options(beam_args)
    files = expand_inputs(config.inputs)
    is_alone = len(files) == 1 and isinstance(config, IngestConfig)
    for file in files:
        if is_alone or file.size_bytes > LARGEST_TEXT_BYTES:
            if detect_format(file.path, config)[0] == "text":
                raise UsageError(_explain(file.path, file.size_bytes))


def _explain(path: str, num_bytes: int) -> str:
    size = f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:,.1f} kB"
    return (
        f"{path} ({size}) would be read as one document, and a dataset needs many.\n"
        "Say what a document is in it: --format text-lines (each line), text-sentences (a sentence a line, "
        "blank lines between documents), or text (the whole file)."
    )
