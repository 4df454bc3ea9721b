"""A file of named arrays: a strict JSON header and raw, aligned data.

Layout: 8 bytes of magic, the header's length (u64, little-endian) and SHA-256, the header (JSON, ASCII), then each
array at a multiple of 64 bytes with zeros between, and nothing else. The header gives each array's type, shape and
SHA-256; sizes are checked against the file before anything is allocated, so every changed bit is noticed. No pickle,
no compression: a hostile file can neither run code nor inflate. The same content always gives the same bytes.

A file is read into memory, once, and not mapped: what was checked is then what is used, whatever becomes of the file,
and a mapped file that shrinks would kill the process (SIGBUS).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Octets
from geoblanket._files import MAGIC, advice, atomic_output, found_in_words, kind_of_content, kind_of_file
from geoblanket.errors import InputError, OutputError

LARGEST_BYTES: Final = 1 << 33
"""The largest file that is read unless the caller says otherwise: 8 GiB, the roads of a continent. It is held in memory
as a whole, and a sparse file of any size costs whoever made it nothing."""

_ALIGNMENT = 64
_BEFORE_HEADER = 8 + 8 + 32
_LARGEST_HEADER = 1 << 20
_MOST_DIMENSIONS = 4
_DTYPES = frozenset({"|u1", "<i4", "<i8", "<u4", "<f4", "<f8"})

Arrays = Mapping[str, npt.NDArray[Any]]


def write_arrays(
    path: str | Path, *, magic: bytes, fields: Mapping[str, Any], arrays: Arrays, private: bool = False
) -> None:
    """Write `fields` (JSON values) and `arrays` to `path`, wholly or not at all; `private` as in `atomic_output`."""
    entries = {
        name: {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in arrays.items()
    }
    header = _header_text({"fields": dict(fields), "arrays": entries})
    if len(header) > _LARGEST_HEADER:
        raise OutputError(
            f"{path}: its header would have {len(header)} bytes, more than the {_LARGEST_HEADER} allowed."
        )
    with atomic_output(path, private=private) as temporary, temporary.open("wb") as file:
        file.write(magic + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header)
        for name in sorted(arrays):
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(np.ascontiguousarray(arrays[name]).data.cast("B") if arrays[name].size else b"")


def read_arrays(
    path: str | Path,
    *,
    magic: bytes,
    kind: str,
    hint: str = "Import it again",
    largest_bytes: int = LARGEST_BYTES,
    check: Callable[[Octets], None] | None = None,
    content: bytes | None = None,
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `write_arrays` wrote; the arrays are read-only views of one copy of the file in memory.

    Parameters
    ----------
    kind
        What the file should be, for the error message ("a road graph").
    hint
        What to do about a file that is something else.
    largest_bytes
        A larger file is refused before any of it is read.
    check
        Called with the whole file, before anything of it is interpreted (to check a signature).
    content
        The bytes of the file, where it was read already: nothing is read then, and `path` only names it in errors.
    """
    path = Path(path)

    def refuse(problem: str) -> NoReturn:
        raise InputError(f"is not {kind} written by geoblanket: {problem}", path=path, hint=hint)

    def refuse_other() -> NoReturn:
        found = kind_of_file(path) if content is None else kind_of_content(BytesIO(content))
        wanted = next((name for name, bytes_of in MAGIC.items() if bytes_of == magic), "")
        if found is None or found == wanted:
            refuse("it starts with other bytes")
        problem = f"is not {kind} written by geoblanket: it is {found_in_words(found)}"
        raise InputError(problem, path=path, hint=advice(found, wanted, path) or hint)

    read = _content(path, magic, largest_bytes, refuse, refuse_other) if content is None else content
    data = np.frombuffer(read, np.uint8)
    if len(data) < _BEFORE_HEADER:
        refuse("it is too short")
    if data[:8].tobytes() != magic:
        refuse_other()
    if check is not None:
        check(data)
    header_size = int.from_bytes(data[8:16].tobytes(), "little")
    if header_size > min(_LARGEST_HEADER, len(data) - _BEFORE_HEADER):
        refuse("its header does not fit the file")
    end = _BEFORE_HEADER + header_size
    text = data[_BEFORE_HEADER:end].tobytes()
    if hashlib.sha256(text).digest() != data[16:_BEFORE_HEADER].tobytes():
        refuse("its header was changed or damaged")
    try:
        fields, layout = _parsed(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        refuse("its header cannot be read")
    expected = end
    for dtype, shape, _ in layout.values():
        expected += -expected % _ALIGNMENT + dtype.itemsize * math.prod(shape)
    if expected != len(data):
        refuse(f"it should have {expected} bytes and has {len(data)}")
    arrays = {}
    for name, (dtype, shape, array_digest) in layout.items():
        start = end + -end % _ALIGNMENT
        padding, end = data[end:start], start + dtype.itemsize * math.prod(shape)
        arrays[name] = data[start:end].view(dtype).reshape(shape)
        if padding.any() or _digest(arrays[name]) != array_digest:
            refuse(f"its part '{name}' was changed or damaged")
    return fields, arrays


def _content(
    path: Path,
    magic: bytes,
    largest_bytes: int,
    refuse: Callable[[str], NoReturn],
    refuse_other: Callable[[], NoReturn],
) -> memoryview:
    """Return the bytes of a file, read-only; opened once, so that no other file can take its place on the way."""
    if not path.is_file():
        raise InputError("is a folder, not a file" if path.is_dir() else "no such file", path=path)
    try:
        with FileIO(path) as file:
            size = os.fstat(file.fileno()).st_size
            # Some other large file is not worth reading.
            if os.pread(file.fileno(), len(magic), 0) != magic:
                refuse_other()
            if size > largest_bytes:
                refuse(f"it has {size} bytes, more than the {largest_bytes} allowed")
            content = np.empty(size, np.uint8).data
            if _fill(file, content) < size:
                refuse("it became shorter while it was read")
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "there is not enough memory"
        raise InputError(f"cannot be read ({reason})", path=path) from error
    return content.toreadonly()


def _fill(file: FileIO, content: memoryview) -> int:
    """Read until `content` is full or the file ends; return how many bytes there were."""
    filled = 0
    # The operating system gives 2 GiB at a time at most.
    while filled < len(content) and (count := file.readinto(content[filled:])):
        filled += count
    return filled


def _parsed(text: bytes) -> tuple[dict[str, Any], dict[str, tuple[np.dtype[Any], tuple[int, ...], str]]]:
    """Return the fields of a header, and type, shape and hash of each array; raise unless it is as we write it."""
    header = json.loads(text.decode("ascii"))
    # One content has one text: a key that appears twice, NaN, or a number in another form is not what we write.
    if set(header) != {"fields", "arrays"} or _header_text(header) != text:
        raise ValueError("header")
    if type(header["fields"]) is not dict:
        raise ValueError("fields")
    layout = {}
    for name, entry in sorted(header["arrays"].items()):
        if set(entry) != {"dtype", "shape", "sha256"}:
            raise ValueError(name)
        layout[name] = _dtype(entry["dtype"]), _shape(entry["shape"]), entry["sha256"]
    return header["fields"], layout


def _header_text(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, ensure_ascii=True, allow_nan=False, sort_keys=True).encode()


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
    if type(values) is not list or len(values) > _MOST_DIMENSIONS:
        raise ValueError(values)
    if not all(type(value) is int and 0 <= value < 1 << 40 for value in values):
        raise ValueError(values)
    if math.prod(value or 1 for value in values) >= 1 << 60:  # NumPy refuses it, even with a zero among them
        raise ValueError(values)
    return tuple(values)
