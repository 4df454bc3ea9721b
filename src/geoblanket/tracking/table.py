"""Track a table of released reports: an estimate of the vehicle's position at each report.

This is post-processing: it reads only released reports and public knowledge, so it costs no ε. A vehicle is followed
through all of its reports, across walks and trips.

`compare_with_truth` measures the accuracy of reports and estimates where the true positions are known.
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
from geoblanket.release.bulk import RELEASED_CELLS_SCHEMA, RELEASED_SCHEMA
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.traces.table import scan_traces
from geoblanket.tracking.estimate import Estimator, geometric_median
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow, smooth
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.released import ReleasedRows, ReleasedTable
from geoblanket.tracking.tracker import plain_model, slots_ahead

_ROWS_AT_A_TIME: Final = 500_000
_ROWS_IN_MEMORY: Final = 4_000_000
_RADIUS_STEP_M: Final = 10.0
_RADII: Final = 20_000
"""Radii are counted in bins of 10 m, for a median in bounded memory."""
_TOLERANCE: Final = "60s"
"""The true position of a report is the nearest point in time of the same vehicle, within this."""
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
    """Counts of a tracked table.

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
    """Further reports of a vehicle in the same slot: they were left out, and have the estimate of the first."""
    impossible: int
    """Reports that no place explains: they were left out."""
    median_radius_m: float
    """Median radius of the circles that hold a vehicle with a probability of 90 %, metres, to 10 m."""
    interval_s: float
    ahead_s: float
    """Time from a report to the moment that its estimate is for, seconds."""
    smoothed: bool
    """Whether estimates also use later reports of the vehicle."""
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
    """Estimate where the vehicle was at each report of a table, and write the table, completely or not at all.

    Memory is bounded, whatever the number of reports; the reports of one vehicle must fit.

    Parameters
    ----------
    released
        A table written by `geoblanket perturb`, or a data frame with its columns. A frame does not name its bundle:
        its reports must lie at the places or cells of `bundle`.
    out
        The table to write: the columns of `released`, with `lat` and `lon` renamed to `reported_lat` and
        `reported_lon`, and the estimate as `lat`, `lon` and `radius_m`.
    bundle
        The bundle that made the reports.
    model
        How vehicles move; None: a model by distance, in which near places are more probable than far ones.
    smoothed
        Whether estimates also use later reports: for trips that are over.
    ahead_s
        Estimate where the vehicle is this long after each report, seconds; a whole number of intervals.
    fences
        The fences of the vehicles; see `Tracker`.

    Raises
    ------
    InputError
        If the table cannot be read.
    MismatchError
        If another bundle made the table, or the model is for another city.

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
        raise ParameterError(
            "Looking ahead (ahead_s) and using later reports (smoothed) exclude each other. Choose one."
        )
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
    """Yield an array of shape (rows, 3): in memory, or, if it is large, in a file beside the result."""
    if rows <= _ROWS_IN_MEMORY:
        yield np.empty((rows, 3))
        return
    try:
        with tempfile.TemporaryFile(dir=out.parent, prefix=f".{out.stem}.", suffix=".partial") as file:
            # The space is reserved now: a full disk at a later write to the map would kill the process.
            os.posix_fallocate(file.fileno(), 0, rows * 3 * 8)
            yield np.memmap(file, np.float64, "r+", shape=(rows, 3))
    except OSError as error:
        raise OutputError(f"{out}: there is no room for it ({error.strerror or error}).") from error


class _Run:
    """Tracks one table."""

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
    """Mean distances from the true locations."""

    compared: int
    """Number of reports whose true location is known."""
    without_reports_m: float
    """Mean error of the best fixed point, metres: without any report a recipient would be this far off."""
    reports_m: float
    """Mean error of the reported locations, metres."""
    tracked_m: float
    """Mean error of the estimates, metres."""
    within_radius: float
    """Share of the circles that hold the vehicle; it should be 90 %."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def compare_with_truth(tracked: str | Path, traces: str | Path) -> Accuracy:
    """Compare a table written by `track_table` with true locations.

    Parameters
    ----------
    tracked
        The table of estimates.
    traces
        The true positions: a table written by `geoblanket traces import`.

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
        raise MismatchError(
            "No report has a point of its vehicle and time in these traces. Give the traces that were perturbed."
        )
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
    """Return the geometric median of points, degrees."""
    origin = {"origin_lat": float(np.median(lat)), "origin_lon": float(np.median(lon))}
    east_m, north_m = geometric_median(np.stack(local_metres(lat, lon, **origin), axis=-1), nearest=1.0)
    middle_lat, middle_lon = local_degrees(east_m, north_m, **origin)
    return float(middle_lat), float(middle_lon)
