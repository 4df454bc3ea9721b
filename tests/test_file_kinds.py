from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import polars as pl
import pytest

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._files import MAGIC, advice, kind_of_file
from geoblanket._tables import scan_table, write_table
from geoblanket.errors import InputError
from geoblanket.roads.graph import RoadGraph
from geoblanket.tracking.motion_model import MotionModel

PBF = b"\0\0\0\x0e\n\tOSMHeader\x18"
XML = b'<?xml version="1.0"?>\n<osm version="0.6"></osm>\n'
PORTO = b'"TRIP_ID","TAXI_ID","POLYLINE"\n'
CONTENTS = {
    "osm": [PBF, XML, gzip.compress(XML, mtime=0), bz2.compress(XML)],
    "graphml": [b"<graphml xmlns='a'></graphml>"],
    "porto": [PORTO, gzip.compress(PORTO, mtime=0)],
    "csv": [b"id;ts;lat;lon\n1;2;3;4\n"],
    "road table": [b"osmid,y,x\n", b"u,v,length,highway\n"],
    "zip": [b"PK\x03\x04..."],
    "json": [b'{"type": "FeatureCollection"}'],
    "ledger": [b"SQLite format 3\0"],
    "empty": [b""],
    None: [b"some words\n", b"\0\1\2", gzip.compress(b"x", mtime=0)[:12], b"<html>"],
}


@pytest.mark.parametrize(("kind", "content"), [(kind, each) for kind, all_ in CONTENTS.items() for each in all_])
def test_files_are_known_by_their_content(tmp_path: Path, kind: str | None, content: bytes) -> None:
    path = tmp_path / "a.roads"
    path.write_bytes(content)
    assert kind_of_file(path) == kind


def test_our_own_files_are_known(tmp_path: Path) -> None:
    for kind, magic in MAGIC.items():
        write_arrays(tmp_path / kind, magic=magic, fields={}, arrays={})
        assert kind_of_file(tmp_path / kind) == kind
    frame = pl.DataFrame({"a": [1]})
    write_table(frame, tmp_path / "a", kind="walks", about={"note": '"kind"'})
    frame.write_parquet(tmp_path / "b")
    assert (kind_of_file(tmp_path / "a"), kind_of_file(tmp_path / "b")) == ("walks", "parquet")
    assert (kind_of_file(tmp_path), kind_of_file(tmp_path / "absent")) == ("folder", None)


def test_a_reader_tells_what_to_run(tmp_path: Path) -> None:
    path = tmp_path / "my map.osm.pbf"
    path.write_bytes(PBF)
    with pytest.raises(InputError) as raised:
        RoadGraph.load(path)
    assert str(raised.value) == (
        f"{path}: is not a road graph written by geoblanket: it is an OpenStreetMap file. "
        f"First run `geoblanket roads import '{path}' --out city.roads`."
    )
    with pytest.raises(InputError, match=r"it is an OpenStreetMap file\. Give a motion model, from `geoblanket model`"):
        MotionModel.load(path)
    schema = {"a": pl.Int64()}
    path.write_bytes(PORTO)
    with pytest.raises(InputError, match="First run `geoblanket traces import --format porto "):
        scan_table(path, kind="traces", schema=schema)
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(InputError, match=r"did not write\. First run `geoblanket traces import --format table "):
        scan_table(path, kind="traces", schema=schema)
    write_table(pl.DataFrame({"a": [1]}), path, kind="traces", about={})
    with pytest.raises(InputError, match=r"it is a table of traces\. First run `geoblanket match --traces "):
        scan_table(path, kind="walks", schema=schema)


def test_bytes_that_were_read_already_are_judged_and_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(PBF)
    with pytest.raises(InputError, match="it is a road graph"):
        read_arrays(path, magic=MAGIC["bundle"], kind="a bundle", content=MAGIC["roads"] + bytes(99))


def test_archives_have_to_be_unpacked() -> None:
    assert advice("zip", "roads", "a.zip") == "Unpack it, and give what was in it"
