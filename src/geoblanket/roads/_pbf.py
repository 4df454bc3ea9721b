"""The blocks of an OpenStreetMap PBF file, looked at before libosmium reads them.

A file is a sequence of blocks: the length of a header (4 bytes, big-endian), the header (kind and size of what follows)
and a blob, which says how large it is when it is unpacked. libosmium unpacks no block further than that, and none to
more than 32 MiB; but a small file can hold many that are full of zeros. And it takes the texts of tags to end at the
first zero byte, so that a text with a zero in it makes it read beyond its memory, which ends the process.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from geoblanket._untrusted import most_bytes, too_large
from geoblanket.errors import InputError

__all__ = ["check_pbf"]

LARGEST_RATIO: Final = 30
"""A file may grow so many times when its blocks are unpacked; maps grow 2 to 6 times."""

_LARGEST_HEADER = 64 << 10  # bytes; the format's own limit
_LARGEST_BLOB = 32 << 20  # bytes; the format's own limit
# Numbers of fields, in the order of the messages: header of a block, blob, block, table of texts.
_KIND, _DATA_SIZE = 1, 3
_RAW, _RAW_SIZE, _ZLIB = 1, 2, 3
_TEXTS = 1
_TEXT = 1
_EMPTY_TEXT = b"\n\0"

Field = tuple[int, int | memoryview]


def check_pbf(path: Path) -> int:
    """Read through a file; return how many bytes its blocks have when they are unpacked.

    Raises
    ------
    InputError
        If the file is not made of such blocks, would grow beyond reason, or has texts with zero bytes.
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
    except (ValueError, TypeError, zlib.error) as error:
        raise InputError(
            f"cannot be read as OpenStreetMap data ({error})",
            path=path,
            hint="Download or export it again; it may be cut off or damaged",
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error


def _block(file: IO[bytes]) -> int:
    """Read one block; return its size when it is unpacked."""
    header_size = int.from_bytes(_exactly(file, 4), "big")
    if header_size > _LARGEST_HEADER:
        raise ValueError("a block has a header that is too large")
    header = dict(_fields(memoryview(_exactly(file, header_size))))
    blob = dict(_fields(memoryview(_exactly(file, _size(header.get(_DATA_SIZE, 0))))))
    content = _unpacked(blob)
    kind = header.get(_KIND)
    if isinstance(kind, memoryview) and bytes(kind) == b"OSMData":
        _check_texts(content)
    return len(content)


def _unpacked(blob: dict[int, int | memoryview]) -> memoryview:
    raw, packed = blob.get(_RAW), blob.get(_ZLIB)
    if isinstance(raw, memoryview):
        return raw
    if not isinstance(packed, memoryview):
        raise ValueError("a block is packed otherwise than by zlib; write it anew with osmium cat")
    size = _size(blob.get(_RAW_SIZE, 0))
    inflater = zlib.decompressobj()
    content = inflater.decompress(packed, size)
    if len(content) != size or inflater.unconsumed_tail or not inflater.eof:
        raise ValueError("a block has another size than it tells")
    return memoryview(content)


def _check_texts(block: memoryview) -> None:
    """Raise ValueError if the texts of a block hold zero bytes."""
    for number, table in _fields(block):
        if number != _TEXTS or not isinstance(table, memoryview):
            continue
        # Texts begin with an empty one; mostly there is no zero but that of its length, and nothing to take apart.
        if b"\0" not in bytes(table).removeprefix(_EMPTY_TEXT):
            continue
        for kind, text in _fields(table):
            if kind == _TEXT and b"\0" in bytes(text if isinstance(text, memoryview) else b""):
                raise ValueError("a text has a zero byte")


def _size(value: int | memoryview) -> int:
    if not isinstance(value, int) or not 0 < value <= _LARGEST_BLOB:
        raise ValueError("a block does not tell its unpacked size, or is too large")
    return value


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it is cut off")
    return data


def _fields(message: memoryview) -> Iterator[Field]:
    """Yield the numbers of a message's fields and their values: whole numbers, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            if value > len(message) - at:
                raise ValueError("a block has a field that is cut off")
            yield key >> 3, message[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise ValueError("a block has a field of an unknown kind")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a block has a number that does not end")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
