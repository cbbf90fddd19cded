"""Readers: from bytes in files to batches of documents, in bounded memory.

One module a layout; `read_documents` puts them together. A document that can't be read is rejected with a
reason and never ends the job; a file that can't be read (missing, truncated, no Parquet) does, by name.
"""

from pipelines.readers.batches import DocumentBatch
from pipelines.readers.documents import read_documents

__all__ = ["DocumentBatch", "read_documents"]
