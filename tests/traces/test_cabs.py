from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from geoblanket._untrusted import ALWAYS_ALLOWED_BYTES
from geoblanket.errors import InputError, ParameterError
from geoblanket.traces import _archives
from geoblanket.traces.cleaning import Cleaning
from geoblanket.traces.importing import import_traces
from geoblanket.traces.table import describe_traces, scan_traces
from tests.traces._files import REAL_DATA, cab_archive, dropped, imported

ARCHIVE = REAL_DATA / "sanfrancisco" / "cabspotting_421_taxis.tar.xz"
START_S = 1_211_033_530


def rows(count: int, *, occupied: Sequence[int] = (0,), start_s: int = START_S) -> list[str]:
    """Rows of a slow cab, the newest first; occupancies are repeated."""
    cab = [f"{37.75 + 0.0005 * k:.4f} -122.39 {occupied[k % len(occupied)]} {start_s + 60 * k}" for k in range(count)]
    return cab[::-1]


def text(lines: Sequence[str]) -> bytes:
    return "\n".join(lines).encode() + b"\n"


FLEET = {
    "cabs/new_b.txt": text(rows(4, occupied=(0, 0, 1, 1))),
    "cabs/README": b"Read me.",
    "cabs/new_a.txt": text(rows(3)),
}
EXPECTED = [("a", 3, 0), ("b", 4, 2)]


def counted(table: pl.DataFrame) -> list[tuple[str, int, int]]:
    """Vehicles with their points and occupied points."""
    return table.group_by("vehicle").agg(pl.len(), pl.col("occupied").sum()).sort("vehicle").rows()


