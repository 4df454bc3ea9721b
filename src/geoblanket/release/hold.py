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
Without the condition nothing is promised: the reports of (a, a) differ from those of (a, b).

Where the last report was drawn is as secret as where the vehicle is. It lies in a file of its own beside the ledger,
encrypted by the ledger's key, and is overwritten in place by the next draw: the ledger's log would keep a trail. A
report that is held writes the same record again, and so takes as long. The file is not forced to the disk. Where it is
missing, damaged, or older than the last draw, the next report is drawn again: that costs ε, and never tells more than
the theorem allows, as no position decides when a device restarts.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple


class DrawnAt(NamedTuple):
    """Where and when the last report of a vehicle was drawn. It is secret."""

    slot_ms: int
    """Start of its slot, milliseconds since 1970 in UTC."""
    frame: bytes
    """The first 16 bytes of the domain's hash: in another frame the point means nothing."""
    x: int
    """Units east in the frame."""
    y: int

    def __repr__(self) -> str:
        return "DrawnAt(…)"


_RECORD: Final = struct.Struct("<16sq32s16s")
"""The vehicle's tag, the slot, frame and point encrypted, and a code of all of it."""
_SECRET: Final = struct.Struct("<16sqq")
_HOW: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Whatever somebody put in the place of the file, it is neither followed nor waited for."""
_NO_RECORD: Final = bytes(_RECORD.size)
_LARGEST_FILE: Final = 1 << 28
"""More vehicles than a ledger can have: a longer file is not ours."""


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
        self._path, self._key = path, hmac.digest(key, b"geoblanket hold" + ledger, "sha256")
        self._descriptor: int | None = None
        self._records: dict[bytes, tuple[int, bytes]] = {}
        self._count = 0
        self._tags: dict[str, bytes] = {}
        with contextlib.suppress(OSError):
            content = path.read_bytes() if path.is_file() and path.stat().st_size <= _LARGEST_FILE else b""
            self._count = -(-len(content) // _RECORD.size)
            for number in range(len(content) // _RECORD.size):
                record = content[number * _RECORD.size : (number + 1) * _RECORD.size]
                self._records[record[:16]] = number, record

    def read(self, vehicle: str, slot_ms: int | None) -> DrawnAt | None:
        """Return where the report of a vehicle in a slot was drawn; None if it is not known."""
        if slot_ms is None or not self._records or (tag := self._tag(vehicle)) not in self._records:
            return None
        _, record = self._records[tag]
        _, slot, encrypted, code = _RECORD.unpack(record)
        secret = _xor(encrypted, self._code(b"pad", tag + code))
        if slot != slot_ms or not hmac.compare_digest(code, self._code_of(tag, slot, secret)):
            return None
        return DrawnAt(slot, *_SECRET.unpack(secret))

    def write(self, vehicle: str, drawn: DrawnAt | None) -> None:
        """Overwrite where the last report of a vehicle was drawn; after a failure, its next one is drawn again.

        Parameters
        ----------
        drawn
            None: it is forgotten.
        """
        if drawn is None and not self._records:
            return
        tag = self._tag(vehicle)
        number, _ = self._records.pop(tag, (self._count, b""))
        record = _NO_RECORD
        if drawn is not None:
            secret = _SECRET.pack(*drawn[1:])
            # The code is the nonce of the pad. So a slot that is drawn again, from a backup, has another pad.
            code = self._code_of(tag, drawn.slot_ms, secret)
            record = _RECORD.pack(tag, drawn.slot_ms, _xor(secret, self._code(b"pad", tag + code)), code)
            self._records[tag] = number, record
        elif number == self._count:
            return
        self._count = max(self._count, number + 1)
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, _HOW, 0o600)
            os.pwrite(self._descriptor, record, number * _RECORD.size)

    def close(self) -> None:
        """Close the file. What it holds stays, for the next start."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _tag(self, vehicle: str) -> bytes:
        if vehicle not in self._tags:
            self._tags[vehicle] = self._code(b"vehicle", vehicle.encode("utf-8", "surrogatepass"))[:16]
        return self._tags[vehicle]

    def _code_of(self, tag: bytes, slot_ms: int, secret: bytes) -> bytes:
        return self._code(b"record", tag + struct.pack("<q", slot_ms) + secret)[:16]

    def _code(self, purpose: bytes, content: bytes) -> bytes:
        # Every report pays for two of these: keyed BLAKE2 takes a quarter of the time of an HMAC.
        return hashlib.blake2b(content, key=self._key, person=purpose, digest_size=32).digest()


def _xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")
