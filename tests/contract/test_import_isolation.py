"""Either half can be installed alone: importing all of one never loads what only the other needs."""

import subprocess
import sys

import pytest

WALK = """
import importlib, pkgutil, sys
package = importlib.import_module({package!r})
names = [module.name for module in pkgutil.walk_packages(package.__path__, {package!r} + ".")]
for name in names:
    importlib.import_module(name)
print(len(names), sorted(set({forbidden!r}) & set(sys.modules)))
"""


def _run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("pipelines", ["torch", "webdataset", "transformers", "trainer", "workflows"]),
        ("trainer", ["apache_beam", "sentencex", "transformers", "pipelines", "workflows"]),
        (
            "schemas",
            ["apache_beam", "torch", "tokenizers", "fsspec", "click", "rich", "pipelines", "trainer"],
        ),
    ],
)
def test_no_module_of_a_package_loads_what_belongs_to_others(package: str, forbidden: list[str]) -> None:
    count, loaded = _run(WALK.format(package=package, forbidden=forbidden)).split(" ", 1)
    assert int(count) >= 5
    assert loaded == "[]"


def test_a_dataset_is_inspected_and_verified_without_torch_or_beam() -> None:
    program = (
        "import sys\n"
        "import trainer.data.dataset, trainer.data.blocks, workflows.inspecting\n"
        "import workflows.verifying.dataset_checks, workflows.verifying.corpus_checks\n"
        "print(sorted({'torch', 'apache_beam'} & set(sys.modules)))\n"
    )
    assert _run(program) == "[]"
