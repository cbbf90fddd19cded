"""The README.md of an exported model: what it is, how to use it, its data, its training, its results.

In: a checkpoint's record and, where they are at hand, the run's record and its datasets' manifests. Out:
Markdown with the front matter that the Hugging Face hub reads. Deterministic: the same facts give the same
text. No path of this machine is in it: a card is made to be published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.configs import BuildConfig
from schemas.manifests import DatasetManifest
from trainer.checkpoints import CheckpointRecord
from trainer.config import TrainConfig, TrainPlan
from trainer.data_passes import count_passes_made, format_passes
from trainer.run_folder import RunRecord

_FRONT_MATTER = """\
---
library_name: transformers
pipeline_tag: fill-mask
tags:
- bert
- clozeline
---"""

_OBJECTIVES = {
    "next-sentence": "masked-language modelling and next-sentence prediction",
    "sentence-order": "masked-language modelling and sentence-order prediction",
    "mlm": "masked-language modelling",
}
_LABELS = {
    "next-sentence": "`seq_relationship_logits[:, 0]` speaks for the second segment following the first, "
    "`[:, 1]` for a segment of another document.",
    "sentence-order": "`seq_relationship_logits[:, 0]` speaks for the two segments being in order, `[:, 1]` "
    "for their being swapped.",
    "mlm": "The next-sentence head was never trained: its logits mean nothing.",
}
# Where things lay, what they ran on, and how often was written: nothing that makes the model what it is.
_LEFT_OUT_OF_TRAINING = frozenset(
    {"data", "output", "init", "device", "minutes", "steps", "warmup_steps", "batch_size", "precision"}
    | {"save_every", "keep_checkpoints", "log_every", "evaluate_every", "compile", "model"}
    | {"activation_checkpointing", "data_schedule", "data_weights"}
)
_RESULTS = {
    "masked_lm_loss": "masked-LM loss (nats)",
    "perplexity": "masked-LM perplexity",
    "masked_lm_accuracy": "masked-LM accuracy",
    "next_sentence_loss": "next-sentence loss (nats)",
    "next_sentence_accuracy": "next-sentence accuracy",
    "num_examples": "examples measured",
    "num_masked_tokens": "masked tokens measured",
}
_TRAINING_RESULTS = {name: _RESULTS[name] for name in ("masked_lm_loss", "next_sentence_loss")}


@dataclass(frozen=True)
class ModelFacts:
    """What a card tells of.

    Attributes:
        name: of the model.
        num_parameters: weights of the model, tied ones once.
        checkpoint: the record of the checkpoint that it comes from.
        run: the record of the run; None where the checkpoint stands alone.
        datasets: manifests of what the run trained on; empty where they are no longer at hand.
    """

    name: str
    num_parameters: int
    checkpoint: CheckpointRecord
    run: RunRecord | None
    datasets: tuple[DatasetManifest, ...]


def write_model_card(facts: ModelFacts) -> str:
    """The text of the card."""
    sections = [
        _FRONT_MATTER,
        f"# {facts.name}",
        _introduction(facts),
        "## Use",
        _usage(facts),
        "## Data",
        *_data(facts),
        "## Training",
        *_training(facts),
        "## Results",
        *_results(facts.checkpoint),
        "## Limits",
        _limits(facts),
    ]
    return "\n\n".join(sections) + "\n"


def _introduction(facts: ModelFacts) -> str:
    model, objective = facts.checkpoint.model, _objective(facts)
    goal = f" by {_OBJECTIVES[objective]}" if objective else ""
    return (
        f"A BERT of {model.num_hidden_layers} layers, hidden size {model.hidden_size} and "
        f"{model.num_attention_heads} attention heads ({facts.num_parameters:,} parameters with both "
        f"pretraining heads), pretrained{goal} with {facts.checkpoint.created_by}."
    )


def _usage(facts: ModelFacts) -> str:
    return f"""\
```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

folder = "{facts.name}"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForMaskedLM.from_pretrained(folder)
inputs = tokenizer("the [MASK] sat on the mat", return_tensors="pt")
logits = model(**inputs).logits
print(tokenizer.decode(logits[0, inputs["input_ids"][0] == tokenizer.mask_token_id].argmax(-1)))
```

`AutoModelForPreTraining` has both heads, `AutoModel` the encoder alone. `SentenceTransformer(folder)` of
sentence-transformers takes the mean of the encoder's vectors, to be trained further for a task."""


def _data(facts: ModelFacts) -> Iterable[str]:
    tokenizer = facts.checkpoint.tokenizer
    rows: list[tuple[str, object]] = []
    several = len(facts.datasets) > 1
    if several and facts.run is not None:
        rows.append(("datasets read", _schedule(facts.run.config)))
    for number, manifest in enumerate(facts.datasets, start=1):
        title = f" of dataset {number}" if several else ""
        documents = sum(shard.num_documents for shard in manifest.shards)
        held_out = sum(shard.num_examples for shard in manifest.shards_of("validation"))
        rows += [
            (f"documents{title}", documents),
            (f"examples{title}", f"{manifest.num_examples:,}, of which {held_out:,} held out"),
            (f"tokens in examples{title}", manifest.num_tokens),
            (f"corpus fingerprint{title}", f"`{manifest.corpus_fingerprint}`"),
        ]
    rows.append(("vocabulary", f"{tokenizer.vocab_size:,} entries, SHA-256 `{tokenizer.sha256}`"))
    if not facts.datasets:
        yield "The dataset was not at hand when this card was written; what the checkpoint says of it:"
        rows.append(("longest sequence", facts.checkpoint.max_seq_length))
    yield _table(("", ""), rows)
    if facts.datasets:
        yield "How the examples were made:"
        yield _table(("option", "value"), _options(manifest.config for manifest in facts.datasets))


