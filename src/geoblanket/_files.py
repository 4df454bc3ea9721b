"""Writing a file wholly or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from geoblanket.errors import OutputError

__all__ = [
    "atomic_output",
    "check_output",
    "make_folder",
    "open_private",
    "private_folder",
    "sha256_file",
    "sync_to_disk",
]

_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700


@contextmanager
def atomic_output(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` when the block ends without an exception.

    The file and its folder are synced to disk around the rename, so after a crash `path` holds either
    the old content or the whole new one. After an exception (Ctrl-C too) the temporary file is removed.

    Parameters
    ----------
    private
        Nobody but the user may read the file, at any moment (mode 0600), whatever the umask is: for true locations and
        what is made of them.
    """
    path = Path(path)
    check_output(path)
    # The ending is kept, because writers choose a format by it.
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}.partial{path.suffix}")
    try:
        if private:
            # Writers open what is there, and keep its mode.
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE))
        yield temporary
        sync_to_disk(temporary)
        temporary.replace(path)
        sync_to_disk(path.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error}).") from error
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(path: str | Path) -> Path:
    """Make a folder, with those above it, where it does not exist; return it."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made ({error.strerror or error}).") from error
    return Path(path)


def open_private(path: Path) -> IO[bytes]:
    """Open a file to append to it, which nobody but the user may read (mode 0600), from the moment it is made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
    file = os.fdopen(descriptor, "ab")
    os.fchmod(descriptor, _PRIVATE_FILE)  # it may have been there before
    return file


def private_folder(path: Path) -> None:
    """Make a folder, if it is absent, and let nobody but the user into it (mode 0700)."""
    path.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
    path.chmod(_PRIVATE_FOLDER)


def check_output(path: str | Path) -> None:
    """Raise at once, before long work, if a file could not be written at `path`."""
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path}: is a folder. Give the name of the file to write.")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: the folder {path.parent} does not exist. Create it first.")


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
