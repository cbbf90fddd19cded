"""The package as a library: the lines of the README, run as they stand there but for the number of steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import transformers

import trainer

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def library_example() -> str:
    (example,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
        if "from trainer import" in block
    ]
    return str(example)


def test_the_readme_s_lines_train_fill_and_export(
    tiny_dataset_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    Path("data-1").symlink_to(tiny_dataset_path)
    assert "steps=2000" in library_example()
    exec(library_example().replace("steps=2000", "steps=2, batch_size=16, device='cpu'"), {})
    num_examples, filled = capsys.readouterr().out.splitlines()
    assert num_examples == "217"
    assert re.fullmatch(r"the .*sat on the mat", filled)
    model = transformers.AutoModelForMaskedLM.from_pretrained("hf-model-5", local_files_only=True)
    assert model.config.hidden_size == 128


def test_the_package_s_docstring_shows_the_same_lines() -> None:
    assert textwrap.indent(library_example(), "    ") in (trainer.__doc__ or "")


def test_every_name_is_found_where_the_table_says() -> None:
    assert trainer.__all__ == sorted(trainer._HOMES)
    for name in trainer.__all__:
        assert getattr(trainer, name).__module__ == trainer._HOMES[name]
    with pytest.raises(AttributeError, match="module 'trainer' has no attribute 'fit'"):
        _ = trainer.fit


def test_importing_it_loads_nothing_heavy() -> None:
    program = (
        "import sys, trainer\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'pydantic', 'tokenizers', 'fsspec', 'schemas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("given", [None, "7"])
def test_torch_keeps_few_shapes_unless_told_otherwise(given: str | None) -> None:
    names = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {} if given is None else dict.fromkeys(names, given)
    program = f"import os, trainer\nprint([os.environ[name] for name in {names}])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == str([given or "64"] * 2)
