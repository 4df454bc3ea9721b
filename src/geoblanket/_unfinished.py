"""What a run has finished, kept until all is: an interrupted run goes on where it stopped (`--resume`).

Large parts go to a folder (`PartStore`), one file each; many small ones to one file that grows (`Journal`). Both tell
the run that they belong to, and nobody but the user may read them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, Self, TypeVar

from geoblanket._arrayfile import Arrays, read_arrays, write_arrays
from geoblanket._files import MAGIC, atomic_output, open_private, private_folder
from geoblanket.errors import GeoblanketError, MismatchError, OutputError

_ABOUT = "about.json"
_EFFORT = "effort.json"
_PARTS = "[!.]*.part"
_MAGIC = MAGIC["part"]

Part = TypeVar("Part")


def unfinished_path(out: str | Path) -> Path:
    """Return where a run keeps what it has finished: beside its result."""
    out = Path(out)
    return out.with_name(f"{out.name}.unfinished")


@dataclass(frozen=True)
class Effort:
    """What a run took; of an interrupted run, what its legs took together."""

    seconds: float = 0.0
    """Wall-clock time, without the pauses between legs."""
    peak_memory_mb: float = 0.0
    """Largest resident size of the main process in any leg, megabytes."""

    def followed_by(self, leg: Effort) -> Effort:
        """Return the effort of these legs and one more."""
        return Effort(self.seconds + leg.seconds, max(self.peak_memory_mb, leg.peak_memory_mb))


class PartStore(Generic[Part]):
    """A folder with a file for each finished part, written wholly or not at all; what is not whole is made again.

    Parameters
    ----------
    path
        The folder; it may be absent.
    about
        What makes the run what it is: parameters, inputs and versions, as JSON values.
    resume
        Go on with the parts that the folder holds. Otherwise it must not hold any. Without any, the run begins anew.
    pack
        Returns a part as JSON values and arrays.
    unpack
        Returns the part again.
    effort
        Returns what this leg of the run took so far. It is kept with each part and at the end of the leg: a leg that is
        killed counts up to its last part.

    Raises
    ------
    MismatchError
        If the parts belong to a run with other parameters or inputs.
    OutputError
        If there are parts and `resume` is false, or the folder cannot be used.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        *,
        resume: bool,
        pack: Callable[[Part], tuple[dict[str, Any], Arrays]],
        unpack: Callable[[dict[str, Any], Arrays], Part],
        effort: Callable[[], Effort] = Effort,
    ) -> None:
        self.path, self._pack, self._unpack = path, pack, unpack
        self._earlier, self._this_leg = Effort(), effort
        if not self._is_empty():
            _check_resumed(path, about, _read_about(path), resume=resume)
            self._earlier = _read_effort(path)
            return
        try:
            private_folder(path)
        except OSError as error:
            raise OutputError(f"{path}: cannot be made ({error.strerror or error}).") from error
        with _naming(path), atomic_output(path / _ABOUT, private=True) as temporary:
            temporary.write_text(json.dumps(about), encoding="utf-8")

    def add(self, name: str, part: Part) -> None:
        """Keep a part: it survives the end of this process, however sudden."""
        fields, arrays = self._pack(part)
        with _naming(self.path):
            write_arrays(self._file(name), magic=_MAGIC, fields=fields, arrays=arrays, private=True)
        self._keep_effort()

    def effort(self) -> Effort:
        """Return what all legs of the run took, up to now."""
        return self._earlier.followed_by(self._this_leg())

    def has(self, name: str) -> bool:
        """Whether a part is kept, and whole."""
        try:
            self._read(name)
        except GeoblanketError:
            return False
        return True

    def get(self, name: str) -> Part:
        """Return a part that is kept."""
        return self._unpack(*self._read(name))

    def close(self) -> None:
        """End the leg; remove the folder if nothing was finished."""
        if self._is_empty():
            self.remove()
        else:
            self._keep_effort()

    def remove(self) -> None:
        """Remove the folder, once the result is written."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _keep_effort(self) -> None:
        effort = self.effort()
        if effort != Effort():  # not every run measures it
            with atomic_output(self.path / _EFFORT, private=True) as temporary:
                temporary.write_text(json.dumps(asdict(effort)), encoding="utf-8")

    def _is_empty(self) -> bool:
        return next(self.path.glob(_PARTS), None) is None

    def _file(self, name: str) -> Path:
        # Names of parts may have characters that names of files may not.
        return self.path / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.part"

    def _read(self, name: str) -> tuple[dict[str, Any], Arrays]:
        return read_arrays(self._file(name), magic=_MAGIC, kind="a finished part", hint="Run again with --resume")


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Name the folder, which people know, in errors about a file in it."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{folder}: {f'{error}'.partition(': ')[2]}") from error


class Journal:
    """A file of records, open for more.

    Each line is a checksum and a JSON value. The first tells what the run is about; the others are records. Whatever
    comes after the first line that is not whole (the run was killed while writing it) is forgotten and done again.

    Parameters
    ----------
    path
        The file.
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
        try:
            if path.exists():
                values, end = _whole_lines(path)
                _check_resumed(path, about, values[0] if values else about, resume=resume)
                with path.open("r+b") as file:
                    file.truncate(end)
                self.records = values[1:]
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


def _whole_lines(path: Path) -> tuple[list[Any], int]:
    """Return the values of a journal's whole lines, and where the last of them ends, bytes."""
    values, end = [], 0
    with path.open("rb") as file:
        for line in file:
            checksum, _, text = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
                break
            values.append(json.loads(text))
            end += len(line)
    return values, end


def _check_resumed(path: Path, about: Mapping[str, Any], earlier: Mapping[str, Any], *, resume: bool) -> None:
    """Raise unless the interrupted run shall be resumed, and had the same parameters and inputs."""
    if not resume:
        raise OutputError(
            f"{path}: an interrupted run left what it had finished. Resume it (--resume), or remove it first."
        )
    about, earlier = (json.loads(json.dumps(run)) for run in (about, earlier))
    different = sorted(key for key in {*earlier, *about} if earlier.get(key) != about.get(key))
    if different:
        raise MismatchError(
            f"{path}: the interrupted run had another {', another '.join(different)}. Resume with what it was started "
            "with, or remove it to begin anew."
        )


def _read_effort(folder: Path) -> Effort:
    """Return what the earlier legs took; nothing where that was not kept."""
    try:
        return Effort(**json.loads((folder / _EFFORT).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Effort()


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = None
    if not isinstance(about, dict):
        raise OutputError(f"{folder}: does not say which run it belongs to. Remove the folder to begin anew.")
    return about
