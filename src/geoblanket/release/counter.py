"""A number beside the ledger that only grows: a ledger that is behind it was rolled back.

The ledger is written first, durably, and the counter after it: whenever the power fails, the counter is not ahead of a
ledger that nobody touched. Two copies are written in turn, each in its own sector with a checksum: at worst the last
one is lost.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import Final

from geoblanket._files import MAGIC, sync_to_disk
from geoblanket.errors import LedgerError

__all__ = ["Counter"]

_COPY: Final = struct.Struct("<8s16sQ")
_SECTOR: Final = 512
_MAGIC: Final = MAGIC["counter"]
_CHECK_BYTES: Final = 32


class Counter:
    """The counter of one ledger. Make one with `create` or `open`.

    Parameters
    ----------
    path
        Its file.
    ledger
        The ledger's identity, 16 bytes.
    """

    def __init__(self, path: Path, ledger: bytes, descriptor: int) -> None:
        self._path, self._ledger, self._descriptor = path, ledger, descriptor

    @classmethod
    def create(cls, path: Path, ledger: bytes) -> Counter:
        """Make a counter at 1, for the ledger's creation; raise LedgerError if the file exists."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"{path}: the counter cannot be made ({error.strerror}).") from None
        counter = cls(path, ledger, descriptor)
        counter.write(0)
        counter.write(1)
        for durable in (path, path.parent):
            sync_to_disk(durable)
        return counter

    @classmethod
    def open(cls, path: Path, ledger: bytes) -> Counter:
        """Open the counter of a ledger; raise LedgerError if it is missing, damaged, or of another ledger."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerError(
                f"{path}: the counter of the ledger cannot be opened ({error.strerror}), so it is unknown whether "
                "the ledger was rolled back."
            ) from None
        counter = cls(path, ledger, descriptor)
        try:
            counter.read()
        except LedgerError:
            counter.close()
            raise
        return counter

    def read(self) -> int:
        """Return the number."""
        try:
            content = os.pread(self._descriptor, 2 * _SECTOR, 0)
        except OSError as error:
            raise LedgerError(f"{self._path}: the counter cannot be read ({error.strerror}).") from None
        numbers = [self._number(content[start : start + _SECTOR]) for start in (0, _SECTOR)]
        whole = [number for number in numbers if number is not None]
        if not whole:
            raise LedgerError(f"{self._path}: is damaged, or is not the counter of this ledger.")
        return max(whole)

    def _number(self, sector: bytes) -> int | None:
        content, check = sector[: _COPY.size], sector[_COPY.size : _COPY.size + _CHECK_BYTES]
        if hashlib.sha256(content).digest() != check:
            return None
        magic, ledger, number = _COPY.unpack(content)
        return int(number) if (magic, ledger) == (_MAGIC, self._ledger) else None

    def write(self, number: int) -> None:
        """Set the number. It is durable some time later: see above."""
        content = _COPY.pack(_MAGIC, self._ledger, number)
        content += hashlib.sha256(content).digest()
        try:
            written = os.pwrite(self._descriptor, content, number % 2 * _SECTOR)
        except OSError as error:
            raise LedgerError(f"{self._path}: the counter cannot be written ({error.strerror}).") from None
        if written != len(content):
            raise LedgerError(f"{self._path}: the counter cannot be written (the disk is full).")

    def close(self) -> None:
        """Make it durable, and close the file."""
        try:
            os.fsync(self._descriptor)
        except OSError:
            pass  # the ledger itself is durable; the counter may lag behind it
        finally:
            os.close(self._descriptor)
