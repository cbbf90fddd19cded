"""What a training step keeps in memory, counted tensor by tensor.

In: the sizes of a model and of a microbatch. Out: bytes by what they hold, at the moment of a step at which
most is held. Pure arithmetic, without torch; deterministic.

Weights and both moments of the optimiser always lie there: 4 + 8 bytes a parameter, float32. The rest comes
and goes, and is at its greatest in one of these moments:

    logits        the gradient of the log-softmax is made: all activations, and two more copies of the logits
    decoder       the gradient of the token embedding is made: all activations, V d gradients
    last layer    the backward pass enters the encoder: activations of all layers
    first layer   it leaves the encoder: activations of one layer, nearly all gradients
    embeddings    it ends: all gradients, and those of the token embedding once for each of its two uses

Counted are the tensors that autograd saves (n d and n f a layer, n^2 a head where attention scores are
stored), held against the allocator's own figures by a test. Not counted: the batch itself, what a CUDA
context takes (about half a gigabyte), fragmentation, buckets of gradients between ranks, and whatever
`torch.compile` saves or adds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from trainer.model.config import ModelConfig

_FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Bytes that are held at one moment, by what they hold.

    Attributes:
        moment: of the five above.
        weights: parameters in float32.
        optimiser: both moments of every parameter.
        gradients: those that are there already.
        weight_copies: weights in bfloat16, where that is computed in.
        activations: n d and n f terms of the layers, embeddings and heads, with their dropout masks.
        attention_scores: n^2 terms: probabilities and their dropout, or the sums that a fused kernel keeps.
        logits: scores over the vocabulary, their log-softmax, and their gradients.
        temporaries: what the backward pass of one layer holds for a moment.
    """

    moment: str
    weights: float
    optimiser: float
    gradients: float = 0.0
    weight_copies: float = 0.0
    activations: float = 0.0
    attention_scores: float = 0.0
    logits: float = 0.0
    temporaries: float = 0.0

    @property
    def total(self) -> float:
        """Bytes in all."""
        return sum(getattr(self, part.name) for part in fields(self)[1:])


@dataclass(frozen=True, kw_only=True)
class StepShape:
    """The sizes of one microbatch on one device, and how it is computed.

    Attributes:
        num_positions: n: tokens, and padding where there is any.
        num_pairs: pairs of positions that attend to each other: the sum of the squared lengths of rows.
        num_masked: positions at which the masked-LM head runs.
        precision: of the forward pass.
        stores_scores: whether attention keeps its n^2 probabilities; fused kernels make them again.
        on_cpu: dropout masks take the width of a number there, one byte on a GPU.
        recomputes_layers: activation checkpointing: only the input of each layer is kept.
        accumulates: whether gradients of an earlier microbatch are there already.
    """

    num_positions: float
    num_pairs: float
    num_masked: float
    precision: Literal["fp32", "bf16"] = "fp32"
    stores_scores: bool = False
    on_cpu: bool = False
    recomputes_layers: bool = False
    accumulates: bool = False

    @property
    def number_bytes(self) -> int:
        """Width of what the layers compute in."""
        return 2 if self.precision == "bf16" else _FLOAT_BYTES


def count_parameters(config: ModelConfig) -> int:
    """Parameters of the model with both heads, the tied decoder once."""
    hidden, vocab = config.hidden_size, config.vocab_size
    embeddings = (vocab + config.max_position_embeddings + config.type_vocab_size + 2) * hidden
    masked_lm_head = hidden * hidden + 3 * hidden + vocab
    pooler_and_next_sentence_head = hidden * hidden + 3 * hidden + 2
    layers = config.num_hidden_layers * _layer_parameters(config)
    return embeddings + layers + masked_lm_head + pooler_and_next_sentence_head


def peak_memory(config: ModelConfig, shape: StepShape) -> MemoryUse:
    """What is held at the fullest moment of a step, after the first one.

    Args:
        config: of the model; its dropout probabilities decide whether masks are kept.
        shape: of the microbatch.
    """
    return max(_moments(config, shape), key=lambda use: use.total)


