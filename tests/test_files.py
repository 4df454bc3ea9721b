from __future__ import annotations

import os
from pathlib import Path

import pytest

from geoblanket._files import atomic_output
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


def test_missing_folder_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"), atomic_output(tmp_path / "no" / "result"):
        os.abort()
