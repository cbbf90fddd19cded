"""The stages of the quickstart, from Python's own text to a BERT that fills masks.

In: a folder, minutes of training, the values of the recipe. Out: the result of every stage, as `--json`
prints them. Each stage is the one that its own command runs; a stage that is done is found done.
Deterministic but for the number of training steps, which is measured to fit the minutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workflows import configuring, stages, training
from workflows.quickstart import docstrings
from workflows.quickstart.record import QuickstartRecord
from workflows.terminal import Stopwatch, Terminal

PROMPTS = (
    "if the file does not [MASK], an error is raised.",
    "return the [MASK] of the given string.",
    "see the [MASK] for more information.",
    "the [MASK] must be an integer or a string.",
    "return a list of all the [MASK] in the module.",
)
SENTENCE = "return the number of items in the list."
FOLLOWING_SENTENCES = (
    "if the list is empty, zero is returned.",
    "the socket is closed when the server has shut down.",
)
_TOP_K = 5


@dataclass(frozen=True)
class Journey:
    """Everything that the stages of one quickstart need.

    Attributes:
        terminal: what they print through.
        record: what is done already.
        values: options by their command-line names, from the recipe.
        minutes: of training.
        workers: processes; None for one a core.
    """

    terminal: Terminal
    record: QuickstartRecord
    values: Mapping[str, Any]
    minutes: float
    workers: int | None

    @property
    def documents(self) -> Path:
        """The collected text."""
        return self.record.folder / "text" / "documents.jsonl"

    def folder(self, name: str) -> str:
        """The folder of a stage's result."""
        return str(self.record.folder / name)

    def keep(self, stage: str, result: dict[str, Any]) -> dict[str, Any]:
        """Keep a stage's result; of one that was found done, what it measured when it was done."""
        if result.get("already_done") and stage in self.record.stages:
            return {**self.record.stages[stage], "already_done": True}
        self.record.finish(stage, result)
        return result


def travel(journey: Journey) -> dict[str, Any]:
    """Run every stage that isn't done; returns the results under the stages' names."""
    watch = Stopwatch()
    options = stages.RunOptions(workers=journey.workers)
    inputs = {**journey.values, "inputs": (str(journey.documents),), "format_": "jsonl"}
    results: dict[str, Any] = {"collect": _collect(journey)}
    results["vocab"] = journey.keep(
        "vocab",
        stages.run_vocab_stage(
            journey.terminal, configuring.vocab_config(inputs), journey.folder("tokenizer"), options
        ),
    )
    results["ingest"] = journey.keep(
        "ingest",
        stages.run_ingest_stage(
            journey.terminal,
            configuring.ingest_config(inputs),
            journey.folder("tokenizer"),
            journey.folder("corpus"),
            options,
        ),
    )
    results["build"] = journey.keep(
        "build",
        stages.run_build_stage(
            journey.terminal,
            configuring.build_dataset_config(inputs),
            journey.folder("corpus"),
            journey.folder("dataset"),
            options,
        ),
    )
    results["train"] = _train(journey)
    results["evaluate"] = _evaluate(journey)
    results.update(_predict(journey))
    return {**results, "seconds": watch.seconds, "output": str(journey.record.folder)}


def _collect(journey: Journey) -> dict[str, Any]:
    done = journey.record.stages.get("collect")
    if done is not None and journey.documents.is_file() and _sha256(journey.documents) == done["sha256"]:
        return {**done, "already_done": True}
    watch = Stopwatch()
    with journey.terminal.work("collect", "files") as progress:
        files = docstrings.find_source_files(docstrings.python_folders())
        collected = docstrings.collect_documents(
            files, journey.documents, workers=journey.workers or stages.count_cores(), progress=progress
        )
    result = {
        **asdict(collected),
        "sha256": _sha256(journey.documents),
        "seconds": watch.seconds,
        "output": str(journey.documents),
    }
    journey.record.finish("collect", result)
    return result


def _train(journey: Journey) -> dict[str, Any]:
    config = training.train_config(
        {
            **journey.values,
            "data": (journey.folder("dataset"),),
            "output": journey.folder("run"),
            "minutes": journey.minutes,
        }
    )
    result = training.run_training(journey.terminal, config)
    if result["already_done"] and "train" in journey.record.stages:
        return {**journey.record.stages["train"], "already_done": True}
    journey.record.forget("evaluate", "predict")
    journey.record.finish("train", result)
    return result


def _evaluate(journey: Journey) -> dict[str, Any]:
    """The metrics of the trained model, with those of the untrained one and of guessing beside them."""
    if "evaluate" in journey.record.stages:
        return {**journey.record.stages["evaluate"], "already_done": True}
    from trainer.checkpoints import load_checkpoint
    from trainer.data.dataset import open_dataset
    from trainer.data.loader import iterate_once
    from trainer.evaluation import count_masked_ids, unigram_baseline
    from trainer.model.pretraining import BertForPretraining

    watch = Stopwatch()
    dataset = open_dataset(journey.folder("dataset"))
    loaded = load_checkpoint(journey.folder("run"))
    untrained = BertForPretraining(loaded.model_config, seed=journey.values.get("seed") or 0)
    before = training.evaluate_model(journey.terminal, untrained, dataset, "validation")
    after = training.evaluate_model(journey.terminal, loaded.model, dataset, "validation")
    counts = [
        count_masked_ids(
            iterate_once(dataset, split, training.EVALUATION_BATCH_SIZE), loaded.tokenizer.vocab_size
        )
        for split in ("train", "validation")
    ]
    unigram = asdict(unigram_baseline(*counts))
    result = {**after, "before": before, "unigram": unigram, "seconds": watch.seconds}
    journey.record.finish("evaluate", result)
    return result


def _predict(journey: Journey) -> dict[str, Any]:
    """Five filled prompts, and whether two sentences follow another."""
    if "predict" in journey.record.stages:
        predicted: dict[str, Any] = journey.record.stages["predict"]
        return predicted
    from tokenizers import Tokenizer

    from trainer.checkpoints import load_checkpoint
    from trainer.prediction import fill_mask, next_sentence_probability

    loaded = load_checkpoint(journey.folder("run"))
    tokenizer = Tokenizer.from_str(loaded.tokenizer_json)
    filled = [
        (prompt, fill_mask(loaded.model, tokenizer, prompt, _TOP_K, max_seq_length=loaded.max_seq_length))
        for prompt in PROMPTS
    ]
    result = {
        "fill_mask": [
            {"text": prompt, "filled": outcome.text, "words": [vars(word) for word in outcome.gaps[0]]}
            for prompt, outcome in filled
        ],
        "next_sentence": [
            {
                "first": SENTENCE,
                "second": second,
                "is_next_probability": next_sentence_probability(
                    loaded.model, tokenizer, SENTENCE, second, max_seq_length=loaded.max_seq_length
                ),
            }
            for second in FOLLOWING_SENTENCES
        ],
    }
    journey.record.finish("predict", result)
    return result


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
