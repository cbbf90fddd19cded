from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from workflows.cli import main


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def _plan(*arguments: str) -> dict[str, Any]:
    result = _run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def test_a_run_of_base_on_one_h100() -> None:
    summary = _plan("--model", "base", "--batch-size", "256", "--steps", "1000000")
    assert summary["num_parameters"] == 110_106_428
    assert summary["precision"] == "bf16"
    assert summary["tokens_per_step"] == 32_768
    assert summary["seconds"] == pytest.approx(1e6 * summary["flops_per_step"]["total"] / (0.4 * 989.5e12))
    (default,) = (one for one in summary["memory"] if one["is_default"])
    held = {name: value for name, value in default["use"].items() if name not in ("moment", "total")}
    assert default["use"]["total"] == sum(held.values())
    assert default["attention"] == "fused"


def test_a_person_reads_parts_memory_and_time() -> None:
    result = _run("--steps", "1000", "--device", "a100", "--devices", "8")
    assert result.exit_code == 0
    for text in (
        "110,106,428 parameters",
        "32,768 tokens, 4,864 masked",
        "attention, n d^2",
        "at every token 4.72 TFLOP",
        "in all, as trained by default",
        "fused attention, activation checkpointing",
        "Time on 8 x a100",
        "40% of 312.0 TFLOPS in bf16",
    ):
        assert text in result.stdout, text


def test_a_dataset_says_how_long_its_examples_are(made: Path) -> None:
    manifest = json.loads((made / "dataset" / "dataset.json").read_text())
    shards = [shard for shard in manifest["shards"] if shard["split"] == "train"]
    num_examples = sum(shard["num_examples"] for shard in shards)
    num_tokens = sum(shard["num_tokens"] for shard in shards)
    chosen = sum(shard["masking"]["num_chosen_tokens"] for shard in shards)
    summary = _plan(
        *("--data", str(made / "dataset"), "--model", "tiny", "--batch-size", str(num_examples)),
        *("--epochs", "3", "--device", "cpu", "--peak-tflops", "0.5"),
    )
    assert summary["num_steps"] == 3
    assert summary["num_examples"] == num_examples
    assert summary["num_tokens"] == pytest.approx(3 * num_tokens)
    assert summary["masked_per_step"] == pytest.approx(chosen)
    assert summary["vocab_size"] == manifest["tokenizer"]["vocab_size"]
    assert summary["max_seq_length"] == manifest["config"]["max_seq_length"]
    assert summary["seconds"] == pytest.approx(3 * summary["flops_per_step"]["total"] / (0.4 * 0.5e12))
    assert {one["layout"] for one in summary["memory"]} == {"padded", "packed"}


def test_tokens_in_a_step_are_packed_into_rows(made: Path) -> None:
    manifest = json.loads((made / "dataset" / "dataset.json").read_text())
    shards = [shard for shard in manifest["shards"] if shard["split"] == "train"]
    num_examples = sum(shard["num_examples"] for shard in shards)
    num_tokens = sum(shard["num_tokens"] for shard in shards)
    arguments = (
        "--data",
        str(made / "dataset"),
        "--model",
        "tiny",
        "--tokens-per-batch",
        "1100",
        "--epochs",
        "50",
    )
    cut = ("--gradient-accumulation", "2", "--devices", "4")
    summary = _plan(*arguments, *cut)
    # 1100 tokens are 34 rows of 32: 4 in each of 8 microbatches.
    assert (summary["lanes"], summary["microbatch_size"], summary["row_length"]) == (8, 4, 32)
    assert (summary["batch_size"], summary["tokens_per_batch"]) == (None, 1024)
    assert summary["examples_per_step"] == pytest.approx(1024 * num_examples / num_tokens)
    assert summary["num_steps"] == -(-50 * num_tokens // 1024)
    assert {one["layout"] for one in summary["memory"]} == {"packed"}
    assert sum(one["is_default"] for one in summary["memory"]) == 1
    text = _run(*arguments, *cut).stdout
    assert "4 rows of 32 tokens at a time" in text
    assert "1,024 tokens" in text


@pytest.mark.parametrize(
    ("arguments", "precision"),
    [
        (("--device", "h100"), "bf16"),
        (("--device", "V100"), "fp32"),
        (("--device", "cpu"), "fp32"),
        (("--device", "cpu", "--precision", "bf16"), "bf16"),
        (("--device", "NVIDIA H100 80GB HBM3"), "bf16"),
        (("--device", "rtx4090", "--peak-tflops", "165"), "bf16"),
    ],
)
def test_precision_follows_the_device(arguments: tuple[str, ...], precision: str) -> None:
    assert _plan(*arguments)["precision"] == precision


def test_a_processor_has_no_time_but_all_else() -> None:
    summary = _plan("--device", "cpu", "--steps", "10")
    assert (summary["tokens_per_second"], summary["seconds"]) == (None, None)
    assert summary["num_tokens"] == 10 * 32_768
    assert "--peak-tflops" in _run("--device", "cpu").stdout


def test_sizes_from_a_file(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text('{"num_hidden_layers": 3, "hidden_size": 192}')
    summary = _plan("--model", str(sizes), "--vocab-size", "4096", "--dropout", "0", "--device", "cpu")
    assert summary["num_parameters"] < 3_000_000
    (default,) = (one for one in summary["memory"] if one["is_default"])
    assert default["attention"] == "fused"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "5", "--epochs", "1"), "one of --steps and --epochs"),
        (("--epochs", "1"), "--data"),
        (("--data", "nowhere", "--vocab-size", "100"), "leave out"),
        (("--data", "nowhere"), "nowhere"),
        (("--model", "huge"), "no preset"),
        (("--model", "nowhere.json"), "nowhere.json"),
        (("--batch-size", "10", "--devices", "4"), "multiple of 4"),
        (("--max-seq-length", "1024"), "512 positions"),
        (("--batch-size", "8", "--tokens-per-batch", "512"), "one of --batch-size and --tokens-per-batch"),
        (("--tokens-per-batch", "500", "--devices", "4"), "Give 512 or more"),
        (("--utilisation", "0"), "--utilisation"),
        (("--device", "h10O"), "--device h10O is not known; known are cpu, gb200, b200"),
        (("--device", "rtx4090"), "--peak-tflops"),
    ],
)
def test_what_can_t_be_planned_is_said(arguments: tuple[str, ...], message: str) -> None:
    result = _run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) <= 4


def test_neither_torch_nor_beam_is_loaded() -> None:
    program = (
        "import sys\nfrom workflows.cli import main\n"
        "try:\n    main(['plan', '--steps', '5'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('loaded:', sorted({'torch', 'apache_beam'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"
