"""Hold: at rest the last report is repeated at no cost, so that a stay costs one report.

While the position, fenced, stays within `hold_m` of the point where the last report was drawn, that report is the
answer again. A report that is held is stored like any other, and takes the same steps: a cell is drawn and thrown away.

The promise
-----------
*For all* lives x, x' that draw in the same slots, and all reports y:

    ln(P(y | x) / P(y | x')) ≤ ε·Σ d(x_t, x'_t),        the sum over the slots with a draw alone.

*Proof.* Given in which slots there is a draw, the reports of the others are copies of those: a function of them. The
draws are independent, and each keeps the promise of the lattice (`spec`). ∎

Which slots have a draw depends on the true path, so it is part of the condition, and disclosed: when the vehicle rests.
Without the condition nothing is promised: (a, a) against (a, b) tells.

Where the last report was drawn is as secret as where the vehicle is. It lies in a file of its own beside the ledger,
encrypted by the ledger's key, and is overwritten in place by the next draw: the ledger's log would keep a trail. The
file is not forced to the disk. Where it is missing, damaged, or older than the last draw, the next report is drawn
again: that costs ε, and never tells more than the theorem allows, as no position decides when a device restarts.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DrawnAt", "HoldFile"]


class DrawnAt(NamedTuple):
    """Where and when the last report of a vehicle was drawn. Never to be told to anyone."""

    slot_ms: int
    """Start of its slot, milliseconds since 1970 in UTC."""
    frame: bytes
    """The first 16 bytes of the domain's hash: in another frame the point means nothing."""
    x: int
    """Units east in the frame."""
    y: int


_RECORD: Final = struct.Struct("<16sq32s16s")
"""The vehicle's tag, the slot, frame and point encrypted, and a code of all of it."""
_SECRET: Final = struct.Struct("<16sqq")


class HoldFile:
    """The draws of a ledger's vehicles, one record each, overwritten in place.

    Parameters
    ----------
    path
        Its file, made when it is first needed.
    key
        What encrypts and seals it.
    ledger
        The ledger's identity.
    """

    def __init__(self, path: Path, key: bytes, ledger: bytes) -> None:
        self._path, self._key, self._ledger = path, key, ledger
        self._descriptor: int | None = None
        self._records: dict[bytes, tuple[int, bytes]] = {}
        self._count = 0
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            self._count = -(-len(content) // _RECORD.size)
            for number in range(len(content) // _RECORD.size):
                record = content[number * _RECORD.size : (number + 1) * _RECORD.size]
                self._records[record[:16]] = number, record

    def read(self, vehicle: str, slot_ms: int | None) -> DrawnAt | None:
        """Return where the report of a vehicle in a slot was drawn; None if it is not known."""
        tag = self._code(b"vehicle", vehicle.encode("utf-8", "surrogatepass"))[:16]
        if slot_ms is None or tag not in self._records:
            return None
        _, record = self._records[tag]
        _, slot, secret, code = _RECORD.unpack(record)
        if slot != slot_ms or not hmac.compare_digest(code, self._code(b"record", record[:-16])[:16]):
            return None
        frame, x, y = _SECRET.unpack(_xor(secret, self._pad(tag, slot)))
        return DrawnAt(slot, frame, x, y)

    def write(self, vehicle: str, drawn: DrawnAt) -> None:
        """Overwrite where the last report of a vehicle was drawn; after a failure, its next one is drawn again."""
        tag = self._code(b"vehicle", vehicle.encode("utf-8", "surrogatepass"))[:16]
        secret = _xor(_SECRET.pack(*drawn[1:]), self._pad(tag, drawn.slot_ms))
        record = _RECORD.pack(tag, drawn.slot_ms, secret, b"")
        record = record[:-16] + self._code(b"record", record[:-16])[:16]
        number, _ = self._records.get(tag, (self._count, b""))
        self._count = max(self._count, number + 1)
        self._records[tag] = number, record
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, record, number * _RECORD.size)

    def close(self) -> None:
        """Close the file. What it holds stays, for the next start."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _pad(self, tag: bytes, slot_ms: int) -> bytes:
        # A vehicle draws at most once in a slot: no pad is used twice.
        return self._code(b"pad", tag + struct.pack("<q", slot_ms))

    def _code(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, b"geoblanket hold " + purpose + self._ledger + content, "sha256")


def _xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")
