"""BERT with both pretraining heads: from a batch of masked examples to its losses.

Shapes: B rows, S positions, E examples (B of them unless rows are packed), H hidden size, M masked positions
of the whole batch, V vocabulary.

In: a batch (`Batch`). Out: summed losses with the counts that they are sums over, so that a caller can take
the mean over any number of batches, accumulation steps and ranks. The masked-LM head runs at masked positions
only. Deterministic on one device: dropout draws from torch's generator, everything else is arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional

from trainer.model.accuracy import count_correct
from trainer.model.attention import AttentionKernel
from trainer.model.config import ModelConfig
from trainer.model.embeddings import Embeddings
from trainer.model.encoder import Encoder
from trainer.model.heads import MaskedLMHead, NextSentenceHead, Pooler
from trainer.model.initialisation import initialise_weights
from trainer.model.packing import Packing

IGNORED_LABEL = -100


class Batch(Protocol):
    """What the model reads of a batch; `trainer.data.batches.Batch` is one."""

    @property
    def input_ids(self) -> Tensor:
        """Token ids, already masked, any id on padding: int64 [B, S]."""

    @property
    def segment_ids(self) -> Tensor:
        """Which segment a token belongs to, 0 or 1: int64 [B, S]."""

    @property
    def attention_mask(self) -> Tensor:
        """Where there is a token and no padding: bool [B, S]."""

    @property
    def masked_positions(self) -> Tensor:
        """Indices into the flattened [B * S]: int64 [M]."""

    @property
    def masked_ids(self) -> Tensor:
        """The original ids there, `IGNORED_LABEL` for a slot that is not used: int64 [M]."""

    @property
    def next_sentence_labels(self) -> Tensor:
        """0 = IsNext, 1 = NotNext, `IGNORED_LABEL` where there is none: int64 [E]."""

    @property
    def packing(self) -> Packing | None:
        """Where the examples lie in their rows; None where each has a row of its own."""


@dataclass(frozen=True)
class PretrainingOutput:
    """Sums over a batch: losses in nats as float32 scalars, counts as int64 scalars, and the logits.

    Attributes:
        masked_lm_loss_sum: summed cross-entropy at masked positions.
        num_masked: masked positions, without ignored slots.
        next_sentence_loss_sum: summed cross-entropy of the labelled sequences.
        num_labelled: sequences with a next-sentence label.
        masked_lm_logits: float [M, V].
        next_sentence_logits: float [E, 2].
        masked_ids: int64 [M], as in the batch.
        next_sentence_labels: int64 [E], as in the batch.
    """

    masked_lm_loss_sum: Tensor
    num_masked: Tensor
    next_sentence_loss_sum: Tensor
    num_labelled: Tensor
    masked_lm_logits: Tensor
    next_sentence_logits: Tensor
    masked_ids: Tensor
    next_sentence_labels: Tensor

    @property
    def num_masked_correct(self) -> Tensor:
        """Masked positions whose likeliest entry is the right one: int64 scalar. Computed when asked."""
        return count_correct(self.masked_lm_logits, self.masked_ids)

    @property
    def num_next_sentence_correct(self) -> Tensor:
        """Labelled sequences whose likelier label is the right one: int64 scalar. Computed when asked."""
        return count_correct(self.next_sentence_logits, self.next_sentence_labels)

    def sum_loss(self) -> Tensor:
        """`reduction="sum"`: all masked positions' cross-entropies plus all sequences' next-sentence ones."""
        return self.masked_lm_loss_sum + self.next_sentence_loss_sum

    def mean_loss(self) -> Tensor:
        """What training minimises: mean over masked positions plus mean over labelled sequences.

        As Google's and Hugging Face's code do. A mean over nothing is 0.
        """
        masked_lm_loss = self.masked_lm_loss_sum / self.num_masked.clamp(min=1)
        return masked_lm_loss + self.next_sentence_loss_sum / self.num_labelled.clamp(min=1)


class BertForPretraining(nn.Module):
    """BERT (Devlin et al. 2018) with the masked-LM and the next-sentence head.

    Args:
        config: the sizes.
        seed: decides the starting weights.
        attention: how attention is computed; the numbers are the same.
    """

    def __init__(self, config: ModelConfig, *, seed: int = 0, attention: AttentionKernel = "auto") -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config, attention)
        self.pooler = Pooler(config)
        self.masked_lm_head = MaskedLMHead(config)
        self.next_sentence_head = NextSentenceHead(config)
        initialise_weights(self, config.initializer_range, seed)

    @property
    def num_parameters(self) -> int:
        """Parameters, the tied decoder counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def encode(
        self,
        input_ids_BS: Tensor,
        segment_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        packing: Packing | None = None,
    ) -> Tensor:
        """Hidden states of the last layer: float [B, S, H]."""
        position_ids_BS = None if packing is None else packing.position_ids
        embedded_BSH = self.embeddings(input_ids_BS, segment_ids_BS, position_ids_BS)
        return self.encoder(embedded_BSH, attention_mask_BS, packing)

    def masked_lm_logits(self, hidden_BSH: Tensor, masked_positions_M: Tensor) -> Tensor:
        """Scores of all entries at some positions.

        Args:
            hidden_BSH: float [B, S, H], hidden states of the last layer.
            masked_positions_M: int64 [M], indices into the flattened [B * S].

        Returns:
            float [M, V].
        """
        hidden_MH = hidden_BSH.flatten(0, 1).index_select(0, masked_positions_M)
        return self.masked_lm_head(hidden_MH, self.embeddings.token.weight)

    def next_sentence_logits(self, hidden_BSH: Tensor, packing: Packing | None = None) -> Tensor:
        """Scores of IsNext and NotNext: float [E, 2]."""
        if packing is None:
            first_EH = hidden_BSH[:, 0]
        else:
            first_EH = hidden_BSH.flatten(0, 1).index_select(0, packing.first_positions)
        return self.next_sentence_head(self.pooler(first_EH))

    def forward(self, batch: Batch) -> PretrainingOutput:
        """Losses of a batch; see `PretrainingOutput`."""
        hidden_BSH = self.encode(batch.input_ids, batch.segment_ids, batch.attention_mask, batch.packing)
        masked_lm_logits_MV = self.masked_lm_logits(hidden_BSH, batch.masked_positions)
        next_sentence_logits_E2 = self.next_sentence_logits(hidden_BSH, batch.packing)
        masked_ids_M, labels_E = batch.masked_ids, batch.next_sentence_labels
        return PretrainingOutput(
            masked_lm_loss_sum=_sum_cross_entropy(masked_lm_logits_MV, masked_ids_M),
            num_masked=(masked_ids_M != IGNORED_LABEL).sum(),
            next_sentence_loss_sum=_sum_cross_entropy(next_sentence_logits_E2, labels_E),
            num_labelled=(labels_E != IGNORED_LABEL).sum(),
            masked_lm_logits=masked_lm_logits_MV,
            next_sentence_logits=next_sentence_logits_E2,
            masked_ids=masked_ids_M,
            next_sentence_labels=labels_E,
        )


def _sum_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    # In float32 whatever the precision of the logits: a sum of thousands of terms loses too much in bfloat16.
    return functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")
