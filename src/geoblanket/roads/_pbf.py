"""The blocks of an OpenStreetMap PBF file, counted before they are unpacked.

A file is a sequence of blocks: the length of a header (4 bytes, big-endian), the header (kind and size of what follows)
and a blob, which says how large it is when it is unpacked. libosmium unpacks no block further than that, and none to
more than 32 MiB; but a small file can hold many that are full of zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from geoblanket._unpacking import most_bytes, too_large
from geoblanket.errors import InputError

__all__ = ["check_pbf"]

LARGEST_RATIO: Final = 30
"""A file may grow so many times when its blocks are unpacked; maps grow 2 to 6 times."""

_LARGEST_HEADER = 64 << 10
_LARGEST_BLOB = 32 << 20
_RAW, _RAW_SIZE = 1, 2
_DATA_SIZE = 3
_BEGINNING = 64
"""Bytes at the start of a blob in which its size must be told: before its data, as all writers do."""


def check_pbf(path: Path) -> int:
    """Return how many bytes the blocks of a file have when they are unpacked.

    Raises
    ------
    InputError
        If the file is not made of such blocks, or would grow beyond reason.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            most, total = most_bytes(size, ratio=LARGEST_RATIO), 0
            while file.tell() < size:
                total += _block(file)
                if total > most:
                    raise too_large(path, most)
            return total
    except (ValueError, IndexError) as error:
        raise InputError(
            f"cannot be read as OpenStreetMap data ({error})",
            path=path,
            hint="Download or export it again; it may be cut off or damaged",
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error


def _block(file: IO[bytes]) -> int:
    """Skip one block; return its size when it is unpacked."""
    header_size = int.from_bytes(_exactly(file, 4), "big")
    if header_size > _LARGEST_HEADER:
        raise ValueError("a block has a header that is too large")
    blob_size = dict(_numbers(_exactly(file, header_size))).get(_DATA_SIZE, 0)
    if not 0 < blob_size <= _LARGEST_BLOB:
        raise ValueError("a block has no size, or is too large")
    begin = file.tell()
    told = dict(_numbers(_exactly(file, min(blob_size, _BEGINNING))))
    unpacked = told.get(_RAW_SIZE, told.get(_RAW, 0))
    if not 0 < unpacked <= _LARGEST_BLOB:
        raise ValueError("a block does not tell its unpacked size, or is too large")
    if file.seek(begin + blob_size) > os.fstat(file.fileno()).st_size:
        raise ValueError("it is cut off")
    return unpacked


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it is cut off")
    return data


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """Yield the fields of a message: the values of numbers, and the lengths of texts. The message may be cut off."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            at += value
        elif key & 7 != 0:
            raise ValueError("a block has a field of an unknown kind")
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a block has a number that does not end")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
