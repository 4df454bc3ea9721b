"""Seals of a ledger: message authentication codes by the device's key, chained from answer to answer."""

from __future__ import annotations

import hmac
from collections import deque
from typing import Any, Final

__all__ = ["CHAIN_START", "Chain", "is_sealed", "seal"]

CHAIN_START: Final = bytes(32)
"""What the first answer of a vehicle is chained to."""


class Chain:
    """The seals of a vehicle's answers: each one covers the one before it.

    Parameters
    ----------
    before
        The seal before the oldest answer that is kept.
    """

    def __init__(self, before: bytes) -> None:
        self.before = before
        self._links: deque[bytes] = deque()

    @property
    def head(self) -> bytes:
        """The seal of the last answer."""
        return self._links[-1] if self._links else self.before

    def add(self, link: bytes) -> bytes:
        """Add the seal of an answer, and return it."""
        self._links.append(link)
        return link

    def forget(self, count: int) -> None:
        """Forget this many of the oldest answers."""
        for _ in range(count):
            self.before = self._links.popleft()


def seal(key: bytes, *values: Any) -> bytes:
    """Return the authentication code (HMAC-SHA-256) of some values: numbers, texts, bytes."""
    return hmac.digest(key, repr(values).encode(), "sha256")


def is_sealed(stored_seal: bytes, key: bytes, *values: Any) -> bool:
    """Return whether a seal is that of some values."""
    return hmac.compare_digest(stored_seal, seal(key, *values))
