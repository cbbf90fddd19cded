from pathlib import Path

import pytest

from schemas.errors import UsageError
from workflows.quickstart.record import QuickstartRecord


def test_results_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    record = QuickstartRecord.open(tmp_path / "q", {"minutes": 4.0}, overwrite=False)
    record.finish("collect", {"num_documents": 3})
    record.finish("train", {"steps": 9})
    record.forget("train", "never-done")
    again = QuickstartRecord.open(tmp_path / "q", {"minutes": 4.0}, overwrite=False)
    assert again.stages == {"collect": {"num_documents": 3}}


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    QuickstartRecord.open(tmp_path, {"minutes": 4.0, "vocab_size": 4096}, overwrite=False)
    with pytest.raises(UsageError) as failure:
        QuickstartRecord.open(tmp_path, {"minutes": 2.0, "vocab_size": 4096}, overwrite=False)
    assert str(failure.value) == (
        f"{tmp_path} holds a quickstart of other settings: minutes 4.0 there, 2.0 now.\n"
        "Give another --output, or --overwrite to do it anew."
    )


def test_overwrite_removes_what_a_quickstart_made_and_nothing_else(tmp_path: Path) -> None:
    record = QuickstartRecord.open(tmp_path, {"minutes": 4.0}, overwrite=False)
    record.finish("collect", {})
    (tmp_path / "corpus").mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    again = QuickstartRecord.open(tmp_path, {"minutes": 2.0}, overwrite=True)
    assert again.stages == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "quickstart.json"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "precious").write_text("x")
    with pytest.raises(UsageError, match=r"has no quickstart\.json of a quickstart"):
        QuickstartRecord.open(tmp_path, {}, overwrite=overwrite)
    assert (tmp_path / "corpus" / "precious").read_text() == "x"


@pytest.mark.parametrize("content", ["{", "[]", '{"settings": 1, "stages": {}}', "{}"])
def test_a_damaged_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "quickstart.json").write_text(content)
    with pytest.raises(UsageError, match="is no record of a quickstart"):
        QuickstartRecord.open(tmp_path, {}, overwrite=False)
