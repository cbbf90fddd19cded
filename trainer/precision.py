"""Which number format the forward pass computes in.

In: what the user asked for and the device. Out: `fp32` or `bf16`, to be stored with the run, and a context to
compute in. Weights, gradients and the optimiser's state are float32 in either; bfloat16 has float32's range,
so no loss scaling is needed. Deterministic for a kind of processor.
"""

from __future__ import annotations

from typing import Literal

import torch

from schemas.errors import UsageError

PrecisionChoice = Literal["auto", "fp32", "bf16"]
Precision = Literal["fp32", "bf16"]


def choose_precision(choice: PrecisionChoice, device: torch.device) -> Precision:
    """Settle `auto`: bfloat16 where the processor multiplies it natively, else float32.

    Raises:
        UsageError: `bf16` was asked for on a CUDA device that would only emulate it.
    """
    if choice == "auto":
        return "bf16" if _computes_bfloat16(device) else "fp32"
    if choice == "bf16" and device.type == "cuda" and not _computes_bfloat16(device):
        raise UsageError(
            f"--precision bf16, but {torch.cuda.get_device_name(device)} has no bfloat16 units. "
            f"Use --precision fp32 or auto."
        )
    return choice


def compute_in(precision: Precision, device: torch.device) -> torch.autocast:
    """A context for the forward pass (never for the backward pass) in this precision."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        # The question has no public name yet; every processor with AMX for bfloat16 has avx512_bf16 too.
        probe = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
        return probe is not None and bool(probe())
    return False