@pytest.mark.parametrize("name", ["cabs.tar", "cabs.tar.gz", "cabs.tar.bz2", "cabs.tar.xz"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_are_read(tmp_path: Path, name: str, form: int) -> None:
    table, summary = imported(tmp_path, cab_archive(tmp_path / name, FLEET, form=form), format="cabspotting")
    assert counted(table) == EXPECTED
    assert table.columns == ["vehicle", "trip", "time", "lat", "lon", "occupied"]
    assert table["time"].dt.epoch("s").to_list()[:3] == [START_S, START_S + 60, START_S + 120]
    assert (summary.rows_read, summary.points, summary.vehicles, summary.to_json()["changed"]["sorted"]) == (7, 7, 2, 0)
    assert [path.name for path in summary.files] == [name, "new_b.txt", "new_a.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "traces.parquet"]  # nothing was extracted


def test_folders_and_single_files_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "cabs"
    folder.mkdir()
    for name, data in FLEET.items():
        (tmp_path / name).write_bytes(data)
    assert counted(imported(tmp_path, folder, format="cabspotting")[0]) == EXPECTED
    files = [folder / "new_b.txt", folder / "new_a.txt"]
    assert counted(imported(tmp_path, *files, format="cabspotting")[0]) == EXPECTED
    (folder / "new_a.txt").unlink()
    (folder / "new_a.txt.gz").write_bytes(gzip.compress(FLEET["cabs/new_a.txt"]))
    assert counted(imported(tmp_path, folder, format="cabspotting")[0]) == EXPECTED


def test_the_oldest_may_come_first(tmp_path: Path) -> None:
    path = cab_archive(tmp_path / "cabs.tar", {"new_a.txt": text(rows(5)[::-1])})
    table, summary = imported(tmp_path, path, format="cabspotting")
    assert table["time"].is_sorted()
    assert "sorted" not in summary.rules


def test_passengers_cut_trips_if_asked(tmp_path: Path) -> None:
    path = cab_archive(tmp_path / "cabs.tar", {"new_a.txt": text(rows(12, occupied=(0, 0, 0, 1, 1, 1)))})
    whole, _ = imported(tmp_path, path, format="cabspotting")
    assert whole["trip"].n_unique() == 1
    table, summary = imported(tmp_path, path, format="cabspotting", cleaning=Cleaning(trips="occupancy"))
    assert table["trip"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert table.group_by("trip").agg(pl.col("occupied").n_unique())["occupied"].to_list() == [1, 1, 1, 1]
    assert summary.rules["cut_by_occupancy"].rows == 3
    assert describe_traces(tmp_path / "traces.parquet").trips == 4


def test_other_formats_do_not_say_who_is_on_board(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("vehicle,time,lat,lon\na,1211033530,37.7,-122.4\na,1211033590,37.7,-122.4\n")
    with pytest.raises(ParameterError, match="do not say when a passenger is on board"):
        imported(tmp_path, path, format="table", cleaning=Cleaning(trips="occupancy"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("37.75 -122.39 2 1211033000", "occupied is neither 0 nor 1"),
        ("37.75 -122.39 0", "wrong number of columns"),
        ("37.75 -122.39 0 1211033000 9", "wrong number of columns"),
        ("37,75 -122.39 0 1211033000", "a coordinate is not a number"),
        ("37.75 -122.39 0 yesterday", "the time"),
        ("37.75 -122.39  1211033000", "a cell that is needed is empty"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_with_its_file(tmp_path: Path, bad: str, reason: str) -> None:
    lines = rows(5)
    lines.insert(2, bad)
    path = cab_archive(tmp_path / "cabs.tar.gz", {"x/new_a.txt": text(rows(3)), "x/new_b.txt": text(lines)})
    table, summary = imported(tmp_path, path, format="cabspotting")
    assert table.height == 8
    assert dropped(summary) == {"malformed": 1}
    assert summary.first_rows("malformed") == [(path / "new_b.txt", 3)]
    with pytest.raises(InputError, match=rf"cabs\.tar\.gz/new_b\.txt, row 3: {reason}") as raised:
        imported(tmp_path, path, format="cabspotting", strict=True)
    assert "122" not in str(raised.value).replace(str(tmp_path), "")


def test_what_has_no_cabs_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, cab_archive(tmp_path / "other.tar.gz", {"README": b"Read me."})):
        with pytest.raises(InputError, match="has no file of a cab"):
            imported(tmp_path, path, format="cabspotting")
    with pytest.raises(InputError, match="is a folder"):
        imported(tmp_path, empty, format="rome")


def test_names_that_lead_elsewhere_are_only_names(tmp_path: Path) -> None:
    files = {"../../new_a.txt": text(rows(3)), "/etc/new_b.txt": text(rows(4, occupied=(1, 0)))}
    table, _ = imported(tmp_path, cab_archive(tmp_path / "cabs.tar", files), format="cabspotting")
    assert counted(table) == [("a", 3, 0), ("b", 4, 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cabs.tar", "traces.parquet"]
    assert not list(tmp_path.parent.glob("new_*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE])
def test_links_devices_and_sparse_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "cabs.tar", "w") as tar:
        entry = tarfile.TarInfo("new_a.txt")
        entry.type, entry.linkname = kind, "/etc/passwd"
        tar.addfile(entry)
    with pytest.raises(InputError, match="a link, a device or a sparse file"):
        imported(tmp_path, tmp_path / "cabs.tar", format="cabspotting")


def long_name(size: int) -> bytes:
    """The header of a long name of some bytes, which `tarfile` would read into memory."""
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, size
    return entry.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_bombs_do_not_go_off(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    most = ALWAYS_ALLOWED_BYTES
    path = tmp_path / "bomb.tar"
    path.write_bytes(pack(long_name(most) + bytes(most)))
    with pytest.raises(InputError, match="holds more than 64 MiB when it is unpacked"):
        imported(tmp_path, path, format="cabspotting")


@pytest.mark.parametrize("cut", [100, 600, 1100, 2048])
@pytest.mark.parametrize("name", ["cabs.tar", "cabs.tar.xz"])
def test_archives_that_are_cut_short_or_damaged_are_refused(tmp_path: Path, name: str, cut: int) -> None:
    path = cab_archive(tmp_path / name, {"new_a.txt": text(rows(40))}, form=tarfile.USTAR_FORMAT)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole) - 20)])
    with pytest.raises(InputError):
        imported(tmp_path, path, format="cabspotting")
    plain = bytearray(cab_archive(tmp_path / "cabs.tar", FLEET, form=tarfile.USTAR_FORMAT).read_bytes())
    plain[1024] ^= 1  # the second header: its sum is wrong
    path.write_bytes(plain)
    with pytest.raises(InputError, match="damaged or cut short"):
        imported(tmp_path, path, format="cabspotting")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_archives, "_MOST_FILES", 2)
    with pytest.raises(InputError, match="more than 2 files"):
        imported(tmp_path, cab_archive(tmp_path / "cabs.tar", FLEET), format="cabspotting")


def test_xz_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    content = cab_archive(tmp_path / "cabs.tar", FLEET).read_bytes()
    large = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 29}]
    (tmp_path / "cabs.tar").write_bytes(lzma.compress(content, filters=large))
    with pytest.raises(InputError, match="xz data is damaged"):
        imported(tmp_path, tmp_path / "cabs.tar", format="cabspotting")


def test_xz_in_several_parts_is_one_text(tmp_path: Path) -> None:
    path = tmp_path / "new_a.txt"
    path.write_bytes(b"".join(lzma.compress(text([row])) for row in rows(5)))
    assert counted(imported(tmp_path, path, format="cabspotting")[0]) == [("a", 5, 0)]


@pytest.mark.skipif(not ARCHIVE.is_file(), reason="needs San Francisco's cabs in ../shared/data")
def test_real_cabs_agree_with_tarfile(tmp_path: Path) -> None:
    cabs = {}
    with tarfile.open(ARCHIVE) as tar:
        for entry, _ in zip(tar, range(3), strict=False):
            content = tar.extractfile(entry)
            assert content is not None
            cabs[entry.name] = content.read()
    path = cab_archive(tmp_path / "three.tar.xz", cabs)
    as_it_is = Cleaning(max_speed_m_s=None, max_gap_s=None, min_points=1, drop_duplicates=False)
    import_traces(path, tmp_path / "out.parquet", format="cabspotting", cleaning=as_it_is)
    table = scan_traces(tmp_path / "out.parquet").collect()
    expected = [
        (name.removeprefix("new_").removesuffix(".txt"), int(time), float(lat), float(lon), occupied == "1")
        for name, data in cabs.items()
        for lat, lon, occupied, time in (line.split() for line in data.decode().splitlines())
    ]
    found = table.select("vehicle", pl.col("time").dt.epoch("s"), "lat", "lon", "occupied").rows()
    assert sorted(found) == sorted(expected)
