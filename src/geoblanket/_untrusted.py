"""Reading what may be damaged, or made to do harm: packed files, slow files, Parquet and JSON.

The trust boundary
------------------
What a device or the network receives, and what an analyst got from others, may be made to do harm. Bundles, ledgers,
fences, hold files, requests, messages and JSON lines are checked value by value, and so are maps and raw GPS files, of
which an error names the file and the row. Nothing that is told in them is believed before it was checked.

What an analyst made with geoblanket on their own disk (road graphs, traces, walks, zones, findings, predictors, motion
models, released and tracked tables, records, results, unfinished runs) is checked for its type, its version and its
identity, and no more. A file that is something else, cut off or damaged is answered with an `InputError`; one that was
forged by its owner may give wrong results to its owner.

How
---
Packed files may inflate without end, and maps may take hours to read: both have limits that grow with a file's size.

Polars takes the sizes and counts that a Parquet file tells on trust: one flipped bit, and it asks for 2^61 bytes, which
ends the process; and a file of a few KiB can tell of a billion rows. So the description at the end of the file and the
header of each page are read first (they are structures in Thrift's compact protocol), and every size and count must fit
the file.

JSON has no surprises: one object, each key once, finite numbers only.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeVar

from geoblanket.errors import InputError

LARGEST_RATIO: Final = 50
"""The largest factor by which a file may grow when it is unpacked. Maps and traces grow 5 to 20 times, a file made to
fill the memory 1,000 times and more."""

ALWAYS_ALLOWED_BYTES: Final = 64 << 20
"""Up to this size a file may grow in any case: small regular files compress well, and this does no harm."""

UNPACKED_BY_POLARS: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"x\x01", b"x^", b"x\x9c", b"x\xda")
"""Beginnings at which the CSV reader of Polars would unpack a text, without a limit."""

_PACKED_BY: Final = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}

_XZ_MEMORY: Final = 128 << 20
"""The most memory for unpacking xz; its strongest preset needs 65 MiB, and a file may ask for gigabytes."""

_LEAST_SECONDS: Final = 60.0
_SECONDS_PER_MIB: Final = 10.0
"""Reading a map takes about 0.02 seconds a MiB, and up to 1 where it is nothing but roads."""

Result = TypeVar("Result")

ROWS_PER_BYTE: Final = 64
"""The most rows for each byte of a file. Real tables have less than one."""

_ALWAYS_ALLOWED_ROWS = 1 << 20  # however small the file is
_LARGEST_FOOTER = 1 << 28  # bytes
_FIRST_READ = 1 << 10  # bytes of a page header; more are read if it is longer
_LARGEST_PAGE_HEADER = 1 << 20  # bytes
_DEEPEST = 16  # nested structures
_MAGIC = b"PAR1"
_END = 8  # bytes: the footer's length and the magic bytes

Fields = dict[int, Any]


def most_bytes(packed_bytes: int, *, ratio: int = LARGEST_RATIO) -> int:
    """Return how large the content of a file of `packed_bytes` may be."""
    return max(ALWAYS_ALLOWED_BYTES, ratio * packed_bytes)


def too_large(path: Path, most: int) -> InputError:
    """Return the error for a file with more content than `most_bytes` allows."""
    return InputError(
        f"holds more than {most >> 20} MiB when it is unpacked, far more than its size allows for",
        path=path,
        hint="If you trust the file, unpack it first and give what was in it",
    )


class Unpacked(io.RawIOBase):
    """The content of a file, which may be packed by gzip, bzip2 or xz; its first bytes tell.

    It is unpacked piece by piece, and no further than `most_bytes`: reading on raises InputError, as damage does.

    Parameters
    ----------
    path
        For messages.
    raw
        The file, open at its beginning.

    Attributes
    ----------
    ending
        How it is packed, as names of files tell it: ".gz", ".bz2", ".xz" or "".
    position
        Says how many bytes of the file, as it is on disk, have been read.
    """

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        self._path = path
        magic = raw.read(3)
        raw.seek(0)
        self._stream: Any = raw
        self.position = raw.tell
        self.ending = ""
        if magic[:2] == b"\x1f\x8b":
            self._stream, self.ending = gzip.GzipFile(fileobj=raw), ".gz"
        elif magic == b"BZh":
            self._stream, self.ending = bz2.BZ2File(raw), ".bz2"
        elif magic == b"\xfd7z":
            self._stream, self.ending = _Xz(raw), ".xz"
        self._left = self._most = most_bytes(os.fstat(raw.fileno()).st_size)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Unpack the next bytes into `buffer`; return how many there were."""
        try:
            data: bytes = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise self._damaged() from error
        except OSError as error:
            # That of bzip2 has no number; others are about the disk.
            if error.errno is None:
                raise self._damaged() from error
            raise InputError(f"cannot be read ({error.strerror or error})", path=self._path) from error
        self._left -= len(data)
        if self.ending and self._left < 0:
            raise too_large(self._path, self._most)
        buffer[: len(data)] = data
        return len(data)

    def _damaged(self) -> InputError:
        return InputError(
            f"the {_PACKED_BY.get(self.ending, 'file')} data is damaged or cut short",
            path=self._path,
            hint="Download or compress it again",
        )


