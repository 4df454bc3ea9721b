"""Road files that inflate, or hold something without end: refused in bounded memory, quickly."""

from __future__ import annotations

import bz2
import gzip
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoblanket import _untrusted
from geoblanket.errors import InputError
from geoblanket.roads import osm
from geoblanket.roads.importer import import_roads
from tests.memory import peak_mib
from tests.roads.samples import osm_xml

MIB = 1 << 20
GRAPHML = b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'


def gzip_bomb(path: Path, head: bytes, unit: bytes, *, mib: int, tail: bytes = b"") -> Path:
    """Write some MiB of the same, packed to a thousandth."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(head)
        block = unit * (MIB // len(unit))
        for _ in range(mib):
            file.write(block)
        file.write(tail)
    return path


def refusal(path: Path, *others: Path) -> str:
    with pytest.raises(InputError) as caught:
        import_roads([path, *others])
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "head", "unit"),
    [
        ("roads.graphml.gz", GRAPHML, b'<node id="1"/>'),
        ("roads.osm.gz", b"<osm>", b'<node id="1" lat="1" lon="1"/>'),
        ("nodes.csv.gz", b"osmid,y,x\n", b"1,2,3\n"),
    ],
)
def test_what_inflates_beyond_reason_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, head: bytes, unit: bytes
) -> None:
    monkeypatch.setattr(_untrusted, "ALWAYS_ALLOWED_BYTES", 4 * MIB)
    path = gzip_bomb(tmp_path / name, head, unit, mib=60)
    others = [tmp_path / "edges.csv"] if "csv" in name else []
    for other in others:
        other.write_text("u,v\n1,1\n")
    peak, message = peak_mib(refusal, path, *others)
    assert re.search(r"more than \d+ MiB when it is unpacked", message)
    assert peak < 250  # a record of a graph takes about 8 times its text


def test_bzip2_is_limited_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_untrusted, "ALWAYS_ALLOWED_BYTES", MIB)
    path = tmp_path / "roads.osm.bz2"
    path.write_bytes(bz2.compress(b"<osm>" + b"<tag/>" * (5 * MIB // 6)))
    assert "when it is unpacked" in refusal(path)


def test_a_file_that_grows_as_maps_do_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_untrusted, "ALWAYS_ALLOWED_BYTES", 0)
    text = osm_xml([([1, 2, 5, 6, 1], {})])
    path = tmp_path / "roads.osm.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert import_roads([path])[0].node_count


LONG = 30 * MIB


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'<osm><node id="' + b">" * LONG, "a tag, an attribute or a comment of more than 1 MiB"),
        (b'<osm v="0.6"><!--' + b"<" * LONG, "a tag, an attribute or a comment of more than 1 MiB"),
        (b"<osm>" + b"<a>" * (LONG // 3), "nested deeper than 64"),
        (GRAPHML + b'<node id="' + b"1" * LONG, "a tag, an attribute or a comment of more than 1 MiB"),
        (GRAPHML + b'<data key="d1">' + b"1" * LONG, "a text of more than 4,194,304 characters"),
        (b'<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><osm>&b;</osm>', "declares a document type"),
    ],
)
def test_nothing_in_xml_is_without_end(tmp_path: Path, text: bytes, problem: str, packed: bool) -> None:
    path = tmp_path / ("roads.xml.gz" if packed else "roads.xml")
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    peak, message = peak_mib(refusal, path)
    assert problem in message
    assert peak < 100


def block(kind: bytes, raw: bytes, *, told: Callable[[int], int] = int) -> bytes:
    """Return a block of a PBF file that holds `raw`, packed, and tells a size."""

    def number(value: int) -> bytes:
        digits = b""
        while value > 127:
            digits, value = digits + bytes([value & 127 | 128]), value >> 7
        return digits + bytes([value])

    packed = zlib.compress(raw)
    blob = b"\x10" + number(told(len(raw))) + b"\x1a" + number(len(packed)) + packed
    header = b"\x0a" + number(len(kind)) + kind + b"\x18" + number(len(blob))
    return len(header).to_bytes(4, "big") + header + blob


def test_a_pbf_of_many_blocks_of_zeros_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "roads.osm.pbf"
    path.write_bytes(
        block(b"OSMHeader", b"\x22\x0eOsmSchema-V0.6")
        + block(b"OSMData", b"\xa2\x01" + b"\xfd\xff\x3f" + bytes(MIB - 3)) * 100
    )
    assert "more than 64 MiB when it is unpacked" in refusal(path)


@pytest.mark.parametrize("told", [lambda _: 0, lambda _: 1 << 40, lambda _: (32 << 20) + 1, lambda size: size - 1])
def test_a_pbf_block_must_tell_its_size(tmp_path: Path, told: Callable[[int], int]) -> None:
    path = tmp_path / "roads.osm.pbf"
    path.write_bytes(block(b"OSMHeader", b"\x22\x0eOsmSchema-V0.6", told=told))
    assert re.search("does not tell its unpacked size|has another size than it tells", refusal(path))


@pytest.mark.parametrize("name", ["roads.osm", "roads.graphml"])
def test_reading_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name
    path.write_text(osm_xml([([1, 2, 5, 6, 1], {})]) if name == "roads.osm" else GRAPHML.decode())
    monkeypatch.setattr(_untrusted, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(_untrusted, "_SECONDS_PER_MIB", 0.0)
    assert "could not be read within 0 seconds" in refusal(path)


def test_libosmium_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "roads.osm"
    path.write_text(osm_xml([([1, 2, 5, 6, 1], {})]))
    read = osm._read_osm

    def slow(*arguments: Any) -> Any:
        time.sleep(0.5)
        return read(*arguments)

    monkeypatch.setattr(osm, "_read_osm", slow)
    monkeypatch.setattr(osm, "seconds_allowed", lambda _: 0.0)
    assert "could not be read within" in refusal(path)


@pytest.mark.parametrize("texts", [b"\n\0\n\x03a\0b", b"\n\x01\0", b"\n\0\n\x04\n\0\n\0"])
def test_a_pbf_with_zeros_in_its_texts_is_refused(tmp_path: Path, texts: bytes) -> None:
    """libosmium would read beyond its memory, and end the process."""
    path = tmp_path / "roads.osm.pbf"
    data = b"\x0a" + bytes([len(texts)]) + texts
    path.write_bytes(block(b"OSMHeader", b"\x22\x0eOsmSchema-V0.6") + block(b"OSMData", data))
    assert "a text has a zero byte" in refusal(path)
