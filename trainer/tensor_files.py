"""Named tensors in a safetensors file, written as a stream and read back checked.

In: a dict of tensors. Out: a file of the safetensors format (https://github.com/huggingface/safetensors):
eight bytes of header length, a JSON header of names, types, shapes and offsets, then the raw values. No
object is pickled, so reading a file from a stranger runs nothing of theirs. Deterministic: the same tensors
give the same bytes, in the order of their names.

The library's own writer needs either all of the file in memory or a local path; this one needs neither and
lets the caller hash what passes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor

from schemas.errors import CorruptDataError

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT_BYTES = 8


def write_tensors(file: BinaryIO, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device to an open binary file, one at a time.

    Raises:
        OSError: whatever the file raises.
    """
    names = sorted(tensors)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        size_bytes = tensors[name].numel() * tensors[name].element_size()
        header[name] = {
            "dtype": _DTYPE_NAMES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + size_bytes],
        }
        offset += size_bytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT_BYTES)
    file.write(len(encoded).to_bytes(8, "little") + encoded)
    for name in names:
        flat = tensors[name].detach().to("cpu").contiguous().reshape(-1)
        file.write(flat.view(torch.uint8).numpy().data)


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """Tensors of a local file, on the CPU.

    Raises:
        CorruptDataError: the file is no safetensors file.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise _corrupt(path, error) from None


def parse_tensors(content: bytes, path: str) -> dict[str, Tensor]:
    """Tensors of the bytes of a file, on the CPU.

    Raises:
        CorruptDataError: the bytes are no safetensors file; the message names `path`.
    """
    try:
        return load(content)
    except SafetensorError as error:
        raise _corrupt(path, error) from None


def _corrupt(path: str, error: Exception) -> CorruptDataError:
    return CorruptDataError(f"{path} is no readable safetensors file: {error}")
