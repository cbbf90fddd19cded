from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from schemas.errors import CorruptDataError
from trainer.tensor_files import parse_tensors, read_tensor_file, write_tensors

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8]


def encode(tensors: dict[str, torch.Tensor]) -> bytes:
    sink = io.BytesIO()
    write_tensors(sink, tensors)
    return sink.getvalue()


def test_the_bytes_of_a_small_file() -> None:
    content = encode({"b": torch.tensor([1, 2], dtype=torch.uint8), "a": torch.tensor(1.0)})
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "b": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]},
    }
    assert content[8 + length :] == b"\x00\x00\x80\x3f\x01\x02"


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=10).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
        max_size=5,
    )
)
def test_the_library_reads_back_what_was_written(shapes: dict[str, tuple[torch.dtype, list[int]]]) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: (torch.randn(shape, generator=generator) * 50).to(dtype)
        for name, (dtype, shape) in shapes.items()
    }
    found = parse_tensors(encode(tensors), "there")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_a_view_with_strides_is_written_as_it_reads(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).T
    (tmp_path / "t").write_bytes(encode({"t": tensor}))
    assert torch.equal(load_file(tmp_path / "t")["t"], tensor)
    assert torch.equal(read_tensor_file(str(tmp_path / "t"))["t"], tensor)


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    content = encode({"t": torch.zeros(100)})
    (tmp_path / "t").write_bytes(content[:-1])
    with pytest.raises(CorruptDataError, match=str(tmp_path / "t")):
        read_tensor_file(str(tmp_path / "t"))
    with pytest.raises(CorruptDataError, match="there"):
        parse_tensors(b"\x80\x04pickle", "there")
