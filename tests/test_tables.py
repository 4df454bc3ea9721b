"""Tables that were damaged: whoever reads them says so, and names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._tables import reading_parquet, scan_table, table_batches, write_table
from geoblanket.blanket.findings import read_findings
from geoblanket.blanket.groups import load_walks
from geoblanket.errors import GeoblanketError, InputError
from geoblanket.mobility.matching import match_traces
from geoblanket.mobility.picture import draw_walks
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.traces.importing import import_traces
from geoblanket.traces.table import describe_traces
from tests.fuzz.seeds import Seeds

SCHEMA: dict[str, pl.DataType] = {"number": pl.Int64()}


def table(path: Path, **about: object) -> Path:
    numbers = np.random.default_rng(0).integers(0, 1 << 60, 1000)
    write_table(pl.DataFrame({"number": numbers}), path, kind="numbers", about=about)
    return path


def test_a_panic_becomes_an_input_error(tmp_path: Path) -> None:
    """A panic is no Exception: nothing that catches those would stop it."""
    with pytest.raises(InputError, match=f"{tmp_path}: cannot be read as Parquet"), reading_parquet(tmp_path):
        raise pl.exceptions.PanicException


def test_damage_shows_where_rows_are_read(tmp_path: Path) -> None:
    path = table(tmp_path / "some.parquet")
    data = bytearray(path.read_bytes())
    data[60:110] = bytes(50)  # inside a page; its header and the description at the end are whole
    path.write_bytes(data)
    frame, _ = scan_table(path, kind="numbers", schema=SCHEMA)
    with pytest.raises(InputError, match=f"{path}: cannot be read as Parquet: it is damaged"):
        list(table_batches(frame, path=path, rows=100))


@pytest.mark.parametrize("text", ["[1]", '{"kind": "numbers", "version": 1', '{"kind": NaN}', "null", "\ud800", '"'])
def test_a_description_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.parquet"
    pl.DataFrame({"number": [1]}).write_parquet(path, metadata={"geoblanket": text.encode(errors="replace").decode()})
    with pytest.raises(InputError, match="not a table of numbers"):
        scan_table(path, kind="numbers", schema=SCHEMA)


def test_walks_must_say_what_places_they_are_on(tmp_path: Path, seeds: Seeds) -> None:
    frame, about = scan_walks(seeds.walks)
    path = tmp_path / "walks.parquet"
    del about["spacing_m"]
    write_table(frame, path, kind="walks", about=about)
    with pytest.raises(InputError, match="does not tell its 'spacing_m'"):
        scan_walks(path)


@pytest.mark.parametrize(("column", "value"), [("region", 1 << 30), ("hour", 24), ("m", 0)])
def test_findings_that_cannot_be_are_refused(tmp_path: Path, seeds: Seeds, column: str, value: object) -> None:
    findings, about = read_findings(seeds.findings)
    changed = findings.with_columns(pl.lit(value).cast(findings.schema[column]).alias(column))
    write_table(changed, tmp_path / "findings.parquet", kind="findings", about=about)
    with pytest.raises(InputError, match=f"'{column}' must be"):
        read_findings(tmp_path / "findings.parquet")


Reader = Callable[[Path, Seeds, Path], object]

READERS: dict[str, tuple[str, Reader]] = {
    "walks of a discovery": ("walks", lambda path, seeds, _: load_walks(path, seeds.roads)),
    "walks that are drawn": ("walks", lambda path, seeds, _: draw_walks(path, seeds.roads)),
    "walks that are split": (
        "walks",
        lambda path, _, __: split_walks(scan_walks(path)[0], path=path, part="train", split=Split()),
    ),
    "findings": ("findings", lambda path, _, __: read_findings(path)),
    "traces at a glance": ("traces", lambda path, _, __: describe_traces(path)),
    "traces that are matched": (
        "traces",
        lambda path, seeds, folder: match_traces(path, seeds.roads, folder / "walks.parquet", workers=1),
    ),
    "any table": (
        "traces",
        lambda path, _, folder: import_traces([path], folder / "traces.parquet", format="table"),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_no_damage_gives_an_error_without_a_type(tmp_path: Path, seeds: Seeds, name: str) -> None:
    kind, read = READERS[name]
    original = getattr(seeds, kind).read_bytes()
    generator = np.random.default_rng(7)
    path = tmp_path / "damaged.parquet"
    refused: list[str] = []
    for _ in range(25):
        data = bytearray(original)
        for position in generator.integers(0, len(data), 4):
            data[position] = generator.integers(0, 256)
        path.write_bytes(data)
        try:
            read(path, seeds, tmp_path)
        except GeoblanketError as error:
            refused.append(str(error))
    assert refused
    assert all(str(path) in message for message in refused)


def test_a_description_is_kept(tmp_path: Path) -> None:
    path = table(tmp_path / "some.parquet", unit="m")
    assert scan_table(path, kind="numbers", schema=SCHEMA)[1] == json.loads('{"kind":"numbers","version":1,"unit":"m"}')