_xz_unpacker = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


class _Xz:
    """Unpacks xz in bounded memory, which `lzma.LZMAFile` cannot."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._unpacker = _xz_unpacker()

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most `size`; none at the end."""
        data = b""
        while not data:
            packed = b""
            if self._unpacker.eof:  # another part may follow
                packed = self._unpacker.unused_data or self._raw.read(1 << 16)
                if not packed:
                    return b""
                self._unpacker = _xz_unpacker()
            elif self._unpacker.needs_input:
                packed = self._raw.read(1 << 16)
                if not packed:
                    raise EOFError
            data = self._unpacker.decompress(packed, size)
        return data


@contextmanager
def open_unpacked(path: Path) -> Iterator[io.BufferedReader[Unpacked]]:
    """Open the content of a file, packed or not; see `Unpacked`."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    with raw:
        yield io.BufferedReader(Unpacked(path, raw), 1 << 16)


def seconds_allowed(size_bytes: int) -> float:
    """Return how long reading a file may take, by its size when it is unpacked."""
    return _LEAST_SECONDS + _SECONDS_PER_MIB * size_bytes / (1 << 20)


def too_slow(path: Path, size_bytes: int) -> InputError:
    """Return the error for a file that takes longer."""
    return InputError(
        f"could not be read within {seconds_allowed(size_bytes):.0f} seconds, the time allowed for its size",
        path=path,
        hint="Give a smaller map, or read it on a machine that has less to do",
    )


def run_within(seconds: float, function: Callable[[], Result]) -> Result:
    """Return what `function` returns, which must take no longer than some seconds.

    It runs in a thread of its own while this one waits: Python hands signals to the main thread, which must not be
    inside native code for minutes. Work that is given up goes on in the background, but keeps no process alive.

    Raises
    ------
    TimeoutError
        If it takes longer.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors[0]
    return results[0]


def check_parquet(path: Path, problem: str = "cannot be read as Parquet: it is damaged") -> None:
    """Raise InputError (of a `problem`) unless all sizes and counts in a Parquet file fit it; no row is read."""
    try:
        with path.open("rb") as file:
            _Layout(path, file).check()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(problem, path=path, hint="Make it again") from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error


