"""Where the vehicles of a table of released reports are: an estimate for each report.

Post-processing: it reads released reports and public knowledge only, so that it costs no ε. Vehicles are followed
through all of their reports, across walks and trips.

`compare_with_truth` tells the accuracy of reports and estimates where the true positions are known.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._files import check_output
from geoblanket._frames import AnyFrame, is_path, takes_frames
from geoblanket._geodesy import haversine_m, local_degrees, local_metres
from geoblanket._tables import lazy_batches, reading_parquet, table_batches, write_table
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.bulk import RELEASED_SCHEMA
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.lattice_bulk import RELEASED_CELLS_SCHEMA
from geoblanket.traces.table import scan_traces
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow, smooth
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.released import ReleasedRows, ReleasedTable
from geoblanket.tracking.tracker import plain_model, slots_ahead

__all__ = ["TRACKED_CELLS_SCHEMA", "TRACKED_SCHEMA", "Accuracy", "TrackSummary", "compare_with_truth", "track_table"]

_ROWS_AT_A_TIME: Final = 500_000
_ROWS_IN_MEMORY: Final = 4_000_000
_RADIUS_STEP_M: Final = 10.0
_RADII: Final = 20_000
"""Radii are counted in steps, for their median."""
_TOLERANCE: Final = "60s"
"""A true point is one of the same vehicle, no further away in time."""
_ITERATIONS: Final = 50
_REPORTED: Final = ("reported_lat", "reported_lon")
_ESTIMATED: Final = ("lat", "lon", "radius_m")


def _tracked_schema(schema: dict[str, pl.DataType]) -> dict[str, pl.DataType]:
    reported = {name: f"reported_{name}" for name in ("lat", "lon")}
    estimated = dict.fromkeys(("lat", "lon", "radius_m"), pl.Float64())
    return {reported.get(name, name): kind for name, kind in schema.items()} | estimated


TRACKED_SCHEMA: Final = _tracked_schema(RELEASED_SCHEMA)
TRACKED_CELLS_SCHEMA: Final = _tracked_schema(RELEASED_CELLS_SCHEMA)
"""As `RELEASED_SCHEMA` and `RELEASED_CELLS_SCHEMA`, with the reported location as `reported_lat` and `reported_lon`,
and the estimate as `lat`, `lon` and `radius_m`."""


@dataclass(frozen=True)
class TrackSummary:
    """What was made of a table of reports.

    Examples
    --------
    >>> from geoblanket import load_bundle, track_table
    >>> summary = track_table("released.parquet", "tracked.parquet", bundle=load_bundle("city.bundle"))
    >>> (summary.repeated, summary.impossible, summary.smoothed)
    (0, 0, False)
    """

    reports: int
    vehicles: int
    repeated: int
    """Reports in a slot for which the vehicle had one: they were left out, and have the estimate of the first."""
    impossible: int
    """Reports that no place explains, by the bundle and the model: they were left out."""
    median_radius_m: float
    """Half of all circles that hold a vehicle with a probability of 90 % are at most as large, metres, to 10 m."""
    interval_s: float
    ahead_s: float
    """How long after each report the estimate holds."""
    smoothed: bool
    """Whether later reports of the vehicle were used as well."""
    model: str
    """What the motion model was learned from."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def __repr__(self) -> str:
        seen = counted(self.reports, "report"), counted(self.vehicles, "vehicle")
        return short_repr(self, *seen, f"90 % within {self.median_radius_m:,.0f} m in the median")


@checked
@takes_frames(released=None)
def track_table(
    released: str | Path | AnyFrame,
    out: str | Path,
    *,
    bundle: Bundle,
    model: MotionModel | None = None,
    smoothed: bool = False,
    ahead_s: float = 0.0,
    fences: Fences = NO_FENCES,
    progress: Progress = silent,
) -> TrackSummary:
    """Estimate where the vehicle was at each report of a table, and write the table, wholly or not at all.

    Memory is bounded, whatever the number of reports; that of one vehicle must fit.

    Parameters
    ----------
    released
        A table written by `geoblanket perturb`, or a data frame with its columns. A frame does not say which bundle
        made it: its reports must lie at the places, or the cells, of the one given.
    out
        The table to write: the columns of `released`, of which `lat` and `lon` become `reported_lat` and
        `reported_lon`, and the estimate `lat`, `lon` with its `radius_m`.
    bundle
        What made the reports.
    model
        How vehicles move; None: near places are more probable than far ones, and no more is known.
    smoothed
        Whether an estimate also uses the reports after it: for trips that are over.
    ahead_s
        Estimate where the vehicle is so many seconds after each report; a whole number of intervals.
    fences
        Of the vehicles, as `Tracker` has them.

    Raises
    ------
    InputError
        If the table cannot be read.
    MismatchError
        If another bundle made it, or the model is of another city.

    Examples
    --------
    >>> from geoblanket import MotionModel, load_bundle, track_table
    >>> model = MotionModel.load("city.model")
    >>> summary = track_table("released.parquet", "tracked.parquet", bundle=load_bundle("city.bundle"), model=model)
    >>> summary.model
    'from the road network alone'
    """
    check_output(out)
    if smoothed and ahead_s:
        raise ParameterError("To look ahead and to use later reports contradict each other. Choose one.")
    table = ReleasedTable(released, bundle)
    if is_path(released) and Path(out).exists() and Path(out).samefile(released):
        raise ParameterError(f"{released} is both read and written. Choose another name for the result.")
    used = plain_model(bundle) if model is None else model
    beliefs = BeliefFilter.of(bundle, used, fences=fences)
    run = _Run(table, beliefs, smoothed=smoothed, ahead_s=ahead_s, progress=progress)
    described = {
        "bundle": bundle.sha256,
        "model": used.identity,
        "order": used.memory,
        "learned": used.in_words(),
        "smoothed": smoothed,
        "ahead_s": ahead_s,
        "interval_s": run.interval_s,
    }
    with _scratch(table.rows, Path(out)) as estimates:
        run.estimate(estimates)
        # This thread only waits: Python hands signals to the main thread, which must not be inside Polars for minutes.
        with ThreadPoolExecutor(1) as writer:
            rows = lazy_batches(run.tracked(), schema=TRACKED_CELLS_SCHEMA if table.cells else TRACKED_SCHEMA)
            kind = "tracked cells" if table.cells else "tracked locations"
            written = writer.submit(write_table, rows, out, kind=kind, about=described, private=False, points=True)
            try:
                written.result()
            finally:
                run.stopped = True
    return run.summary()


