"""Writing a file wholly or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from geoblanket.errors import GeoblanketError, OutputError

__all__ = [
    "atomic_output",
    "check_output",
    "make_folder",
    "open_private",
    "private_folder",
    "sha256_file",
    "sync_to_disk",
    "temporary_folder",
    "writing",
]

_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700
_OS_ERROR = re.compile(r"\(os error (\d{1,4})\)")  # as Rust's libraries end their messages


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
        with writing(path):
            if private:
                # Writers open what is there, and keep its mode.
                os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE))
            yield temporary
            sync_to_disk(temporary)
            temporary.replace(path)
            sync_to_disk(path.parent)
    finally:
        with suppress(OSError):  # where nothing can be removed, nothing could be written
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raise OutputError, of `path`, for what a full or read-only disk makes of the block.

    The block may write to temporary files, which are nobody's business. Libraries tell of some failures in words only.
    """
    try:
        yield
    except GeoblanketError:
        raise
    except Exception as error:
        reason = _os_reason(error)
        if reason is None:
            raise
        raise OutputError(f"{path}: cannot be written ({reason}).") from error


@contextmanager
def temporary_folder(path: str | Path) -> Iterator[Path]:
    """Give a folder for temporary files beside `path`, and remove it in the end; what fails in it is told of `path`."""
    path = Path(path)
    with (
        writing(path),
        TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}.", suffix=".partial") as folder,
    ):
        try:
            yield Path(folder)
        except OutputError as error:
            told = re.sub(rf"{re.escape(folder)}[^:]*", lambda _: f"{path}", f"{error}")
            raise OutputError(told) from error


def _os_reason(error: Exception) -> str | None:
    """Return what the operating system said, without any path; None if the error is not about files."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if (told := _OS_ERROR.search(f"{error}")) is not None:
        return os.strerror(int(told[1]))
    return type(error).__name__ if isinstance(error, OSError) else None


def make_folder(path: str | Path) -> Path:
    """Make a folder, with those above it, where it does not exist; return it."""
    if Path(path).is_file():
        raise OutputError(f"{path}: is a file. Give the name of a folder.")
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
