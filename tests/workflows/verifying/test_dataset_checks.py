from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.workflows.verifying.conftest import SETTINGS
from tests.workflows.verifying.doctoring import ALLOWED, MASK, Example, Rules, remask, rewrite
from trainer.data.dataset import open_dataset
from workflows.verifying.dataset_checks import DatasetVerification, verify_dataset, verify_sizes

Build = Callable[[str], Path]


def _verify(folder: Path, workers: int = 1) -> DatasetVerification:
    return verify_dataset(open_dataset(str(folder)), lambda done, total: None, workers)


def _wrong(outcome: DatasetVerification) -> list[str]:
    return [statistic.name for statistic in outcome.statistics if not statistic.ok]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_dataset_of_each_objective_is_right(name: str, build: Build) -> None:
    outcome = _verify(build(name))
    assert outcome.faults == ()
    manifest = open_dataset(str(build(name))).manifest
    assert (outcome.num_examples, outcome.num_tokens) == (manifest.num_examples, manifest.num_tokens)
    named = [statistic.name for statistic in outcome.statistics]
    label = {"mlm": [], "sentence-order": ["in order"]}.get(name, ["is next"])
    shares = ["chosen", "[MASK]", "random", "kept", "kept, by manifest"]
    assert named == [*shares, "random ids", "positions", *label]
    assert outcome.lengths["longest"] <= 64


def test_several_processes_find_the_same(build: Build) -> None:
    calls: list[tuple[int, int]] = []
    dataset = open_dataset(str(build("next-sentence")))
    num_shards = len(dataset.manifest.shards)
    assert num_shards >= 2
    outcome = verify_dataset(dataset, lambda done, total: calls.append((done, total)), workers=2)
    assert outcome == _verify(build("next-sentence"))
    assert calls == [(done, num_shards) for done in range(1, num_shards + 1)]


@pytest.mark.parametrize("name", ["next-sentence", "sentence-order", "mlm"])
def test_a_dataset_masked_by_another_program_is_right(name: str, build: Build, tmp_path: Path) -> None:
    assert _verify(remask(build(name), tmp_path / "again", Rules())).faults == ()


def _one_id(original: int, rng: np.random.Generator) -> int:
    draw = rng.random()
    return MASK if draw < 0.8 else 100 if draw < 0.9 else original


def _small_ids(original: int, rng: np.random.Generator) -> int:
    draw = rng.random()
    return MASK if draw < 0.8 else int(rng.choice(ALLOWED[:85])) if draw < 0.9 else original


def _front(places: Sequence[int], number: int, rng: np.random.Generator) -> list[int]:
    front = places[: max(number, len(places) // 2)]
    return sorted(rng.choice(front, number, replace=False).tolist())


def _leaning(places: Sequence[int], number: int, rng: np.random.Generator) -> list[int]:
    weights = np.linspace(2.0, 1.0, len(places))
    return sorted(rng.choice(places, number, replace=False, p=weights / weights.sum()).tolist())


def _shares(mask: float, random: float) -> Callable[[int, np.random.Generator], int]:
    def draw_one(original: int, rng: np.random.Generator) -> int:
        draw = rng.random()
        return MASK if draw < mask else int(rng.choice(ALLOWED)) if draw < mask + random else original

    return draw_one


KEPT = ["kept", "kept, by manifest"]


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        pytest.param(Rules(replace=_one_id), ["random ids"], id="one-replacement"),
        pytest.param(Rules(replace=_small_ids), ["random ids"], id="replacements-of-half-the-vocabulary"),
        pytest.param(Rules(choose=_front), ["positions"], id="masks-at-the-front"),
        pytest.param(Rules(choose=_leaning), ["positions"], id="masks-lean-to-the-front"),
        pytest.param(Rules(replace=_shares(0.7, 0.2)), ["[MASK]", "random"], id="70-20-10"),
        pytest.param(Rules(replace=_shares(0.8, 0.0)), ["random", *KEPT], id="80-0-20"),
        pytest.param(Rules(replace=_shares(1.0, 0.0)), ["[MASK]", "random", *KEPT], id="100-0-0"),
        pytest.param(Rules(label=lambda label, rng: 0), ["is next"], id="all-labels-IsNext"),
        pytest.param(Rules(label=lambda label, rng: int(rng.random() < 0.8)), ["is next"], id="labels-20-80"),
    ],
)
def test_a_wrong_draw_is_found_though_everything_else_agrees(
    rules: Rules, wrong: list[str], build: Build, tmp_path: Path
) -> None:
    outcome = _verify(remask(build("next-sentence"), tmp_path / "wrong", rules))
    assert _wrong(outcome) == wrong
    assert len(outcome.faults) == len(wrong)
    for name, fault in zip(wrong, outcome.faults, strict=True):
        assert fault.startswith(f"statistics: {name}")
        assert "chance doesn't explain that" in fault


def test_labels_that_are_all_swapped_are_found(build: Build, tmp_path: Path) -> None:
    rules = Rules(label=lambda label, rng: 1)
    assert _wrong(_verify(remask(build("sentence-order"), tmp_path / "wrong", rules))) == ["in order"]


