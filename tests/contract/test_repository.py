"""What the repository says of itself holds: the tests that the README names, the pins, the typed packages."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from trainer.model.config import PRESETS
from workflows.cli import load_command
from workflows.training import train_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _tests_named_in_the_readme() -> list[str]:
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", README)))


def test_the_readme_names_tests() -> None:
    assert len(_tests_named_in_the_readme()) >= 10


@pytest.mark.parametrize("name", _tests_named_in_the_readme())
def test_a_test_that_the_readme_names_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)", README))
def test_a_file_that_the_readme_links_to_is_there(target: str) -> None:
    assert (ROOT / target).exists()


def test_torch_is_pinned_for_development_and_a_range_for_users() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in pins if line.startswith("torch==")] == ["torch==2.13.0"]
    (needed,) = [line for line in PROJECT["project"]["optional-dependencies"]["trainer"] if "torch" in line]
    assert needed.startswith("torch>=")


def test_the_check_for_every_change_runs_lint_types_and_import_contracts() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test: lint types imports unit\b", makefile, flags=re.MULTILINE)
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("package", ["schemas", "pipelines", "trainer", "workflows"])
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def _commands_of_the_readme() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.startswith("clozeline ")]


@pytest.mark.parametrize("line", _commands_of_the_readme())
def test_commands_of_the_readme_run_as_printed(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    with load_command(name).make_context(name, arguments) as ctx:
        if name == "train" and not ctx.params["resume"]:
            config = train_config(ctx.params)
            # With weights to begin from, the sizes are theirs.
            assert config.model in PRESETS or (config.model is None and config.init is not None)


def test_the_readme_shows_most_commands() -> None:
    assert len(_commands_of_the_readme()) >= 10
