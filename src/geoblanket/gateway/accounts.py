"""Who may speak for which device, over HTTP: a token for each, or one for all.

Only hashes of the tokens are kept. The device is known by its token, so that none can speak for another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers

__all__ = ["Accounts", "Speaker", "secret_of"]

_LONGEST: Final = 512


class Speaker:
    """Someone who may send positions.

    Parameters
    ----------
    device
        The one that it speaks for; None: all.
    """

    def __init__(self, device: str | None) -> None:
        self.device = device

    def may_speak_for(self, device: str) -> bool:
        """Return whether its messages may be about a device."""
        return self.device is None or self.device == device


class Accounts:
    """All tokens.

    Parameters
    ----------
    devices
        Their tokens.
    shared
        The token for all devices, if there is one.
    anyone
        Whether nobody needs a token.
    """

    def __init__(self, devices: Mapping[str, str], shared: str | None, *, anyone: bool = False) -> None:
        self._devices = {_hash(token): device for device, token in devices.items()}
        self._shared = None if shared is None else _hash(shared)
        self._anyone = anyone

    def speaker(self, secret: str | None) -> Speaker | None:
        """Return who a secret belongs to; None: nobody."""
        if secret is not None and len(secret) <= _LONGEST:
            digest = _hash(secret)
            if self._shared is not None and hmac.compare_digest(digest, self._shared):
                return Speaker(None)
            # A lookup by the hash of what was given takes no time that helps to guess a token.
            if (device := self._devices.get(digest)) is not None:
                return Speaker(device)
        return Speaker(None) if self._anyone else None


def secret_of(headers: Headers) -> str | None:
    """Return the token in the Authorization header: of a Bearer, or the password of a Basic one."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
