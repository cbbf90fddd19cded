"""Why a document is left out: the one list of reasons, and the record of one such document.

A rejected document is never only logged: it is written to `rejects/` with its reason and counted in
`corpus.json`, so that documents read = documents kept + documents rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

EMPTY = "empty"
"""The text has no character but white space."""
INVALID_UTF8 = "invalid_utf8"
"""The bytes are no UTF-8; the detail names the file and the offset of the first wrong byte."""
INVALID_JSON = "invalid_json"
"""The line is no JSON, or no object."""
INVALID_CSV = "invalid_csv"
"""The row of a CSV or TSV file has not as many fields as the header, or its quotation marks are wrong."""
MISSING_TEXT = "missing_text"
"""The text field is absent, null or no string."""
TOO_LONG = "too_long"
"""The document is longer than `max_document_bytes`."""
DUPLICATE = "duplicate"
"""The text is that of an earlier document."""
NO_TOKENS = "no_tokens"
"""The tokenizer finds no token in the text."""

REASONS = (EMPTY, INVALID_UTF8, INVALID_JSON, INVALID_CSV, MISSING_TEXT, TOO_LONG, DUPLICATE, NO_TOKENS)

ADVICE_BY_REASON = {
    INVALID_JSON: "JSONL has an object on each line; for anything else see --format.",
    INVALID_CSV: "Check --format.",
    MISSING_TEXT: "Name the field that holds the text with --text-field.",
    TOO_LONG: "Where each line is a document, give --format text-lines; else raise --max-document-bytes.",
}
"""What to change where a reason has left no document at all."""


@dataclass(frozen=True, slots=True)
class RejectedDocument:
    """A document that is left out.

    Attributes:
        document_id: its identifier, or `<file>:<byte offset or row>` where it has none or none can be read.
        reason: one of `REASONS`.
        detail: what was found, in words.
    """

    document_id: str
    reason: str
    detail: str
