from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from schemas.errors import UsageError
from trainer.config import TrainConfig
from trainer.distributed import choose_device, join_ranks
from trainer.loop import train

REPOSITORY = Path(__file__).parents[2]

FORK_RANKS = """
import json, os, sys
import torch
import torch._dynamo, tensorboard.compat.proto.event_pb2  # loaded once, before the forks
from schemas.errors import ClozelineError, CorruptDataError
from trainer.config import TrainConfig
from trainer.distributed import join_ranks
from trainer.loop import train

torch.set_num_threads(1)

def exchange():
    with join_ranks("cpu") as ranks:
        other = 10 ** ranks.rank
        total = ranks.sum(torch.tensor([1, other])).tolist()
        told = ranks.broadcast_json({"from": ranks.rank, "text": "\\u00e9" * 1000})
        gathered = ranks.gather_json({"rank": ranks.rank, "list": [7] * (1 + 5 * ranks.rank)})
        done = ranks.run_on_first(lambda: "done")
        def fail():
            raise CorruptDataError("a file of rank 0")
        try:
            ranks.run_on_first(fail)
            failure = None
        except ClozelineError as error:
            failure = [type(error).__name__, str(error)]
        return [ranks.world_size, total, told["from"], len(told["text"]), done, failure, gathered]

for number, (encoded, port) in enumerate(json.loads(sys.argv[1])):
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            if encoded is None:
                result = exchange()
            else:
                summary = train(TrainConfig.model_validate_json(encoded))
                result = [summary.steps, summary.num_examples, summary.loss]
            with open(f"{sys.argv[2]}/{number}-{rank}.json", "w") as file:
                json.dump(result, file)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for encoded in json.loads(sys.argv[3]):
    train(TrainConfig.model_validate_json(encoded))
"""


def run_two_ranks(folder: Path, encoded: list[str | None], alone: list[str]) -> list[list[Any]]:
    """Run each configuration (or None: the exchange of messages) on two ranks; what each rank wrote.

    Those in `alone` are run on one rank.
    """
    ports = []
    for _ in encoded:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    work = json.dumps(list(zip(encoded, ports, strict=True)))
    arguments = [work, str(folder), json.dumps(alone)]
    subprocess.run([sys.executable, "-c", FORK_RANKS, *arguments], cwd=REPOSITORY, check=True)
    return [
        [json.loads((folder / f"{number}-{rank}.json").read_text()) for rank in range(2)]
        for number in range(len(encoded))
    ]


def read_losses(run: str) -> list[tuple[float, float]]:
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [(line["masked_lm_loss"], line["next_sentence_loss"]) for line in lines]


@pytest.fixture
def make_config(tmp_path: Path, tiny_dataset_path: Path) -> Callable[..., TrainConfig]:
    sizes = tmp_path / "sizes.json"
    sizes.write_text(
        json.dumps(
            {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        )
    )

    def make(name: str, **values: Any) -> TrainConfig:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / name),
            "model": str(sizes),
            "steps": 10,
            "batch_size": 12,
            "learning_rate": 1e-3,
            "precision": "fp32",
            "device": "cpu",
            "log_every": 1,
            "save_every": 5,
        }
        return TrainConfig(**defaults | values)

    return make


def test_two_ranks_compute_what_one_rank_does_with_all_lanes(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    forms = {"padded": {}, "packed": {"batch_size": None, "tokens_per_batch": 4 * 2 * 32}}
    ones = {name: make_config(f"one-{name}", gradient_accumulation=4, **form) for name, form in forms.items()}
    twos = {name: make_config(f"two-{name}", gradient_accumulation=2, **form) for name, form in forms.items()}
    exchanged, *trained = run_two_ranks(
        tmp_path,
        [None, *(config.model_dump_json() for config in twos.values())],
        [config.model_dump_json() for config in ones.values()],
    )
    failure = ["CorruptDataError", "a file of rank 0"]
    gathered = [{"rank": 0, "list": [7]}, {"rank": 1, "list": [7] * 6}]
    assert exchanged == [[2, [2, 11], 0, 1000, done, failure, gathered] for done in ("done", None)]
    for name, (first, second) in zip(forms, trained, strict=True):
        assert first == second, name
        require_same_training(ones[name].output, twos[name].output)


def require_same_training(one: str, other: str) -> None:
    """Losses, weights and the place in the data, after ten steps."""
    torch.testing.assert_close(
        torch.tensor(read_losses(other), dtype=torch.float64),
        torch.tensor(read_losses(one), dtype=torch.float64),
        atol=1e-6,
        rtol=0,
    )
    ours, theirs = (Path(run) / "checkpoints" / "step-00000010" for run in (one, other))
    weights = load_file(theirs / "model.safetensors")
    for name, expected in load_file(ours / "model.safetensors").items():
        torch.testing.assert_close(weights[name], expected, atol=1e-5, rtol=0, msg=name)
    streams = [
        json.loads((folder / "checkpoint.json").read_text())["progress"]["stream"]
        for folder in (ours, theirs)
    ]
    assert sorted(streams[0]["cursors"]) == ["0", "1", "2", "3"]
    assert streams[0] == streams[1]


def test_a_run_that_died_goes_on_with_another_number_of_ranks_on_the_same_data(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    whole, died = (make_config(name, gradient_accumulation=4) for name in ("whole", "died"))

    def die(done: int, total: int) -> None:
        if done == 7:
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        train(died, die)
    (trained,) = run_two_ranks(tmp_path, [died.model_dump_json()], [whole.model_dump_json()])
    assert trained[0] == trained[1]
    require_same_training(whole.output, died.output)
    seen = []
    for config in (whole, died):
        lines = (Path(config.output) / "metrics.jsonl").read_text().splitlines()
        seen.append([[json.loads(line)[name] for name in ("step", "num_tokens")] for line in lines])
    assert seen[0] == seen[1]


def test_one_process_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with join_ranks("cpu") as ranks:
        assert (ranks.rank, ranks.world_size, ranks.is_first) == (0, 1, True)
        assert ranks.sum(torch.tensor([3])).tolist() == [3]
        assert ranks.broadcast_json({"a": [1]}) == {"a": [1]}
        assert ranks.gather_json({"a": [1]}) == [{"a": [1]}]
        assert ranks.run_on_first(lambda: 5) == 5


@pytest.mark.parametrize(
    ("name", "local_rank", "expected"), [("cpu", 3, "cpu"), ("auto", 1, "cuda:1"), ("cuda:0", 1, "cuda:0")]
)
def test_a_device_by_name(monkeypatch: pytest.MonkeyPatch, name: str, local_rank: int, expected: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_device(name, local_rank) == torch.device(expected)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(UsageError, match="cuda:1 was asked for, but torch finds 1 GPUs"):
        choose_device("cuda", local_rank=1)


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:x", "cuda:-1", ""])
def test_a_name_that_means_no_device_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"There is no device .* Give auto, cpu, cuda or cuda:N"):
        choose_device(name)
