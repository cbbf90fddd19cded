"""Text files whose documents can't be told apart: found before any work, with what to type instead.

In: a configuration of `vocab` or `ingest`. Out: warnings, or an error. Under `--format auto` a text file is
one document. That is right for a folder of texts, and never for a whole collection in one file: only `build`
would find that one document makes no dataset, and a large one is tokenized at length before that.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.configs import IngestConfig, VocabConfig
from schemas.errors import UsageError

LARGEST_TEXT_BYTES = 16_000_000
"""Stored bytes that one document may plausibly have: three times the Bible."""
_REMEDY = (
    "Say what a document is in it: --format text-lines (each line), text-sentences (a sentence a line, "
    "blank lines between documents), or text (the whole file)."
)


def check_text_layout(config: IngestConfig | VocabConfig, beam_args: Sequence[str] = ()) -> tuple[str, ...]:
    """Find text files that would be taken as one document each and are hardly meant so.

    Args:
        config: the inputs and their format; any format but `auto` is the person's word and is not questioned.
        beam_args: Beam's own options, which reading from cloud storage may need.

    Returns:
        a warning where a corpus is to be made from one text file alone; a vocabulary may well be learnt so.

    Raises:
        UsageError: a text file is larger than `LARGEST_TEXT_BYTES`, or an input is missing or of an unknown
            format.
    """
    if config.format != "auto":
        return ()
    from pipelines import storage
    from pipelines.reads import detect_format, expand_inputs

    storage.use_options(beam_args)
    files = expand_inputs(config.inputs)
    texts = [file for file in files if detect_format(file.path, config)[0] == "text"]
    for file in texts:
        if file.size_bytes > LARGEST_TEXT_BYTES:
            size = f"{file.size_bytes / 1e6:,.1f} MB"
            raise UsageError(f"{file.path} would be read as one document of {size}.\n{_REMEDY}")
    if len(files) == len(texts) == 1 and isinstance(config, IngestConfig):
        return (f"{texts[0].path} is read as one document, and a dataset needs many. {_REMEDY}",)
    return ()
