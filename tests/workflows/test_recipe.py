from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from schemas.errors import UsageError
from workflows.cli import load_command
from workflows.recipe import builtin_recipes, load_recipe


def _values_of(command: str, *arguments: str) -> dict[str, object]:
    """The values that a command would run with."""
    with load_command(command).make_context(command, list(arguments)) as ctx:
        return dict(ctx.params)


@pytest.mark.parametrize("name", builtin_recipes())
def test_the_recipes_that_come_with_clozeline_are_valid(name: str) -> None:
    assert load_recipe(name)


def test_there_are_three_recipes() -> None:
    assert builtin_recipes() == ["bert-base-phase1", "bert-base-phase2", "quickstart"]


def test_a_flag_overrides_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("input: [a.txt]\nmax-seq-length: 64\nseed: 3\nmodel: tiny\nwhole_word_mask: yes\n")
    values = _values_of(
        "build", "--recipe", str(recipe), "--corpus", "c", "--output", "o", "--max-seq-length", "32"
    )
    assert (values["max_seq_length"], values["seed"], values["whole_word_mask"]) == (32, 3, True)


def test_output_is_the_folder_of_the_whole(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("output: all/\ninput: a.txt\nsteps: 5\n")
    use = ("--recipe", str(recipe))
    assert _values_of("vocab", *use)["output"] == "all/tokenizer"
    ingest = _values_of("ingest", *use)
    assert (ingest["tokenizer"], ingest["output"], ingest["inputs"]) == (
        "all/tokenizer",
        "all/corpus",
        ("a.txt",),
    )
    build = _values_of("build", *use)
    assert (build["corpus"], build["output"]) == ("all/corpus", "all/dataset")
    train = _values_of("train", *use)
    assert (train["data"], train["output"], train["steps"]) == (("all/dataset",), "all/run", 5)
    assert _values_of("prepare", *use)["output"] == "all/"


@pytest.mark.parametrize(
    ("name", "length", "predictions", "steps"),
    [("bert-base-phase1", 128, 20, 900_000), ("bert-base-phase2", 512, 77, 100_000)],
)
def test_the_phases_have_the_published_sizes(name: str, length: int, predictions: int, steps: int) -> None:
    """Devlin et al. 2018, section A.2: a million steps of 256 sequences, nine tenths of them 128 long."""
    recipe = load_recipe(name)
    assert (recipe["max-seq-length"], recipe["max-predictions-per-seq"]) == (length, predictions)
    training = [
        recipe[option] for option in ("model", "steps", "batch-size", "learning-rate", "weight-decay")
    ]
    assert training == ["base", steps, 256, 1e-4, 0.01]
    assert recipe["warmup-steps"] == 10_000


def test_phase_2_takes_what_phase_1_made() -> None:
    values = _values_of("prepare", "--recipe", "bert-base-phase2")
    assert values["corpus"] == "bert-base-128/corpus"
    assert values["max_predictions_per_seq"] == 77
    train = _values_of("train", "--recipe", "bert-base-phase2")
    assert (train["init"], train["data"]) == ("bert-base-128/run", ("bert-base-512/dataset",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            "max-seq-lenght: 128",
            "no command has an option 'max-seq-lenght'.\nDid you mean max-seq-length?",
            id="typo",
        ),
        pytest.param("max-seq-length: long", "max-seq-length: 'long' is not a valid integer", id="kind"),
        pytest.param("max-seq-length: [1, 2]", "expected one value", id="list"),
        pytest.param("input: {a: b}", "expected a list", id="mapping"),
        pytest.param("compile: 3", "expected yes or no", id="flag"),
        pytest.param("seed: true", "expected a value", id="boolean"),
        pytest.param("objective: xnli", "'xnli' is not one of", id="choice"),
        pytest.param("- a\n- b", "holds list", id="no-mapping"),
        pytest.param("a: [", "can't be read", id="no-yaml"),
        pytest.param("json: true", "no command has an option 'json'", id="not-for-recipes"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, content: str, message: str) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(content)
    with pytest.raises(UsageError) as failure:
        load_recipe(str(recipe))
    assert message in str(failure.value)
    assert str(recipe) in str(failure.value)
    assert len(str(failure.value).splitlines()) <= 2


def test_on_and_off_are_words(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("next-sentence-balance: off\n")
    assert load_recipe(str(recipe)) == {"next-sentence-balance": "off"}


def test_no_such_recipe() -> None:
    with pytest.raises(UsageError, match=r"recipe nothing: no such file\.\nGive a path, or one of bert-base"):
        load_recipe("nothing")


def test_a_wrong_recipe_exits_with_2(tmp_path: Path) -> None:
    from workflows.cli import main

    result = CliRunner().invoke(main, ["prepare", "--recipe", str(tmp_path / "none.yaml")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert isinstance(load_command("prepare"), click.Command)