class _Layout:
    """Walks through a file from page to page."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._most_rows = max(_ALWAYS_ALLOWED_ROWS, ROWS_PER_BYTE * self._size)
        self._most_bytes = most_bytes(self._size)
        self._unpacked = 0

    def check(self) -> None:
        footer = self._footer()
        total = 0
        for group in footer.get(4, []):
            rows = _count(group[3], self._most_rows)
            total += rows
            for chunk in group[1]:
                self._check_chunk(chunk[3])
        if total > self._most_rows or _count(footer[3], self._most_rows) != total:
            raise ValueError("rows")

    def _footer(self) -> Fields:
        if self._size < len(_MAGIC) + _END:
            raise ValueError("too short")
        self._file.seek(self._size - _END)
        end = self._file.read(_END)
        length = int.from_bytes(end[:4], "little")
        if end[4:] != _MAGIC or length > min(_LARGEST_FOOTER, self._size - _END - len(_MAGIC)):
            raise ValueError("footer")
        self._file.seek(self._size - _END - length)
        return _Thrift(self._file.read(length)).structure()

    def _check_chunk(self, chunk: Fields) -> None:
        """Check the pages of one column of a group of rows."""
        values = _count(chunk[5], self._most_rows)
        at = min(offset for offset in (chunk[9], chunk.get(11)) if offset is not None and offset > 0)
        end = at + _count(chunk[7], self._size)
        _count(chunk[6], self._most_bytes)
        if end > self._size or at < len(_MAGIC):
            raise ValueError("chunk")
        seen = 0
        while at < end:
            header, at = self._page_header(at)
            at += _count(header[3], end - at)
            self._unpacked += _count(header[2], self._most_bytes)
            if self._unpacked > self._most_bytes:
                raise too_large(self._path, self._most_bytes)
            seen += self._values(header, values)
        if seen != values:
            raise ValueError("values")

    def _values(self, header: Fields, most: int) -> int:
        """Return how many values of the column are in a page; a dictionary has none."""
        if 7 in header:
            # Values that no row has cost a byte at least, or a bit.
            _count(header[7][1], 8 * header[2])
            return 0
        page = header.get(8) or header.get(5)
        if page is None:
            return 0
        if 8 in header:
            levels = _count(page[5], header[2]) + _count(page[6], header[2])
            if levels > min(header[2], header[3]) or _count(page[2], most) > page[1] or _count(page[3], most) > page[1]:
                raise ValueError("levels")
        return _count(page[1], most)

    def _page_header(self, at: int) -> tuple[Fields, int]:
        """Return a page's header, and where the page starts."""
        size = _FIRST_READ
        while True:
            self._file.seek(at)
            data = self._file.read(size)
            thrift = _Thrift(data)
            try:
                return thrift.structure(), at + thrift.at
            except IndexError:
                if len(data) < size or size > _LARGEST_PAGE_HEADER:
                    raise
                size *= 16


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("a size or a count does not fit the file")
    return value


class _Thrift:
    """Reads structures of Thrift's compact protocol as dictionaries by the numbers of their fields.

    Where the bytes end too early it raises IndexError.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def structure(self, depth: int = 0) -> Fields:
        fields: Fields = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("too deep")
        match kind:
            case 1 | 2:
                return kind == 1
            case 3 | 4 | 5 | 6:
                return self._byte() if kind == 3 else self._signed()
            case 7 | 8:
                return self._bytes(8 if kind == 7 else self._unsigned())
            case 9 | 10:
                return self._list(depth)
            case 12:
                return self.structure(depth + 1)
        raise ValueError("an unknown kind of field")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = self._unsigned() if head >> 4 == 15 else head >> 4
        if count > len(self._data):
            raise IndexError("list")
        if head & 15 in {1, 2}:
            return [self._byte() for _ in range(count)]
        return [self._value(head & 15, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise IndexError("text")
        self.at += count
        return self._data[self.at - count : self.at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number that does not end")

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)


def read_object(data: bytes) -> dict[str, Any]:
    """Return the object that a JSON text holds.

    Raises
    ------
    ValueError
        If it is anything else: not UTF-8, not JSON, nested too deep, with a key twice, a lone surrogate, NaN, infinity
        or a number beyond the range of floats. The message says nothing of the text.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate has no UTF-8
    except (ValueError, RecursionError):
        _refuse()
    if type(value) is not dict:
        _refuse()
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        _refuse()
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse()
    return value


def _refuse(_text: str = "") -> NoReturn:
    raise ValueError("This is not strict JSON.") from None
