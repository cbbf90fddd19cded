"""The worked example of the BERT literature, from its text to its loss, through every part on the way.

A is "the cat sat on the mat" and B "it purred softly"; positions 2 and 9 are chosen, 2 becomes `[MASK]` and 9
stays as it is. All weights of the model are 0 but two biases, so that every logit is known.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pipelines.examples import make_blocks, masking_vocabulary
from pipelines.pairing import Pairs
from pipelines.pool_tokens import PoolTokens
from pipelines.shard_writer import serialise_block
from pipelines.tokenization import SentenceTokenizer
from pipelines.tokenizer_files import describe_tokenizer
from schemas.configs import BuildConfig
from schemas.seeding import RandomStream
from trainer.data.batches import assemble_batch
from trainer.data.block_format import BlockLimits, decode_block
from trainer.data.example_arrays import arrays_from_blocks
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining

A, B = "the cat sat on the mat", "it purred softly"
NUM_ENTRIES = 201
MASKED, KEPT = 0.5, 0.95
"""Draws that leave a chosen token masked (below 0.8) and as it was (from 0.9 on)."""


class ScriptedStream(RandomStream):
    """The 2 of 9 maskable tokens with the smallest draws are chosen: the 2nd (cat) and the 8th (purred)."""

    def __init__(self) -> None:
        pass

    def words(self, n: int) -> NDArray[np.uint64]:
        assert n == 9
        return np.array([9, 1, 8, 7, 6, 5, 4, 2, 3], np.uint64) << np.uint64(32)

    def floats(self, n: int) -> NDArray[np.float64]:
        assert n == 2
        return np.array([MASKED, KEPT])

    def integers(self, bounds: object, n: int | None = None) -> NDArray[np.int64]:
        assert n == 0
        return np.array([], np.int64)


@pytest.fixture
def block(tiny_tokenizer: Tokenizer) -> bytes:
    """What stands in the shard."""
    tokenized = SentenceTokenizer(tiny_tokenizer).tokenize(pa.array([[A, B]]))
    assert tokenized.sentence_lengths.to_pylist() == [[6, 3]]
    table = pa.table({"token_ids": tokenized.token_ids, "sentence_lengths": tokenized.sentence_lengths})
    pairs = Pairs(*(np.array([place]) for place in (0, 6, 6, 9)), np.array([0], np.uint8), 0)
    _, record, _ = describe_tokenizer(tiny_tokenizer, "tiny")
    (made,) = make_blocks(
        PoolTokens.from_tables([table]),
        pairs,
        BuildConfig(masked_lm_prob=0.2),
        masking_vocabulary(tiny_tokenizer, record),
        ScriptedStream(),
    )
    return serialise_block(made.examples).to_pybytes()


def test_the_example_in_the_shard(block: bytes, tiny_tokenizer: Tokenizer) -> None:
    (row,) = pa.ipc.open_file(block).read_all().to_pylist()
    tokens = [tiny_tokenizer.id_to_token(token_id) for token_id in row["input_ids"]]
    assert len(tokens) == 12
    assert " ".join(tokens) == "[CLS] the [MASK] sat on the mat [SEP] it purred softly [SEP]"
    assert [place for place, token in enumerate(tokens) if token in ("[CLS]", "[SEP]")] == [0, 7, 11]
    assert row["segment_a_length"] == 8
    assert row["masked_lm_positions"] == [2, 9]
    assert [tiny_tokenizer.id_to_token(token_id) for token_id in row["masked_lm_ids"]] == ["cat", "purred"]
    assert row["next_sentence_label"] == 0


def test_its_loss(block: bytes, tiny_tokenizer: Tokenizer) -> None:
    limits = BlockLimits(NUM_ENTRIES, max_seq_length=128, max_predictions_per_seq=20, max_examples=1)
    examples = arrays_from_blocks([decode_block(block, limits, "the block")])
    batch = assemble_batch(examples, np.array([0]), pad_id=0)
    assert batch.segment_ids.tolist() == [[0] * 8 + [1] * 4]

    config = ModelConfig(
        vocab_size=NUM_ENTRIES,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    model = BertForPretraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # Logits: ln 400 for "cat", ln 100 for "purred" and 0 for the other 199, so that the sum of the
        # exponentials is 400 + 100 + 199 = 699. NotNext has ln 4, and IsNext 0: 1 + 4 = 5.
        model.masked_lm_head.bias[tiny_tokenizer.token_to_id("cat")] = math.log(400)
        model.masked_lm_head.bias[tiny_tokenizer.token_to_id("purred")] = math.log(100)
        model.next_sentence_head.dense.bias[1] = math.log(4)
        output = model(batch)
    at_cat, at_purred, is_next = math.log(699 / 400), math.log(699 / 100), math.log(5)
    assert output.masked_lm_logits.shape == (2, NUM_ENTRIES)
    assert float(output.masked_lm_loss_sum) == pytest.approx(at_cat + at_purred, rel=1e-6)
    assert float(output.next_sentence_loss_sum) == pytest.approx(is_next, rel=1e-6)
    assert float(output.sum_loss()) == pytest.approx(at_cat + at_purred + is_next, rel=1e-6)
    assert float(output.mean_loss()) == pytest.approx((at_cat + at_purred) / 2 + is_next, rel=1e-6)
