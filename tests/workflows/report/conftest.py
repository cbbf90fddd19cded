"""A corpus and a dataset of texts that are unkind to HTML, made once a process by the commands themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

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
    """texts.jsonl, tokenizer/, corpus/ and dataset/. Never write into them. One character is unknown."""
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
    return folder
