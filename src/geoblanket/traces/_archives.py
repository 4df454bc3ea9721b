"""The files inside a folder or a tar archive, plain or packed, as streams: nothing is extracted to disk.

An archive comes from anybody, so its headers are read here, 512 bytes at a time. Python's `tarfile` takes the sizes of
some headers on trust and reads them into memory. Names of folders, links and dates are of no use, and are not read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from geoblanket._untrusted import Unpacked, open_unpacked
from geoblanket.errors import InputError

_BLOCK = 512
_MOST_FILES = 100_000
_FILE, _PASSED_OVER = {b"0", b"\0"}, {b"5", b"x", b"g", b"L", b"K"}
"""Kinds of entries: files; and folders, long names and dates."""


Member = tuple[Path, IO[bytes], int]
"""A file inside a folder or an archive.

- Its path, for messages: that of the folder or the archive, and the file's own name.
- Its content, which ends when the next file is asked for.
- Bytes of the folder's files, or of the archive, that have been read so far.
"""


def read_members(path: Path) -> Iterator[Member]:
    """Yield the files inside a folder (by name) or an archive (in its order); a file that is no archive is yielded.

    Raises
    ------
    InputError
        If an archive is damaged, has too many files, or has entries other than files and folders.
    """
    if path.is_dir():
        position = 0
        for file in sorted(each for each in path.iterdir() if each.is_file()):
            with open_unpacked(file) as stream:
                yield file, stream, position
            position += file.stat().st_size
        return
    with open_unpacked(path) as stream:
        is_archive = _size_of(stream.read(_BLOCK)) is not None
    with open_unpacked(path) as stream:
        yield from _unpacked_members(path, stream) if is_archive else [(path, stream, 0)]


def _unpacked_members(path: Path, stream: io.BufferedReader[Unpacked]) -> Iterator[Member]:
    files = 0
    while (header := stream.read(_BLOCK)) != bytes(_BLOCK):
        size, kind = _size_of(header), header[156:157]
        if size is None:
            raise _damaged(path)
        if kind not in _FILE | _PASSED_OVER:
            raise InputError(
                "is an archive with a link, a device or a sparse file in it",
                path=path,
                hint="Give an archive of plain files, or the folder with them",
            )
        content = _Content(path, stream, size)
        if kind in _FILE:
            files += 1
            if files > _MOST_FILES:
                raise InputError(f"is an archive of more than {_MOST_FILES:,} files", path=path, hint="Divide it")
            name = header[:100].partition(b"\0")[0].decode(errors="replace").rpartition("/")[2]
            yield path / name, io.BufferedReader(content), stream.raw.position()
        content.skip(-size % _BLOCK)
    while stream.read(1 << 16):  # a packed archive has its checksum at the end
        pass


def _size_of(header: bytes) -> int | None:
    """Return the size of the content that a header of an archive announces; None if it is not a header."""
    try:
        expected, size = int(header[148:156].strip(b" \0"), 8), int(header[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        return None
    # The sum of the header's bytes, its own field as spaces.
    is_right = len(header) == _BLOCK and sum(header) - sum(header[148:156]) + 8 * 32 == expected
    return size if is_right and size >= 0 else None


class _Content(io.RawIOBase):
    """The next `size` bytes of an archive."""

    def __init__(self, path: Path, stream: IO[bytes], size: int) -> None:
        self._path, self._stream, self._left = path, stream, size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read the next bytes into `buffer`; return how many there were."""
        data = self._stream.read(min(len(buffer), self._left))
        if not data and self._left:
            raise _damaged(self._path)
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)

    def skip(self, more: int) -> None:
        """Read to the end, and `more` bytes beyond it."""
        self._left += more
        while self._left:
            self.readinto(memoryview(bytearray(min(self._left, 1 << 16))))


def _damaged(path: Path) -> InputError:
    return InputError("the archive is damaged or cut short", path=path, hint="Download or pack it again")
