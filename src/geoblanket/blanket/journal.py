"""A side file that keeps what is finished, so that an interrupted run goes on where it stopped.

Each line is a checksum and a JSON value. The first tells what the run is about; the others are records. Whatever comes
after the first line that is not whole (the run was killed while writing it) is forgotten and done again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from geoblanket._files import open_private
from geoblanket._unfinished import check_same
from geoblanket.errors import OutputError

__all__ = ["Journal", "journal_path"]


def journal_path(out: str | Path) -> Path:
    """Return where the side file of a result lies: beside it."""
    out = Path(out)
    return out.with_name(f"{out.name}.unfinished")


class Journal:
    """The side file of a run, open for more records; nobody but the user may read it.

    Parameters
    ----------
    path
        The side file.
    about
        Parameters and inputs of the run, as JSON values.
    resume
        Go on with what the file holds; it may be absent. Otherwise it must not exist.

    Attributes
    ----------
    records
        What was finished before, in the order in which it was.

    Raises
    ------
    MismatchError
        If the file belongs to a run with other parameters or inputs.
    OutputError
        If there is a file and `resume` is false, or it cannot be written.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self.records: list[Any] = []
        self._empty = True
        about = json.loads(json.dumps(about))
        try:
            if path.exists():
                if not resume:
                    raise OutputError(
                        f"{path}: an interrupted run left what it had finished. Resume it (--resume), or remove the "
                        "file first."
                    )
                self._recover(about)
            self._file: IO[bytes] = open_private(path)
            if not path.stat().st_size:
                self._write(about)
        except OSError as error:
            raise OutputError(f"{path}: cannot be used as a side file ({error.strerror or error}).") from error

    def add(self, record: Any) -> None:
        """Keep a record, a JSON value: it survives the end of this process, however sudden."""
        self._empty = False
        self._write(record)

    def remove(self) -> None:
        """Close and remove the file, once the result is written."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._empty and not self.records:
            self.remove()
        self._file.close()

    def _write(self, value: Any) -> None:
        text = json.dumps(value, allow_nan=False).encode()
        self._file.write(b"%08x %s\n" % (zlib.crc32(text), text))
        self._file.flush()

    def _recover(self, about: Mapping[str, Any]) -> None:
        """Read the whole lines, and cut off the rest of the file."""
        values, end = [], 0
        with self.path.open("rb") as file:
            for line in file:
                checksum, _, text = line.partition(b" ")
                if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
                    break
                values.append(json.loads(text))
                end += len(line)
        if values:
            check_same(values[0], about, self.path)
        with self.path.open("r+b") as file:
            file.truncate(end)
        self.records = values[1:]