@contextmanager
def _scratch(rows: int, out: Path) -> Iterator[Floats]:
    """Give room for three numbers of each row, shape (rows, 3): in memory, or if it is much, beside the result."""
    if rows <= _ROWS_IN_MEMORY:
        yield np.empty((rows, 3))
        return
    try:
        with tempfile.TemporaryFile(dir=out.parent, prefix=f".{out.stem}.", suffix=".partial") as file:
            # Room that turns out to be missing later would kill the process.
            os.posix_fallocate(file.fileno(), 0, rows * 3 * 8)
            yield np.memmap(file, np.float64, "r+", shape=(rows, 3))
    except OSError as error:
        raise OutputError(f"{out}: there is no room for it ({error.strerror or error}).") from error


class _Run:
    """One table."""

    def __init__(
        self, table: ReleasedTable, beliefs: BeliefFilter, *, smoothed: bool, ahead_s: float, progress: Progress
    ) -> None:
        self.stopped = False
        self.interval_s = beliefs.interval_ms / 1000
        self._table, self._filter, self._progress = table, beliefs, progress
        self._smoothed, self._ahead_s = smoothed, ahead_s
        self._steps_ahead = slots_ahead(ahead_s, beliefs) * beliefs.steps_per_slot
        self._estimator = Estimator(beliefs.model)
        self._estimates: Floats = np.empty((0, 3))
        self._done = self._repeated = self._impossible = 0
        self._radii = np.zeros(_RADII, np.int64)

    def estimate(self, estimates: Floats) -> None:
        """Fill in latitude, longitude and radius for each row of the table, shape (rows, 3)."""
        self._estimates = estimates
        for part in self._table.parts(outputs=self._filter.observations.outputs):
            self._follow(part)

    def _follow(self, part: ReleasedRows) -> None:
        sequences, order = Sequences.of(part.slot, part.output, part.vehicle)
        if part.follows is not None and part.time_ms is not None:
            sequences = Sequences(
                sequences.slot, sequences.output, sequences.starts, part.follows[order], part.time_ms[order]
            )
        rows = part.row[order]

        def seen(positions: Positions, beliefs: Singles) -> None:
            if self._steps_ahead:
                beliefs = self._filter.predicted(beliefs, self._steps_ahead)
            found = self._estimator.estimates(self._filter.places(beliefs))
            self._estimates[rows[positions]] = np.column_stack([found.lat, found.lon, found.radius_m])
            self._done += len(positions)
            self._progress("tracking", self._done, self._table.rows)

        self._impossible += (smooth if self._smoothed else follow)(self._filter, sequences, seen)
        self._repeated += len(part.row) - len(order)
        if len(order) < len(part.row):
            first = _first_of_slot(part)
            self._estimates[part.row] = self._estimates[part.row[first]]
        radii = np.ceil(self._estimates[part.row, 2] / _RADIUS_STEP_M).clip(max=_RADII - 1).astype(np.int64)
        self._radii += np.bincount(radii, minlength=_RADII)

    def tracked(self) -> Iterator[pl.DataFrame]:
        """Yield the table with its estimates."""
        done = 0
        for batch in table_batches(self._table.frame, path=self._table.path, rows=_ROWS_AT_A_TIME):
            if self.stopped:
                return
            if done + batch.height > len(self._estimates):
                raise InputError("was changed while it was read", path=self._table.path, hint="Try again")
            lat, lon, radius_m = self._estimates[done : done + batch.height].T
            done += batch.height
            yield batch.rename({"lat": "reported_lat", "lon": "reported_lon"}).with_columns(
                lat=pl.Series(lat), lon=pl.Series(lon), radius_m=pl.Series(radius_m)
            )

    def summary(self) -> TrackSummary:
        at_most = np.cumsum(self._radii)
        return TrackSummary(
            reports=self._table.rows,
            vehicles=self._table.vehicles,
            repeated=self._repeated,
            impossible=self._impossible,
            median_radius_m=float(np.searchsorted(at_most, at_most[-1] / 2) * _RADIUS_STEP_M),
            interval_s=self.interval_s,
            ahead_s=self._ahead_s,
            smoothed=self._smoothed,
            model=self._filter.model.in_words(),
        )


def _first_of_slot(part: ReleasedRows) -> Ints:
    """Return for each report the position of the first one of its vehicle and slot, shape (n,)."""
    order = np.lexsort((part.slot, part.vehicle))
    vehicle, slot = part.vehicle[order], part.slot[order]
    begins = np.append(True, (vehicle[1:] != vehicle[:-1]) | (slot[1:] != slot[:-1]))
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    return first


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
