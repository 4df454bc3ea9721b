"""Parquet tables that say what they are: a kind, a version, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from geoblanket._files import atomic_output
from geoblanket.errors import InputError

__all__ = ["lazy_batches", "scan_table", "write_table"]

_KEY = "geoblanket"


def write_table(
    frame: pl.LazyFrame | pl.DataFrame,
    path: str | Path,
    *,
    kind: str,
    about: Mapping[str, Any],
    private: bool = True,
) -> None:
    """Write a table as Parquet, streaming, wholly or not at all.

    Parameters
    ----------
    kind
        What the table is ("traces", "walks"); `scan_table` asks for it.
    about
        How it was made: JSON values, kept in the file.
    private
        Nobody but the user may read it: it holds true locations, or what was found in them.
    """
    text = json.dumps({"kind": kind, "version": 1, **about}, allow_nan=False, sort_keys=True)
    with atomic_output(path, private=private) as temporary:
        # Level 2 takes a third less time than the default and makes traces only 5 % larger.
        frame.lazy().sink_parquet(temporary, compression_level=2, metadata={_KEY: text}, engine="streaming")


def lazy_batches(batches: Iterator[pl.DataFrame], *, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Wrap a generator of frames for `write_table`, which then takes them one by one; it can be read only once."""

    def source(*_: object) -> Iterator[pl.DataFrame]:
        # What Polars would push down (columns, a filter, a limit) does not occur in a plain write.
        return batches

    return register_io_source(source, schema=pl.Schema(schema))


def scan_table(
    path: str | Path, *, kind: str, schema: Mapping[str, pl.DataType]
) -> tuple[pl.LazyFrame, dict[str, Any]]:
    """Open a table written by `write_table`: its rows, lazily, and how it was made."""
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file", path=path)
    try:
        text = pl.read_parquet_metadata(path).get(_KEY)
        found = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet, so it is not a table of {kind}", path=path, hint="Make it again"
        ) from error
    about = json.loads(text) if text is not None else {}
    if about.get("kind") != kind or about.get("version") != 1 or dict(found) != dict(schema):
        raise InputError(
            f"is a Parquet file, but not a table of {kind} written by this version of geoblanket",
            path=path,
            hint="Make it again",
        )
    return pl.scan_parquet(path), about