def _schedule(config: TrainConfig) -> str:
    if config.data_weights is not None:
        return f"mixed by weights {' : '.join(f'{weight:g}' for weight in config.data_weights)}"
    return "one in each epoch, in turn" if config.data_schedule == "sequence" else "together, as one"


def _passes(facts: ModelFacts) -> Iterable[tuple[str, object]]:
    num_seen = facts.checkpoint.progress.get("num_examples")
    if facts.run is None or not facts.datasets or not isinstance(num_seen, int):
        return
    for number, passes in enumerate(count_passes_made(facts.run.config, facts.datasets, num_seen), start=1):
        data = f"dataset {number}" if len(facts.datasets) > 1 else "the data"
        yield f"passes over {data}", format_passes(passes)


def _batch_size(plan: TrainPlan) -> str:
    if plan.tokens_per_batch is not None:
        return f"{plan.tokens_per_batch:,} tokens"
    return f"{plan.batch_size:,} examples"


def _training(facts: ModelFacts) -> Iterable[str]:
    progress = facts.checkpoint.progress
    rows: list[tuple[str, object]] = []
    if facts.run is None:
        rows.append(("steps", facts.checkpoint.step))
    else:
        plan = facts.run.plan
        rows += [
            ("steps", f"{facts.checkpoint.step:,} of {plan.steps:,}"),
            ("warm-up steps", plan.warmup_steps),
            ("batch size", _batch_size(plan)),
            ("precision", facts.run.precision),
        ]
        if facts.run.config.init is not None:
            rows.append(
                ("began with", f"the weights of `{facts.run.config.init.rstrip('/').split('/')[-1]}`")
            )
    for name, title in (("num_examples", "examples seen"), ("num_tokens", "tokens seen")):
        if isinstance(progress.get(name), int):
            rows.append((title, progress[name]))
    rows += _passes(facts)
    yield _table(("", ""), rows)
    if facts.run is not None:
        chosen = facts.run.config.model_dump(mode="json")
        yield "Configuration:"
        yield _table(
            ("option", "value"),
            [
                (_option(name), value)
                for name, value in chosen.items()
                if name not in _LEFT_OUT_OF_TRAINING and value is not None
            ],
        )
    yield "Model:"
    yield _table(
        ("size", "value"),
        [(f"`{name}`", f"{value}") for name, value in facts.checkpoint.model.model_dump().items()],
    )


def _results(checkpoint: CheckpointRecord) -> Iterable[str]:
    held_out = checkpoint.progress.get("last_evaluation")
    training = checkpoint.progress.get("last_metrics")
    if isinstance(held_out, Mapping):
        yield f"On held-out examples, as last measured up to step {checkpoint.step:,}:"
        yield _table(("measure", "value"), _figures(held_out, _RESULTS))
    if isinstance(training, Mapping):
        yield f"On training examples, the mean of the last steps logged up to step {checkpoint.step:,}:"
        yield _table(("measure", "value"), _figures(training, _TRAINING_RESULTS))
    if not isinstance(held_out, Mapping):
        yield (
            "This model was not measured on held-out examples while it was trained; `clozeline evaluate` "
            "does it afterwards."
        )


def _limits(facts: ModelFacts) -> str:
    seen, positions = facts.checkpoint.max_seq_length, facts.checkpoint.model.max_position_embeddings
    lines = []
    if seen < positions:
        lines.append(
            f"- It was trained on sequences of at most {seen} tokens; the position embeddings from {seen} to "
            f"{positions - 1} have their random initial values. The tokenizer's `model_max_length` is {seen}."
        )
    objective = _objective(facts)
    if objective:
        lines.append(f"- {_LABELS[objective]}")
    lines.append("- It repeats the errors and the biases of the text that it was trained on.")
    return "\n".join(lines)


def _objective(facts: ModelFacts) -> str | None:
    return facts.datasets[0].config.objective if facts.datasets else None


def _options(configs: Iterable[BuildConfig]) -> list[tuple[str, object]]:
    """Options to values; where datasets differ, all their values."""
    dumps = [config.model_dump(mode="json") for config in configs]
    rows: list[tuple[str, object]] = []
    for name in dumps[0]:
        values = list(dict.fromkeys(_value(name, dump[name]) for dump in dumps if dump[name] is not None))
        if values:
            rows.append((_option(name), ", ".join(values)))
    return rows


def _figures(measured: Mapping[str, Any], titles: Mapping[str, str]) -> list[tuple[str, object]]:
    return [
        (title, f"{value:,.4f}" if isinstance(value, float) else value)
        for name, title in titles.items()
        if isinstance(value := measured.get(name), (int, float))
    ]


def _option(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"


def _value(name: str, value: object) -> str:
    """A value as it is typed behind its option."""
    if name == "next_sentence_balance":
        return "on" if value else "off"
    return str(_plain(value))


def _plain(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _table(head: tuple[str, str], rows: Sequence[tuple[str, object]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    for label, value in rows:
        plain = _plain(value)
        text = f"{plain:,}" if isinstance(plain, int) else str(plain)
        lines.append(f"| {label} | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)
