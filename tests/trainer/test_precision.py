from __future__ import annotations

import pytest
import torch

from schemas.errors import UsageError
from trainer.precision import choose_precision, compute_in

CPU = torch.device("cpu")


@pytest.mark.parametrize(("has_units", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_follows_the_processor(has_units: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.precision._computes_bfloat16", lambda device: has_units)
    assert choose_precision("auto", CPU) == expected


@pytest.mark.parametrize("choice", ["fp32", "bf16"])
def test_a_choice_is_kept_on_the_cpu(choice: str) -> None:
    assert choose_precision(choice, CPU) == choice  # type: ignore[arg-type]


def test_other_devices_are_float32() -> None:
    assert choose_precision("auto", torch.device("meta")) == "fp32"


def test_a_gpu_without_bfloat16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.precision._computes_bfloat16", lambda device: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(UsageError, match="--precision bf16, but Tesla T4 has no bfloat16 units"):
        choose_precision("bf16", torch.device("cuda"))


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_context_decides_the_format(precision: str, dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(4, 4)
    with compute_in(precision, CPU):  # type: ignore[arg-type]
        assert layer(torch.zeros(1, 4)).dtype == dtype
    assert layer(torch.zeros(1, 4)).dtype == torch.float32