def _moments(config: ModelConfig, shape: StepShape) -> tuple[MemoryUse, ...]:
    parameters, layers = _FLOAT_BYTES * count_parameters(config), config.num_hidden_layers
    embedding = _FLOAT_BYTES * config.vocab_size * config.hidden_size
    one_layer = _FLOAT_BYTES * _layer_parameters(config)
    logits = shape.num_masked * config.vocab_size
    inner, outer = _layer_bytes(config, shape), _embedding_bytes(config, shape)
    scores, copies = _score_bytes(config, shape), _weight_copies(config, shape)
    heads = 4 * shape.num_masked * config.hidden_size * shape.number_bytes
    # With checkpointing one layer at a time is whole, and of all others there is only the input.
    kept, kept_scores, kept_copies = layers * inner, layers * scores, copies
    if shape.recomputes_layers:
        kept, kept_scores = layers * _FLOAT_BYTES * shape.num_positions * config.hidden_size, 0.0
        kept_copies -= layers * _layer_copies(config, shape)
    number, temporaries = shape.number_bytes, _temporaries(config, shape)
    decoder_copy = 0.0 if shape.precision == "fp32" else embedding / 2
    again = 1 if shape.recomputes_layers else 0
    start = MemoryUse(
        moment="logits",
        weights=parameters,
        optimiser=2 * parameters,
        gradients=parameters if shape.accumulates else 0,
        weight_copies=kept_copies,
        activations=outer + kept + heads,
        attention_scores=kept_scores,
        logits=(number + 3 * _FLOAT_BYTES) * logits,
    )
    entering = replace(
        start,
        moment="last layer",
        gradients=start.gradients + embedding,
        weight_copies=kept_copies - decoder_copy + again * _layer_copies(config, shape),
        activations=outer + kept + again * inner,
        attention_scores=kept_scores + again * scores,
        logits=number * logits,
        temporaries=temporaries,
    )
    return (
        start,
        replace(
            start,
            moment="decoder",
            # In bfloat16 the product comes first and, when the copy of the weight is gone, its float32 copy.
            gradients=start.gradients + embedding * (1.5 if decoder_copy else 1),
            weight_copies=kept_copies - decoder_copy,
            logits=(1 if decoder_copy else 2) * number * logits,
        ),
        entering,
        replace(
            entering,
            moment="first layer",
            gradients=parameters - one_layer + (embedding if shape.accumulates else 0),
            weight_copies=_layer_copies(config, shape),
            activations=outer + inner,
            attention_scores=scores,
        ),
        replace(
            start,
            moment="embeddings",
            # In float32 autograd adds both uses into a third tensor; in bfloat16 it adds in place.
            gradients=parameters + embedding * (2 if number == _FLOAT_BYTES else 1),
            weight_copies=0.0,
            activations=_FLOAT_BYTES * shape.num_positions * config.hidden_size,
            attention_scores=0.0,
            logits=number * logits,
        ),
    )


def _layer_parameters(config: ModelConfig) -> int:
    hidden, intermediate = config.hidden_size, config.intermediate_size
    return 4 * hidden * hidden + 2 * hidden * intermediate + 9 * hidden + intermediate


def _layer_bytes(config: ModelConfig, shape: StepShape) -> float:
    number, hidden = shape.number_bytes, config.hidden_size
    # Inputs of the dense layers: in float32 those of query, key and value are one tensor; in bfloat16 each of
    # the three casts its own. Beside them query, key, value and context.
    dense = (2 if number == _FLOAT_BYTES else 4) + 4
    # Inputs of both layer normalisations in float32, with the mean and deviation of each position.
    normalisation = 2 * _FLOAT_BYTES * hidden + 4 * _FLOAT_BYTES
    masks = 2 * _mask_bytes(config.hidden_dropout_prob, number, shape) * hidden
    # Before and after GELU.
    feed_forward = 2 * number * config.intermediate_size
    return shape.num_positions * (dense * number * hidden + normalisation + masks + feed_forward)


def _score_bytes(config: ModelConfig, shape: StepShape) -> float:
    number, heads = shape.number_bytes, config.num_attention_heads
    if not shape.stores_scores:
        return _FLOAT_BYTES * heads * shape.num_positions
    mask = _mask_bytes(config.attention_probs_dropout_prob, number, shape)
    # Probabilities; and with dropout its mask and what it leaves.
    return heads * shape.num_pairs * (number + (mask + number if mask else 0))


def _embedding_bytes(config: ModelConfig, shape: StepShape) -> float:
    hidden = config.hidden_size
    # The sum that is normalised; in float32 also the encoder's last output, which the pooler looks into.
    tensors = 2 if shape.precision == "fp32" else 1
    mask = _mask_bytes(config.hidden_dropout_prob, _FLOAT_BYTES, shape)
    return shape.num_positions * (hidden * (tensors * _FLOAT_BYTES + mask) + 2 * _FLOAT_BYTES)


def _layer_copies(config: ModelConfig, shape: StepShape) -> float:
    if shape.precision == "fp32":
        return 0.0
    hidden = config.hidden_size
    return shape.number_bytes * (4 * hidden * hidden + 2 * hidden * config.intermediate_size)


def _weight_copies(config: ModelConfig, shape: StepShape) -> float:
    if shape.precision == "fp32":
        return 0.0
    hidden = config.hidden_size
    heads = shape.number_bytes * hidden * (2 * hidden + 2 + config.vocab_size)
    return config.num_hidden_layers * _layer_copies(config, shape) + heads


def _temporaries(config: ModelConfig, shape: StepShape) -> float:
    number, positions = shape.number_bytes, shape.num_positions
    residual = 3 * _FLOAT_BYTES * positions * config.hidden_size
    # GELU: its gradient beside that of its output, whose own input is gone by then.
    feed_forward = number * positions * config.intermediate_size
    # Scores: the gradients of two of their stages, when the feed-forward part's tensors are gone and, with
    # dropout, what it left of them too.
    stages = 1 if config.attention_probs_dropout_prob else 2
    scores = stages * number * config.num_attention_heads * shape.num_pairs - 2 * feed_forward
    return residual + max(feed_forward, scores if shape.stores_scores else 0.0)


def _mask_bytes(probability: float, number: int, shape: StepShape) -> int:
    if probability == 0.0:
        return 0
    return number if shape.on_cpu else 1
