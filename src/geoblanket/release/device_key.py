"""The key that seals a device's ledgers, and binds them to the device.

It is made with the first ledger, in a file of its own: `$XDG_STATE_HOME/geoblanket/device.key`, or
`~/.local/state/geoblanket/device.key`. A ledger that is copied to another machine finds no key there, or another one,
and is refused. If a whole home was copied, key and all, the machine's id (/etc/machine-id) tells them apart.

If GEOBLANKET_DEVICE_KEY_FILE names the file, as a container with a volume needs, only the key counts: containers get a
new machine id whenever they are recreated. The same holds for a key that is given.

Seals are message authentication codes by that key, chained from answer to answer.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections import deque
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from geoblanket._files import sync_to_disk
from geoblanket.errors import InputError, LedgerError, ParameterError

KEY_FILE_VARIABLE: Final = "GEOBLANKET_DEVICE_KEY_FILE"
LEAST_KEY_BYTES: Final = 16
_NEW_KEY_BYTES: Final = 32
_MACHINE_ID: Final = Path("/etc/machine-id")
_MACHINE_ID_LENGTH: Final = 32

SealedBy = Literal["device", "given"]
"""The key of the device, or one that the caller gives."""
CHAIN_START: Final = bytes(32)
"""What the first answer of a vehicle is chained to."""


class SealingKey(NamedTuple):
    """The key that seals a ledger."""

    kind: SealedBy
    key: bytes
    binds_machine: bool = False
    """Whether a ledger made with it also keeps to the machine's id."""

    @classmethod
    def for_new_ledger(cls, given: bytes | None) -> SealingKey:
        """Return the key for a new ledger: the one given, or the device's, which is made if there is none."""
        if given is not None:
            return cls("given", checked_key(given))
        path, named = _device_key_file()
        if not path.exists():
            _make_key_file(path)
        return cls("device", read_key_file(path), binds_machine=not named)

    @classmethod
    def of_ledger(cls, ledger: Path, sealed_by: str, given: bytes | None) -> SealingKey:
        """Return the key that a ledger has to be sealed by; raise LedgerError if it is not here.

        What the file says decides about messages only: an edit of it never leads to another key.

        Parameters
        ----------
        ledger
            Its file, for messages.
        sealed_by
            The kind of key that the file states.
        given
            The key that the caller gives, checked.
        """
        if given is not None:
            return cls("given", given)
        if sealed_by == "given":
            raise LedgerError(f"{ledger}: is sealed by a key that was given when it was made. Give it again.")
        path, named = _device_key_file()
        if not path.exists():
            raise LedgerError(
                f"{ledger}: is sealed by the key of the device that it was made on, and there is none at {path}. "
                f"{_STAYS} On the device that it was made on, put its key back, or say where it is "
                f"({KEY_FILE_VARIABLE})."
            )
        return cls("device", read_key_file(path), binds_machine=not named)

    def check(self, ledger: bytes) -> bytes:
        """Return the digest that shows that a ledger, given its identity, is sealed by this key."""
        return hmac.digest(self.key, b"geoblanket key check" + ledger, "sha256")

    def machine(self) -> bytes:
        """Return a digest of this machine's id, which does not reveal it; empty if there is none."""
        machine = _machine_id()
        return hmac.digest(self.key, b"geoblanket machine" + machine, "sha256") if machine else b""

    def refuse_elsewhere(self, path: Path, ledger: bytes, check: bytes, machine: bytes) -> None:
        """Raise LedgerError unless a ledger with these marks is sealed by this key, on this machine."""
        if not hmac.compare_digest(check, self.check(ledger)):
            raise LedgerError(f"{path}: is sealed by another device key than the one here. {_STAYS}")
        if machine and not hmac.compare_digest(machine, self.machine()):
            raise LedgerError(f"{path}: was made on another machine, or this one got another id. {_STAYS}")


_STAYS: Final = (
    "A ledger stays on its device, as a copy of it would spend the same budget again: nothing is released. "
    "Make one here, with `geoblanket ledger create`."
)


def checked_key(key: bytes) -> bytes:
    """Return a key; raise ParameterError if it is short enough to be guessed."""
    if len(key) < LEAST_KEY_BYTES:
        raise ParameterError(
            f"A device key must be {LEAST_KEY_BYTES} bytes or more. Leave it out to use the key of this device."
        )
    return key


def read_key_file(path: Path) -> bytes:
    """Return the key in a file, as it is.

    Raises
    ------
    InputError
        If the file cannot be read, or is empty or too short for a key.
    """
    try:
        key = path.read_bytes()
    except OSError as error:
        raise InputError(f"the device key cannot be read ({error.strerror})", path=path) from None
    if len(key) < LEAST_KEY_BYTES:
        raise InputError(
            f"is no device key: it has {len(key)} bytes, and needs at least {LEAST_KEY_BYTES}",
            path=path,
            hint=f"Write {_NEW_KEY_BYTES} random bytes into it, before the first ledger is made with it",
        )
    return key


def _device_key_file() -> tuple[Path, bool]:
    """Return where the device's key is, and whether that place was named by the environment."""
    if named := os.environ.get(KEY_FILE_VARIABLE):
        return Path(named), True
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise LedgerError(
            f"There is no home folder for the device's key. Name its file in {KEY_FILE_VARIABLE}."
        ) from None
    return folder / "geoblanket" / "device.key", False


def _make_key_file(path: Path) -> None:
    """Write a new key, wholly or not at all; where another process was first, its key stays."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(_NEW_KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        finally:
            temporary.unlink()
        sync_to_disk(path.parent)
    except OSError as error:
        raise LedgerError(
            f"{path}: the device's key cannot be made ({error.strerror}). Name another file in {KEY_FILE_VARIABLE}."
        ) from None


def _machine_id() -> bytes:
    """Return the machine's id; nothing where there is none, as in most containers."""
    try:
        text = _MACHINE_ID.read_bytes().strip()
    except OSError:
        return b""
    return text if len(text) == _MACHINE_ID_LENGTH else b""


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
