"""GeoParquet 1.1: geometries in a Parquet file, and what the file says of them, for GeoPandas, QGIS, DuckDB, ...

Geometries are well-known binary (WKB) with longitude before latitude, degrees WGS84 (OGC:CRS84, the default of the
format).
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Floats, Ints

__all__ = ["GEOMETRY", "geo_metadata", "with_points", "wkb_lines", "wkb_points"]

GEOMETRY: Final = "geometry"
"""The name of the column."""

_POINT: Final = np.dtype([("order", "u1"), ("kind", "<u4"), ("lon", "<f8"), ("lat", "<f8")])
_LITTLE_ENDIAN: Final = 1
_KINDS: Final = {"Point": 1, "LineString": 2}


def geo_metadata(kind: Literal["Point", "LineString"], bbox: list[float] | None = None) -> dict[str, str]:
    """Return what a Parquet file says of its geometries.

    Parameters
    ----------
    kind
        What all of them are.
    bbox
        West, south, east and north of all of them, degrees, if known.
    """
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": [kind]} | ({} if bbox is None else {"bbox": bbox})
    return {"geo": json.dumps({"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})}


def wkb_points(lon: npt.ArrayLike, lat: npt.ArrayLike) -> pl.Series:
    """Return points, degrees, as geometries."""
    lon = np.asarray(lon, np.float64)
    points = np.empty(lon.shape, _POINT)
    points["order"], points["kind"], points["lon"], points["lat"] = _LITTLE_ENDIAN, _KINDS["Point"], lon, lat
    return pl.Series(GEOMETRY, points.view(f"V{_POINT.itemsize}").tolist(), pl.Binary)


def wkb_lines(offsets: Ints, lon: Floats, lat: Floats) -> pl.Series:
    """Return lines as geometries.

    Parameters
    ----------
    offsets
        Line n has the points from `offsets[n]` to before `offsets[n + 1]`.
    lon, lat
        Of all points, degrees.
    """
    points = np.column_stack([lon, lat]).astype("<f8")
    lines = (points[start:end] for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    header = struct.Struct("<BII")
    return pl.Series(
        GEOMETRY,
        [header.pack(_LITTLE_ENDIAN, _KINDS["LineString"], len(line)) + line.tobytes() for line in lines],
        pl.Binary,
    )


def with_points(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the points of the columns `lon` and `lat` as geometries, a batch at a time."""
    points = pl.struct("lon", "lat").map_batches(
        lambda both: wkb_points(both.struct.field("lon").to_numpy(), both.struct.field("lat").to_numpy()),
        return_dtype=pl.Binary(),
        is_elementwise=True,
    )
    return frame.with_columns(points.alias(GEOMETRY))
