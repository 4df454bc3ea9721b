from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from geoblanket._files import atomic_output, make_folder, open_private, private_folder, temporary_folder, writing
from geoblanket.errors import OutputError


def test_file_appears_only_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    with atomic_output(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt])
def test_interrupted_writing_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    path = tmp_path / "result.txt"
    path.write_text("old")
    with pytest.raises(interruption), atomic_output(path) as temporary:
        temporary.write_text("half")
        raise interruption
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left"), atomic_output(tmp_path / "result") as temporary:
        temporary.write_text("half")
        with Path("/dev/full").open("w") as full:
            full.write("x")
    assert list(tmp_path.iterdir()) == []


def told(path: Path, reason: str) -> str:
    return f"{path}: cannot be written ({reason})."


def test_a_full_disk_that_a_library_tells_of_in_words(tmp_path: Path) -> None:
    path = tmp_path / "walks.parquet"
    with pytest.raises(OutputError) as raised, atomic_output(path) as temporary:
        raise RuntimeError(f"parquet: {temporary}: No space left on device (os error 28)")
    assert str(raised.value) == told(path, "No space left on device")
    with pytest.raises(RuntimeError, match="something else"), writing(path):
        raise RuntimeError("something else")
    with pytest.raises(OutputError) as raised, writing(path):
        raise OSError(f"{tmp_path}/.walks.partial")
    assert str(raised.value) == told(path, "OSError")


def test_polars_at_a_full_disk_is_an_output_error() -> None:
    with pytest.raises(OutputError) as raised, writing("released.parquet"):
        pl.DataFrame({"a": range(100_000)}).lazy().sink_parquet("/dev/full", engine="streaming")
    assert str(raised.value) == told(Path("released.parquet"), "No space left on device")


def test_a_read_only_disk_is_told_of_the_file_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OutputError) as raised, atomic_output(tmp_path / "a.roads") as temporary:
        refuse(temporary)
    assert str(raised.value) == told(tmp_path / "a.roads", "Read-only file system")


def test_what_fails_in_a_temporary_folder_is_told_of_the_result(tmp_path: Path) -> None:
    path = tmp_path / "released.parquet"
    with pytest.raises(OutputError) as raised, temporary_folder(path) as folder, writing(folder / "walks.parquet"):
        raise OSError(28, "No space left on device")
    assert str(raised.value) == told(path, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        make_folder(tmp_path / "a")


def test_missing_folder_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"), atomic_output(tmp_path / "no" / "result"):
        os.abort()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that lets everybody read and write whatever does not say otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_private_file_is_private_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    path.write_text("old, and readable by all")
    with atomic_output(path, private=True) as temporary:
        assert mode(temporary) == 0o600
        temporary.write_text("new")
    assert mode(path) == 0o600
    assert path.read_text() == "new"


@pytest.mark.usefixtures("open_umask")
def test_what_is_appended_to_becomes_private(tmp_path: Path) -> None:
    for path in (tmp_path / "new", tmp_path / "old"):
        if path.name == "old":
            path.write_text("x")
        with open_private(path) as file:
            file.write(b"y")
        assert mode(path) == 0o600
    assert (tmp_path / "old").read_text() == "xy"


@pytest.mark.usefixtures("open_umask")
def test_a_private_folder_lets_nobody_else_in(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("old", "new"):
        private_folder(tmp_path / name)
        assert mode(tmp_path / name) == 0o700
