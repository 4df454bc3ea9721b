"""The folder of a run that is not finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoblanket._unfinished import Effort, PartStore
from geoblanket.errors import MismatchError, OutputError


def open_store(path: Path, about: dict[str, object], *, resume: bool) -> None:
    PartStore(path, about, resume=resume, pack=lambda part: (part, {}), unpack=lambda part, _: part)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one finished part of a run with gap 0.1."""
    path = tmp_path / "new" / "folder"
    open_store(path, {"gap": 0.1, "seeds": (1, 2)}, resume=False)
    (path / "one.part").touch()
    return path


def test_the_same_run_goes_on(folder: Path) -> None:
    open_store(folder, {"gap": 0.1, "seeds": (1, 2)}, resume=True)
    assert (folder / "one.part").exists()


def test_what_is_finished_is_not_overlooked(folder: Path) -> None:
    with pytest.raises(OutputError, match=r"folder: an interrupted run left .* \(--resume\)"):
        open_store(folder, {"gap": 0.1, "seeds": (1, 2)}, resume=False)


def test_another_run_is_told_what_differs(folder: Path) -> None:
    with pytest.raises(MismatchError, match=r"had another extra, another gap\. "):
        open_store(folder, {"gap": 0.2, "seeds": (1, 2), "extra": 1}, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_without_parts_a_run_begins_anew(folder: Path, resume: bool) -> None:
    (folder / "one.part").unlink()
    open_store(folder, {"gap": 0.2}, resume=resume)
    (folder / "one.part").touch()
    open_store(folder, {"gap": 0.2}, resume=True)


@pytest.mark.parametrize("content", [None, "", "{", "[]", "\xff"])
def test_parts_of_an_unknown_run_are_refused(folder: Path, content: str | None) -> None:
    (folder / "about.json").unlink()
    if content is not None:
        (folder / "about.json").write_text(content, encoding="latin-1")
    with pytest.raises(OutputError, match="does not say which run it belongs to"):
        open_store(folder, {"gap": 0.1}, resume=True)


def test_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be made"):
        open_store(tmp_path / "file" / "folder", {}, resume=True)


def test_all_legs_of_a_run_count(tmp_path: Path) -> None:
    def leg(seconds: float, memory_mb: float) -> PartStore[dict[str, object]]:
        return PartStore(
            tmp_path / "unfinished",
            {"gap": 0.1},
            resume=True,
            pack=lambda part: (part, {}),
            unpack=lambda part, _: part,
            effort=lambda: Effort(seconds, memory_mb),
        )

    first = leg(40.0, 300.0)
    first.add("one", {})  # and then it is killed
    second = leg(7.5, 900.0)
    assert second.effort() == Effort(47.5, 900.0)
    second.close()
    assert leg(2.0, 100.0).effort() == Effort(49.5, 900.0)
    (tmp_path / "unfinished" / "effort.json").write_text("{")
    assert leg(2.0, 100.0).effort() == Effort(2.0, 100.0)
