"""The sum of token, segment and position embeddings, normalised.

Shapes: B rows, S positions, H hidden size.
"""

from __future__ import annotations

from torch import Tensor, nn

from trainer.model.config import ModelConfig


class Embeddings(nn.Module):
    """Input vectors of BERT (Devlin et al. 2018, figure 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segment = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, input_ids_BS: Tensor, segment_ids_BS: Tensor, position_ids_BS: Tensor | None = None
    ) -> Tensor:
        """Embed tokens.

        Args:
            input_ids_BS: int64 [B, S], below `vocab_size`; S at most `max_position_embeddings`.
            segment_ids_BS: int64 [B, S], 0 or 1.
            position_ids_BS: int64 [B, S], below S; None counts from 0 in each row.

        Returns:
            float [B, S, H].

        Raises:
            ValueError: the rows are longer than the model has positions.
        """
        length, limit = input_ids_BS.shape[1], self.position.num_embeddings
        if length > limit:
            raise ValueError(
                f"sequences of {length} tokens, but the model has max_position_embeddings = {limit}; "
                f"use a model with at least {length} positions, or data of a smaller max_seq_length"
            )
        if position_ids_BS is None:
            position = self.position.weight[:length]
        else:
            position = self.position(position_ids_BS)
        embedded_BSH = self.token(input_ids_BS) + self.segment(segment_ids_BS) + position
        return self.dropout(self.norm(embedded_BSH))
