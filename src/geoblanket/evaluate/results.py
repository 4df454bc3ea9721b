"""Results: one tidy table, a row for each measure of a method in a setting and zone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._files import atomic_output
from geoblanket._tables import reading_parquet, scan_table, write_table

__all__ = ["ALL_ZONES", "RESULTS_SCHEMA", "SETTING_COLUMNS", "WHOLE_CITY", "read_results", "write_results"]

RESULTS_SCHEMA: dict[str, pl.DataType] = {
    "experiment": pl.String(),
    "city": pl.String(),
    "zone": pl.Int32(),
    "method": pl.String(),
    "epsilon": pl.Float64(),
    "eta_km": pl.Float64(),
    "history_weight": pl.Float64(),
    "spacing_m": pl.Float64(),
    "interval_s": pl.Float64(),
    "max_places": pl.Int32(),
    "loss_case": pl.String(),
    "variant": pl.String(),
    "measure": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "unit": pl.String(),
}
"""`zone` is −1 for all zones together, and −2 for the whole city without zones, where the promise is another and
`max_places` is null; `history_weight` is what the place at t − 1 counts, infinite for a past that is known; `variant`
is what else a setting is about, mostly nothing; `low` and `high` bound the 95 % confidence interval, null where there
is none."""

SETTING_COLUMNS = tuple(list(RESULTS_SCHEMA)[: list(RESULTS_SCHEMA).index("measure")])
"""What identifies a method in a setting and zone."""

ALL_ZONES = -1
WHOLE_CITY = -2

_KIND = "results"
_TABLE, _TEXT = "results.parquet", "results.csv"


def write_results(frame: pl.DataFrame, folder: str | Path, *, about: Mapping[str, Any]) -> Path:
    """Write results as `results.parquet` and `results.csv`; return the former.

    Parameters
    ----------
    about
        How they were made, as JSON values.
    """
    folder = Path(folder)
    write_table(frame, folder / _TABLE, kind=_KIND, about=about, private=False)
    with atomic_output(folder / _TEXT) as temporary:
        frame.write_csv(temporary)
    return folder / _TABLE


@checked
def read_results(folder: str | Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read the results in a folder, and how they were made."""
    path = Path(folder) / _TABLE
    frame, about = scan_table(path, kind=_KIND, schema=RESULTS_SCHEMA)
    with reading_parquet(path):
        return frame.collect(), about