def test_documents_that_force_the_labels_are_no_fault(tmp_path: Path) -> None:
    """Documents of one sentence give NotNext alone, and documents of one text IsNext alone."""
    from pipelines.build import run_build
    from schemas.configs import BuildConfig
    from tests.conftest import build_tiny_tokenizer
    from tests.pipelines.corpora import make_documents, write_corpus

    short = make_documents(400, ids=range(9, 180), max_sentences=1, max_tokens=20)
    same = [[[20, 21, 22, 23], [24, 25, 26], [27, 28, 29, 30, 31]] * 5] * 60
    for name, documents, share in [("short", short, 0.0), ("same", same, 1.0)]:
        write_corpus(tmp_path / name, build_tiny_tokenizer(), {"train/a.parquet": [documents]})
        output = tmp_path / f"{name}-data"
        run_build(BuildConfig(max_seq_length=32), str(tmp_path / name), str(output), workers=1)
        outcome = _verify(output)
        assert outcome.faults == ()
        assert outcome.statistics[-1].found == (share,)


def _reserved(example: Example) -> Example:
    ids = list(example["input_ids"])
    ids[example["masked_lm_positions"][0]] = 2  # [unused1]
    return {**example, "input_ids": ids}


def _cut_a_word(example: Example) -> Example:
    """Take the last chosen position away, put its token back."""
    if len(example["masked_lm_positions"]) < 2:
        return example
    ids, last = list(example["input_ids"]), example["masked_lm_positions"][-1]
    ids[last] = example["masked_lm_ids"][-1]
    positions, originals = example["masked_lm_positions"][:-1], example["masked_lm_ids"][:-1]
    return {**example, "input_ids": ids, "masked_lm_positions": positions, "masked_lm_ids": originals}


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("next-sentence", _reserved, "example 0: a reserved token was put in"),
        ("next-sentence", _cut_a_word, "another number of tokens was chosen than the configuration says"),
        ("whole-words", _cut_a_word, "one more whole word would have fitted"),
        ("whole-words", _cut_a_word, "a part of a word was chosen"),
    ],
)
def test_a_broken_rule_is_found_with_its_shard(
    name: str, change: Callable[[Example], Example], fault: str, build: Build, tmp_path: Path
) -> None:
    folder = rewrite(Path(shutil.copytree(build(name), tmp_path / "wrong")), change)
    outcome = _verify(folder)
    assert any(f.startswith("train-00000-of-") and f.endswith(fault) for f in outcome.faults)
    # Draws of a faulty shard are not judged.
    assert outcome.statistics == ()


def test_a_stray_shard_is_reported_and_other_files_are_not(build: Build, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(build("mlm"), tmp_path / "d"))
    (folder / "README.md").write_text("mine")
    (folder / "train-00005-of-00016.tar").write_bytes(b"")
    dataset = open_dataset(str(folder))
    for outcome in (_verify(folder), verify_sizes(dataset, lambda done, total: None)):
        (fault,) = outcome.faults
        assert fault.startswith("train-00005-of-00016.tar is no file of the manifest's")


def test_sizes_are_compared_without_reading(build: Build, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(build("mlm"), tmp_path / "d"))
    first, second, *others = (shard.name for shard in open_dataset(str(folder)).manifest.shards)
    flipped = bytearray((folder / first).read_bytes())
    flipped[1000] ^= 1
    (folder / first).write_bytes(flipped)
    dataset = open_dataset(str(folder))
    calls: list[tuple[int, int]] = []
    assert verify_sizes(dataset, lambda done, total: calls.append((done, total))).faults == ()
    assert calls[-1] == (len(others) + 3, len(others) + 3)
    size = (folder / second).stat().st_size
    with (folder / second).open("ab") as stream:
        stream.write(b"\0")
    (folder / "tokenizer.json").unlink()
    (folder / first).unlink()
    assert sorted(verify_sizes(dataset, lambda done, total: None).faults) == sorted(
        [
            f"{first} is missing, though the manifest lists it",
            f"{second} has {size + 1:,} bytes, the manifest says {size:,}",
            "tokenizer.json is missing, though the manifest lists it",
        ]
    )


def test_a_folder_that_can_not_be_listed_is_asked_for_each_file(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schemas.errors import ClozelineError
    from workflows.verifying import folder_files

    def refuse(url: str) -> dict[str, int | None]:
        raise ClozelineError(f"{url} can't be listed")

    monkeypatch.setattr(folder_files, "list_sizes", refuse)
    folder = Path(shutil.copytree(build("mlm"), tmp_path / "d"))
    dataset = open_dataset(str(folder))
    outcome = verify_sizes(dataset, lambda done, total: None)
    assert (outcome.faults, outcome.listed) == ((), False)
    (folder / dataset.manifest.shards[0].name).unlink()
    (fault,) = verify_sizes(dataset, lambda done, total: None).faults
    assert "is missing" in fault
    assert _verify(folder).listed is False


def test_without_its_tokenizer_what_needs_no_vocabulary_is_still_judged(build: Build, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(build("whole-words"), tmp_path / "d"))
    (folder / "tokenizer.json").write_text("{}")
    outcome = _verify(folder)
    (fault,) = outcome.faults
    assert "is not the tokenizer that made the dataset" in fault
    names = [statistic.name for statistic in outcome.statistics]
    assert names == ["chosen", "[MASK]", "kept, by manifest", "is next"]


def test_the_statistics_are_of_the_whole_shards_alone(build: Build, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(build("next-sentence"), tmp_path / "d"))
    dataset = open_dataset(str(folder))
    shard = dataset.manifest.shards[0]
    (folder / shard.name).write_bytes((folder / shard.name).read_bytes()[:-600])
    outcome = _verify(folder)
    (fault,) = outcome.faults
    assert f"{shard.name} is truncated" in fault
    num_labels = outcome.statistics[-1].num_draws
    assert num_labels == dataset.manifest.num_examples - shard.num_examples
    assert replace(outcome, faults=()) == replace(_verify(folder, workers=2), faults=())
