"""Other ways from text to masked examples, for comparison: each function runs in a fresh process on one core.

In: a watch, paths. Out: the number of documents and examples. Everything from reading the file to writing the
examples is counted; imports are not.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks import reference_script
from tests.benchmarks.corpora import read_documents
from tests.benchmarks.measuring import Watch
from tests.benchmarks.plain_wordpiece import PlainWordPiece


def run_reference(
    watch: Watch, sentences: str, tokenizer: str, output: str, with_library: bool
) -> dict[str, Any]:
    """The reference script's algorithm on text that is split into sentences already, as it asks for.

    Args:
        watch: counts all of it.
        sentences: a sentence a line, an empty line after each document.
        tokenizer: a folder with `vocab.txt` and `tokenizer.json`.
        output: the file to write.
        with_library: tokenize by the `tokenizers` library, a sentence at a time, rather than in plain Python.
    """
    from tokenizers import Tokenizer

    with watch:
        words = Path(tokenizer, "vocab.txt").read_text(encoding="utf-8").splitlines()
        ids = {word: index for index, word in enumerate(words)}
        library = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
        tokenize: Callable[[str], list[str]] = PlainWordPiece(ids).tokenize
        if with_library:
            tokenize = lambda sentence: library.encode(sentence, add_special_tokens=False).tokens  # noqa: E731
        documents = reference_script.read_documents(Path(sentences), tokenize)
        examples = reference_script.create_examples(documents, words, random.Random(0))
        num_examples = reference_script.write_examples(examples, ids, Path(output))
    return {"num_documents": len(documents), "num_examples": num_examples}


def run_datasets_map(watch: Watch, documents: str, tokenizer: str, output: str) -> dict[str, Any]:
    """`datasets`: a batched map that segments, tokenizes and pairs, and a map that masks each example."""
    import datasets
    import sentencex
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    encoder = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    words = range(encoder.get_vocab_size())
    specials = tuple(map(encoder.token_to_id, ("[CLS]", "[SEP]", "[MASK]")))
    rng = random.Random(0)

    def pair(batch: dict[str, list[str]]) -> dict[str, Any]:
        sentences = [[s for s in map(str.strip, sentencex.segment("en", t)) if s] for t in batch["text"]]
        flat = [sentence for document in sentences for sentence in document]
        encoded = iter(encoder.encode_batch_fast(flat, add_special_tokens=False))
        tokens = [[t for _ in document if (t := next(encoded).ids)] for document in sentences]
        tokens = [document for document in tokens if document]
        pairs = [
            pair
            for index in range(len(tokens))
            for pair in reference_script.pair_document(tokens, index, rng)
        ]
        segments_a, segments_b, labels = map(list, zip(*pairs, strict=True))
        return {"segment_a": segments_a, "segment_b": segments_b, "next_sentence_label": labels}

    def mask(example: dict[str, Any]) -> dict[str, Any]:
        masked = reference_script.mask(
            example["segment_a"], example["segment_b"], example["next_sentence_label"], words, rng, specials
        )
        return {
            "input_ids": masked.tokens,
            "token_type_ids": masked.segment_ids,
            "masked_lm_positions": masked.masked_lm_positions,
            "masked_lm_ids": masked.masked_lm_labels,
        }

    with watch:
        text = datasets.load_dataset("json", data_files=documents, split="train", cache_dir=f"{output}-cache")
        num_documents = len(text)
        paired = text.map(pair, batched=True, batch_size=1000, remove_columns=text.column_names)
        masked = paired.map(mask, remove_columns=["segment_a", "segment_b"])
        masked.shuffle(seed=0).save_to_disk(output)
    return {"num_documents": num_documents, "num_examples": len(masked)}


def has_lddl() -> bool:
    """Whether the modules of LDDL and what they import can be found."""
    return all(importlib.util.find_spec(name) for name in ("lddl", "dask", "distributed", "nltk"))


def run_lddl_functions(watch: Watch, documents: str, tokenizer: str, output: str) -> dict[str, Any]:
    """LDDL 0.1.0's own functions for documents and masked pairs, called in one process without its Dask.

    Without Dask's graph, its shuffle and its communication they have less to do than LDDL has. Its splitter
    into sentences (NLTK's Punkt, whose model isn't on PyPI) is replaced by the faster sentencex.
    """
    import nltk
    import pyarrow as pa
    import pyarrow.parquet as pq
    import sentencex
    import transformers

    # The module imports this one for its sequence bins, which aren't used; it fails with today's Dask.
    binning = types.ModuleType("lddl.dask.bert.binning")
    for name in ("to_textfiles_binned", "to_dataframe_binned", "to_parquet_binned"):
        setattr(binning, name, None)
    sys.modules[binning.__name__] = binning
    from lddl.dask.bert import pretrain

    nltk.tokenize.sent_tokenize = lambda text: sentencex.segment("en", text)
    fast = transformers.BertTokenizerFast(vocab_file=f"{tokenizer}/vocab.txt")
    with watch:
        texts = _Bag(f"{line['id']} {line['text']}" for line in read_documents(Path(documents)))
        bag = tuple(pretrain._get_documents(texts, fast))
        words = tuple(fast.vocab.keys())
        random.seed(0)
        pairs = [
            pair
            for index in range(len(bag))
            for pair in pretrain.create_pairs_from_document(bag, index, masking=True, vocab_words=words)
        ]
        random.shuffle(pairs)
        pq.write_table(pa.Table.from_pylist(pairs), output)
    return {"num_documents": len(bag), "num_examples": len(pairs)}


class _Bag:
    """The two methods of a Dask bag that LDDL's functions call, without Dask."""

    def __init__(self, elements: Any) -> None:
        self._elements = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def map(self, function: Callable[[Any], Any]) -> _Bag:
        return _Bag(map(function, self._elements))

    def filter(self, function: Callable[[Any], bool]) -> _Bag:
        return _Bag(filter(function, self._elements))
