"""A file of named arrays: a strict JSON header and raw, aligned, memory-mapped data.

Layout: 8 bytes of magic, the header's length (u64, little-endian) and SHA-256, the header (JSON, ASCII), then each
array at a multiple of 64 bytes with zeros between, and nothing else. The header gives each array's type, shape and
SHA-256; sizes are checked against the file before anything is allocated, so every changed bit is noticed. No pickle,
no compression: a hostile file can neither run code nor inflate. The same content always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from geoblanket._files import atomic_output
from geoblanket.errors import InputError

__all__ = ["content_hash", "read_arrays", "write_arrays"]

_ALIGNMENT = 64
_BEFORE_HEADER = 8 + 8 + 32
_LARGEST_HEADER = 1 << 20
_DTYPES = frozenset({"|u1", "<i4", "<i8", "<u4", "<f4", "<f8"})

Arrays = Mapping[str, npt.NDArray[Any]]


def write_arrays(path: str | Path, *, magic: bytes, fields: Mapping[str, Any], arrays: Arrays) -> None:
    """Write `fields` (JSON values) and `arrays` to `path`, wholly or not at all."""
    entries = {
        name: {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in arrays.items()
    }
    header = json.dumps(
        {"fields": dict(fields), "arrays": entries}, ensure_ascii=True, allow_nan=False, sort_keys=True
    ).encode()
    with atomic_output(path) as temporary, temporary.open("wb") as file:
        file.write(magic + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header)
        for name in sorted(arrays):
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(np.ascontiguousarray(arrays[name]).data.cast("B") if arrays[name].size else b"")


def read_arrays(path: str | Path, *, magic: bytes, kind: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `write_arrays` wrote; the arrays are read-only views of the mapped file.

    Parameters
    ----------
    kind
        What the file should be, for the error message ("a road graph").
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file", path=path)

    def refuse(problem: str) -> NoReturn:
        raise InputError(f"is not {kind} written by geoblanket: {problem}", path=path, hint="Import it again")

    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(8) != magic:
            refuse("it starts with other bytes")
        header_size = int.from_bytes(file.read(8), "little")
        digest = file.read(32)
        if header_size > min(_LARGEST_HEADER, size - _BEFORE_HEADER):
            refuse("its header does not fit the file")
        text = file.read(header_size)
        if hashlib.sha256(text).digest() != digest:
            refuse("its header was changed or damaged")
        try:
            header = json.loads(text.decode("ascii"), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
            fields, entries = header["fields"], header["arrays"]
            layout = {
                name: (_dtype(entry["dtype"]), _shape(entry["shape"]), entry["sha256"])
                for name, entry in sorted(entries.items())
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            refuse("its header cannot be read")
    expected = _BEFORE_HEADER + header_size
    for dtype, shape, _ in layout.values():
        expected += -expected % _ALIGNMENT + dtype.itemsize * math.prod(shape)
    if expected != size:
        refuse(f"it should have {expected} bytes and has {size}")
    data = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    arrays = {}
    end = _BEFORE_HEADER + header_size
    for name, (dtype, shape, array_digest) in layout.items():
        start = end + -end % _ALIGNMENT
        padding, end = data[end:start], start + dtype.itemsize * math.prod(shape)
        arrays[name] = data[start:end].view(dtype).reshape(shape)
        if padding.any() or _digest(arrays[name]) != array_digest:
            refuse(f"its part '{name}' was changed or damaged")
    return fields, arrays


def content_hash(fields: Mapping[str, Any], arrays: Arrays) -> str:
    """Return one SHA-256 (hexadecimal) over fields and arrays: the identity of what they describe."""
    digests = {name: [array.dtype.str, list(array.shape), _digest(array)] for name, array in arrays.items()}
    text = json.dumps([dict(fields), digests], allow_nan=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(array: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data if array.size else b"").hexdigest()


def _dtype(text: str) -> np.dtype[Any]:
    if text not in _DTYPES:
        raise ValueError(text)
    return np.dtype(text)


def _shape(values: list[int]) -> tuple[int, ...]:
    if not all(type(value) is int and 0 <= value < 1 << 40 for value in values):
        raise ValueError(values)
    return tuple(values)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
