"""Reading compressed files that may be damaged, or made to inflate without end."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from geoblanket.errors import InputError

__all__ = [
    "ALWAYS_ALLOWED_BYTES",
    "LARGEST_RATIO",
    "UNPACKED_BY_POLARS",
    "Unpacked",
    "most_bytes",
    "open_unpacked",
    "too_large",
]

LARGEST_RATIO: Final = 50
"""A file may grow so many times when it is unpacked. Maps and traces grow 5 to 20 times, a file made to fill the memory
1,000 times and more."""

ALWAYS_ALLOWED_BYTES: Final = 64 << 20
"""Up to this size a file may grow in any case: small regular files compress well, and this does no harm."""

UNPACKED_BY_POLARS: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"x\x01", b"x^", b"x\x9c", b"x\xda")
"""Beginnings at which the CSV reader of Polars would unpack a text, without a limit."""


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
    """The content of a file, which may be packed by gzip or bzip2; its first bytes tell.

    It is unpacked piece by piece, and no further than `most_bytes`: reading on raises InputError, as damage does.

    Parameters
    ----------
    path
        For messages.
    raw
        The file, open at its beginning.
    """

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        self._path = path
        magic = raw.read(3)
        raw.seek(0)
        self._stream: Any = raw
        self._kind = ""
        if magic[:2] == b"\x1f\x8b":
            self._stream, self._kind = gzip.GzipFile(fileobj=raw), "gzip"
        elif magic == b"BZh":
            self._stream, self._kind = bz2.BZ2File(raw), "bzip2"
        self._left = self._most = most_bytes(os.fstat(raw.fileno()).st_size)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Unpack the next bytes into `buffer`; return how many there were."""
        try:
            data: bytes = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damaged() from error
        except OSError as error:
            # That of bzip2 has no number; others are about the disk.
            if error.errno is None:
                raise self._damaged() from error
            raise InputError(f"cannot be read ({error.strerror or error})", path=self._path) from error
        self._left -= len(data)
        if self._kind and self._left < 0:
            raise too_large(self._path, self._most)
        buffer[: len(data)] = data
        return len(data)

    def _damaged(self) -> InputError:
        return InputError(
            f"the {self._kind or 'file'} data is damaged or cut short",
            path=self._path,
            hint="Download or compress it again",
        )


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open the content of a file, packed or not; see `Unpacked`."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    with raw:
        yield io.BufferedReader(Unpacked(path, raw), 1 << 16)
