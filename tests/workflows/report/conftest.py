"""A corpus, a dataset and a run of texts that are unkind to HTML, made once a process.

Corpus and dataset are made by the commands themselves, the run by hand: its curves have to be known.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from schemas.manifests import DatasetManifest, dump_manifest, parse_manifest
from trainer.config import TrainConfig, TrainPlan
from trainer.model.config import ModelConfig
from trainer.run_folder import RunRecord
from workflows.cli import main

EVIL_ID = '<img src="https://example.org/x.png" onerror="alert(1)">'
RARE = " \N{EGYPTIAN HIEROGLYPH A001}"
SENTENCES = [
    "<script>alert('tag')</script> closes & opens.",
    'A "quoted" <b>bold</b> cat sat on the mat.',
    "Кошка сидела на коврике.",
    "猫坐在垫子上。",
    "القطة على البساط.",
    "It purred softly, then it slept.",
]


class PageReader(HTMLParser):
    """Reads a page: its tags in order, its text, and what is wrong with its nesting."""

    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.faults: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.texts.append(data)
        if self.rows and ("td" in self._open or "th" in self._open) and "title" not in self._open:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def attributes_of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def row(self, first_cell: str) -> list[str]:
        (found,) = [row for row in self.rows if row and row[0] == first_cell]
        return found[1:]


@pytest.fixture(scope="session")
def read_page() -> Callable[[str], PageReader]:
    return PageReader


def run_json(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """texts.jsonl, tokenizer/, corpus/, dataset/, run/. Never write into them. One character is unknown."""
    folder = tmp_path_factory.mktemp("report")
    with (folder / "texts.jsonl").open("w") as stream:
        for n in range(60):
            text = " ".join(
                [f"Text number {n} begins here{RARE * (n % 2)}.", *(SENTENCES[(n + k) % 6] for k in range(4))]
            )
            name = EVIL_ID if n == 0 else f"text-{n}"
            stream.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
        stream.write('{"id": "blank", "text": " "}\n{"id": "none"}\n{"id": "none-2"}\nno json\n')
    (folder / "known.jsonl").write_text((folder / "texts.jsonl").read_text().replace(RARE, ""))
    known, source = (
        ("--input", str(folder / name), "--workers", "1") for name in ("known.jsonl", "texts.jsonl")
    )
    tokenizer, corpus, dataset = (str(folder / name) for name in ("tokenizer", "corpus", "dataset"))
    run_json("vocab", *known, "--output", tokenizer, "--vocab-size", "130")
    run_json(
        *("ingest", *source, "--tokenizer", tokenizer, "--output", corpus, "--validation-fraction", "0.2")
    )
    run_json(
        *("build", "--corpus", corpus, "--output", dataset, "--workers", "1", "--max-seq-length", "48"),
        *("--duplicate-factor", "3", "--examples-per-block", "16"),
    )
    write_run(folder / "run", folder / "dataset")
    return folder


RUN_STEPS, LOGGED_STEPS = 5000, 3000


def write_run(folder: Path, dataset: Path) -> None:
    """A run of three in five parts done: a line a step, an evaluation each 500 steps, two checkpoints."""
    manifest = parse_manifest(DatasetManifest, (dataset / "dataset.json").read_bytes(), "")
    record = RunRecord(
        created_by="clozeline 0",
        config=TrainConfig(data=(str(dataset),), output=EVIL_ID, steps=RUN_STEPS, batch_size=8),
        plan=TrainPlan(steps=RUN_STEPS, warmup_steps=10, lanes=1, microbatch_size=8),
        model=ModelConfig(
            vocab_size=130,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
        ),
        precision="bf16",
        tokenizer=manifest.tokenizer,
        dataset_fingerprint=hashlib.sha256(dump_manifest(manifest)).hexdigest(),
    )
    for step in (1000, 2000):
        (folder / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
        (folder / "checkpoints" / f"step-{step:08d}" / "checkpoint.json").write_text("{}")
    (folder / "config.json").write_text(record.model_dump_json())
    lines = [{"step": 0, **evaluation_at(0)}, *(line_at(step) for step in range(1, LOGGED_STEPS + 1))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def line_at(step: int) -> dict[str, float | None]:
    """A line of metrics: the loss is not finite at step 1500."""
    masked, next_sentence = 1 + 5 * math.exp(-step / 900), 0.3 + 0.4 * math.exp(-step / 900)
    line: dict[str, float | None] = {
        "step": step,
        "loss": masked + next_sentence,
        "masked_lm_loss": masked,
        "masked_lm_accuracy": 0.5 - 0.5 * math.exp(-step / 900),
        "next_sentence_loss": next_sentence,
        "next_sentence_accuracy": 0.9 - 0.4 * math.exp(-step / 900),
        "gradient_norm": 1.0,
        "learning_rate": 1e-4 * (1 - step / RUN_STEPS),
        "num_tokens": 1000 * step,
        "tokens_per_second": 20_000.0,
        "data_wait_share": 0.001,
        "utilisation": None,
        "memory_bytes": 2_000_000_000,
        "num_skipped_steps": 1,
        "seconds": step / 20,
    }
    if step == 1500:
        line |= {"loss": None, "masked_lm_loss": math.nan, "next_sentence_loss": math.inf}
    return line | (evaluation_at(step) if step % 500 == 0 else {})


def evaluation_at(step: int) -> dict[str, float | None]:
    return {
        "validation_masked_lm_loss": 1.1 + 5 * math.exp(-step / 900),
        "validation_masked_lm_accuracy": 0.45 - 0.45 * math.exp(-step / 900),
        "validation_next_sentence_loss": 0.4,
        "validation_next_sentence_accuracy": 0.8,
        "validation_num_examples": 64,
    }
