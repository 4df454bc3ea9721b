"""How far off reports and estimates are, for who has the truth: to test a fleet's settings before they are used."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m, local_degrees, local_metres
from geoblanket._tables import reading_parquet
from geoblanket.errors import MismatchError
from geoblanket.traces.table import scan_traces

__all__ = ["Accuracy", "compare_with_truth"]

_TOLERANCE: Final = "60s"
"""A true point is one of the same vehicle, no further away in time."""
_ITERATIONS: Final = 50
_REPORTED: Final = ("reported_lat", "reported_lon")
_ESTIMATED: Final = ("lat", "lon", "radius_m")


@dataclass(frozen=True)
class Accuracy:
    """Mean distances from the truth."""

    compared: int
    """Reports for which the true location is known."""
    without_reports_m: float
    """Of the one point that is nearest to all true locations on average, metres: what no report at all would do."""
    reports_m: float
    """Of the reported locations, metres."""
    tracked_m: float
    """Of the estimates, metres."""
    within_radius: float
    """Share of the circles that hold the vehicle: 90 % is what they promise."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def compare_with_truth(tracked: str | Path, traces: str | Path) -> Accuracy:
    """Compare a table written by `track_table` with true locations.

    Parameters
    ----------
    tracked
        The estimates, with the reports that they were made from.
    traces
        A table written by `geoblanket traces import`: where the vehicles truly were.

    Raises
    ------
    MismatchError
        If the traces have no point of the same vehicles at the same times.
    """
    with reading_parquet(tracked):
        reports = pl.read_parquet(tracked, columns=["vehicle", "time", *_REPORTED, *_ESTIMATED]).sort("time")
    truth = scan_traces(traces).select("vehicle", "time", true_lat="lat", true_lon="lon").sort("time")
    with reading_parquet(traces):
        points = truth.collect()
    known = reports.join_asof(
        points, on="time", by="vehicle", strategy="nearest", tolerance=_TOLERANCE, check_sortedness=False
    ).drop_nulls()
    if known.is_empty():
        raise MismatchError("No report is of a vehicle and a time in these traces. Give those that were perturbed.")
    lat, lon = (known[name].to_numpy() for name in ("true_lat", "true_lon"))
    off = [haversine_m(known[f"{kind}lat"].to_numpy(), known[f"{kind}lon"].to_numpy(), lat, lon)
           for kind in ("reported_", "")]  # fmt: skip
    return Accuracy(
        compared=known.height,
        without_reports_m=float(haversine_m(*_middle(lat, lon), lat, lon).mean()),
        reports_m=float(off[0].mean()),
        tracked_m=float(off[1].mean()),
        within_radius=float(np.mean(off[1] <= known["radius_m"].to_numpy())),
    )


def _middle(lat: Floats, lon: Floats) -> tuple[float, float]:
    """Return the point that is nearest to some on average, degrees (Weiszfeld's iteration)."""
    origin = {"origin_lat": float(np.median(lat)), "origin_lon": float(np.median(lon))}
    points = np.stack(local_metres(lat, lon, **origin), axis=-1)
    middle = points.mean(axis=0)
    for _ in range(_ITERATIONS):
        pull = 1 / np.maximum(np.hypot(*(points - middle).T), 1.0)
        middle = pull @ points / pull.sum()
    at_lat, at_lon = local_degrees(middle[0], middle[1], **origin)
    return float(at_lat), float(at_lon)
