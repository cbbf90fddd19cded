import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from workflows.cli import COMMANDS, load_command, main

HEAVY = {"torch", "apache_beam", "pyarrow", "numpy", "pydantic", "tokenizers", "rich", "webdataset"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says_of_itself(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert (command.help or "").split("\n\n")[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_json_and_debug(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "--debug" in result.stdout


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from workflows.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        f"print('loaded:', sorted({HEAVY!r} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "quickstart" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize("arguments", [[name, "--help"] for name in COMMANDS], ids=list(COMMANDS))
def test_help_of_a_command_loads_neither_half(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from workflows.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('loaded:', sorted({'torch', 'apache_beam', 'pyarrow'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # The shared options validate with pydantic; Arrow, Beam and torch wait for the work.
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_an_unknown_command_is_a_usage_error_of_two_lines() -> None:
    result = CliRunner().invoke(main, ["ingset"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "error: No such command 'ingset'. Did you mean 'ingest'?"
    assert len(result.stderr.splitlines()) <= 2


def test_without_a_command_it_shows_the_help() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == CliRunner().invoke(main, ["--help"]).stdout


def test_torch_waits_without_spinning_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    CliRunner().invoke(main, ["--help"])
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "other")
    CliRunner().invoke(main, ["--help"])
    assert os.environ["OMP_WAIT_POLICY"] == "other"


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("clozeline ")
