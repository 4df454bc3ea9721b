"""Writing a file wholly or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geoblanket.errors import OutputError

__all__ = ["atomic_output", "check_output", "sha256_file", "sync_to_disk"]


@contextmanager
def atomic_output(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` when the block ends without an exception.

    The file and its folder are synced to disk around the rename, so after a crash `path` holds either
    the old content or the whole new one. After an exception (Ctrl-C too) the temporary file is removed.
    """
    path = Path(path)
    check_output(path)
    # The ending is kept, because writers choose a format by it.
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}.partial{path.suffix}")
    try:
        yield temporary
        sync_to_disk(temporary)
        temporary.replace(path)
        sync_to_disk(path.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error}).") from error
    finally:
        temporary.unlink(missing_ok=True)


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
