from __future__ import annotations

from pathlib import Path

import pytest

from geoblanket._unfinished import Journal
from geoblanket.errors import MismatchError, OutputError

ABOUT = {"seed": 0, "by": ["hour"], "alpha": 0.05}
RECORDS = [[1, 1, "tested", 0.1, 1e-300, None, 3], [2, 1, "too_few", None, None, None, 0], [3, 2, "tested", 1 / 3]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "side"
    with Journal(path, ABOUT, resume=False) as journal:
        for record in RECORDS:
            journal.add(record)
    return path


def test_records_come_back_as_they_were(path: Path) -> None:
    for _ in range(2):
        with Journal(path, ABOUT, resume=True) as journal:
            assert journal.records == RECORDS


def test_a_record_is_in_the_file_at_once(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Journal(tmp_path / "side", ABOUT, resume=False) as journal:
        journal.add(RECORDS[0])
        copy.write_bytes((tmp_path / "side").read_bytes())  # what a sudden end would leave
    with Journal(copy, ABOUT, resume=True) as journal:
        assert journal.records == RECORDS[:1]


def test_cut_anywhere_whole_records_are_kept_and_the_rest_is_written_anew(path: Path) -> None:
    whole = path.read_bytes()
    ends = [end for end in range(len(whole) + 1) if whole[:end].endswith(b"\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = max(sum(end <= size for end in ends) - 1, 0)
        with Journal(path, ABOUT, resume=True) as journal:
            assert journal.records == RECORDS[:kept]
            for record in RECORDS[kept:]:
                journal.add(record)
        assert path.read_bytes() == whole


def test_a_damaged_record_and_all_after_it_are_forgotten(path: Path) -> None:
    whole = path.read_bytes()
    at = whole.index(b"too_few")
    for damaged in (whole[:at] + b"T" + whole[at + 1 :], whole[:at] + bytes(200)):
        path.write_bytes(damaged)
        with Journal(path, ABOUT, resume=True) as journal:
            assert journal.records == RECORDS[:1]
        assert path.read_bytes() == whole[: whole.index(b"\n", whole.index(b"tested")) + 1]


def test_another_run_is_refused_and_told_in_what_it_differs(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(MismatchError, match="another alpha, another seed"):
        Journal(path, {**ABOUT, "seed": 1, "alpha": 0.01}, resume=True)
    with pytest.raises(MismatchError, match="another test"):
        Journal(path, {**ABOUT, "test": "x"}, resume=True)
    with pytest.raises(OutputError, match="Resume it"):
        Journal(path, ABOUT, resume=False)
    assert path.read_bytes() == before


def test_a_run_that_finished_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Journal(tmp_path / "side", ABOUT, resume=False):
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_finished_run_leaves_nothing(path: Path) -> None:
    with Journal(path, ABOUT, resume=True) as journal:
        journal.remove()
    assert not path.exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be used as a side file"):
        Journal(tmp_path / "no" / "side", ABOUT, resume=True)
