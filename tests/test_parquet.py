"""Sizes and counts in Parquet files that do not fit the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from geoblanket._tables import scan_table, write_table
from geoblanket._untrusted import check_parquet
from geoblanket.errors import InputError

FRAME = pl.DataFrame({"number": range(1000), "text": [f"t{n % 7}" for n in range(1000)], "empty": [None, 1.5] * 500})


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "snappy", "gzip", "lz4"])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_every_table_that_polars_writes_is_in_order(tmp_path: Path, compression: str, rows: int) -> None:
    nested = FRAME.with_columns(pl.concat_list("number", "number").alias("list"), pl.struct("text").alias("struct"))
    nested.head(rows).write_parquet(tmp_path / "a.parquet", compression=compression, row_group_size=300)  # type: ignore[arg-type]  # one of many words
    check_parquet(tmp_path / "a.parquet")


def test_a_small_file_of_very_many_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    pl.DataFrame({"number": pl.repeat(0, 30_000_000, dtype=pl.Int8, eager=True)}).write_parquet(path)
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match=r"bomb\.parquet: "):
        check_parquet(path)


def test_pages_that_inflate_beyond_reason_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    pl.DataFrame({"text": ["a" * ((1 << 26) + (1 << 20))]}).write_parquet(path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"more than 64 MiB when it is unpacked|damaged"):
        check_parquet(path)


@pytest.mark.parametrize("kept", [0, 3, 11, 50, -1, -9])
def test_a_cut_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.parquet"
    FRAME.write_parquet(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="cannot be read as Parquet: it is damaged"):
        check_parquet(path)


READ = """
import sys, pathlib, polars
from geoblanket._tables import reading_parquet, scan_table
from geoblanket.errors import InputError
path = pathlib.Path(sys.argv[1])
data = path.read_bytes()
for position in range(len(data) - 200, len(data) - 8):
    path.write_bytes(data[:position] + bytes([data[position] ^ 128]) + data[position + 1 :])
    try:
        frame, _ = scan_table(path, kind="numbers", schema={"number": polars.Int64()})
        with reading_parquet(path):
            frame.collect()
    except InputError:
        pass
"""


def test_no_flipped_bit_of_the_description_ends_the_process(tmp_path: Path) -> None:
    write_table(FRAME.select("number"), tmp_path / "a.parquet", kind="numbers", about={})
    assert scan_table(tmp_path / "a.parquet", kind="numbers", schema={"number": pl.Int64()})[1]["version"] == 1
    read = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "a.parquet")], capture_output=True, check=False)
    assert read.returncode == 0, read.stderr[-500:]
