"""Traces or walks perturbed in bulk by a lattice: no roads to match to, one report for each vehicle and slot of time.

Of the points of a vehicle in one slot the first is reported; where trips of a vehicle overlap, those of the first one.
Points inside a fence count as its centre, and a report at rest is held, also from one trip of a vehicle to its next.
What is kept of what was done takes some bytes for each trip of a vehicle.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Ints
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._files import check_output
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._tables import lazy_batches, reading_parquet, table_batches, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mobility.walks import scan_walks, walk_batches, write_walks
from geoblanket.release._opening import check_policy
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.source import cell_centers_e7
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.traces.table import check_points, scan_traces, write_traces

__all__ = ["RELEASED_CELLS_SCHEMA", "LatticeSummary", "perturb_points", "perturb_walk_points"]

RELEASED_CELLS_SCHEMA: dict[str, pl.DataType] = {
    "vehicle": pl.String(),
    "trip": pl.Int64(),
    "slot": pl.Int64(),
    "time": pl.Datetime("us", "UTC"),
    "cell": pl.Int32(),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
}
"""One row per report, in the order of the traces. `slot` numbers the intervals of the bundle's clock since 1970, and
`time` is the start of the slot; `cell` is the reported one, `lat` and `lon` its centre. Vehicles, trips and slots are
not protected. The file also has `lat` and `lon` as `geometry` (GeoParquet), which is not read again."""

_ROWS_AT_A_TIME: Final = 500_000
_MICRO: Final = 10**6
_US_PER_MS: Final = 1000
_MS_PER_HOUR: Final = 3_600_000
_COLUMNS: Final = ("vehicle", "trip", "time", "lat", "lon")


@dataclass(frozen=True)
class LatticeSummary:
    """What was released by a lattice, and what it cost."""

    points: int
    """Points that were read."""
    reports: int
    """Reports that were made: one for each vehicle and slot."""
    points_outside: int
    """Reports from outside the frame, which count as from the nearest point of its edge."""
    points_exchanged: int
    """Of those, reports that would be inside if latitude and longitude were exchanged."""
    vehicles: int
    interval_s: float
    epsilon_per_report: float
    """What a draw costs, per km."""
    draws: int
    """Reports that were drawn; the others were held, at no cost."""
    epsilon_per_hour: float
    """What the reports of an hour on the road add up to, per km."""
    most_draws: int
    """Draws of the vehicle that made the most of them."""
    epsilon_spent: float
    """What the reports of that vehicle add up to at most, per km."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def __repr__(self) -> str:
        made = counted(self.reports, "report"), counted(self.vehicles, "vehicle"), f"every {self.interval_s:g} s"
        return short_repr(
            self, *made, f"ε = {self.epsilon_per_report:g} per km each", f"{self.epsilon_per_hour:g} an hour"
        )


@checked
@takes_frames(traces=write_traces)
def perturb_points(
    traces: str | Path | AnyFrame,
    out: str | Path,
    *,
    bundle: Bundle,
    fences: Fences = NO_FENCES,
    policy: Policy = DEFAULT_POLICY,
    progress: Progress = silent,
) -> LatticeSummary:
    """Perturb traces by the lattice of a bundle and write the reports, wholly or not at all.

    Parameters
    ----------
    traces
        A table written by `geoblanket traces import`, or a data frame with its columns (`TRACES_SCHEMA`).
    out
        The table to write (`RELEASED_CELLS_SCHEMA`).
    bundle
        With a lattice.
    fences
        Positions inside one count as its centre, whichever vehicle is there.
    policy
        The least that the bundle must promise.

    Raises
    ------
    PolicyError
        If the bundle promises less than the policy asks for.
    InputError
        If the traces cannot be read.
    RandomnessError
        If the operating system has no randomness.
    """
    check_output(out)
    frame = scan_traces(traces)

    def points() -> Iterator[pl.DataFrame]:
        for batch in table_batches(frame.select(_COLUMNS), path=traces, rows=_ROWS_AT_A_TIME):
            check_points(batch, path=traces)
            yield batch

    run = _Run(bundle, Path(traces), fences, progress)
    return _perturbed(frame, points, run, Path(out), bundle=bundle, policy=policy)


@checked
@takes_frames(walks=write_walks)
def perturb_walk_points(
    walks: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    bundle: Bundle,
    fences: Fences = NO_FENCES,
    policy: Policy = DEFAULT_POLICY,
    progress: Progress = silent,
) -> LatticeSummary:
    """Perturb the places of walks by the lattice of a bundle; see `perturb_points`.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`, or `Walks` of a data frame.
    roads
        The roads that it was matched to, which say where places are.
    """
    check_output(out)
    frame, about = scan_walks(walks)
    graph = RoadGraph.load(roads)
    if about.get("roads") != graph.identity:
        raise MismatchError(f"{walks} was matched to other roads. Give the roads that it was matched to.")
    places = choose_places(graph, spacing_m=about["spacing_m"])

    def points() -> Iterator[pl.DataFrame]:
        rows = frame.select("walk", "step", "vehicle", "trip", "time", "place")
        for batch in walk_batches(rows, path=walks, place_count=len(places)):
            place = batch["place"].to_numpy()
            located = batch.select("vehicle", "trip", "time").with_columns(
                lat=pl.Series(places.lat[place], dtype=pl.Float64), lon=pl.Series(places.lon[place], dtype=pl.Float64)
            )
            check_points(located, path=walks)
            yield located

    run = _Run(bundle, Path(walks), fences, progress)
    return _perturbed(frame, points, run, Path(out), bundle=bundle, policy=policy)


def _perturbed(
    frame: pl.LazyFrame,
    points: Callable[[], Iterable[pl.DataFrame]],
    run: _Run,
    out: Path,
    *,
    bundle: Bundle,
    policy: Policy,
) -> LatticeSummary:
    path = run.path
    if out.exists() and out.samefile(path):
        raise ParameterError(f"{path} is both read and written. Choose another name for the result.")
    check_policy(policy, bundle, bundle)
    with reading_parquet(path):
        run.total = int(frame.select(pl.len()).collect().item())
    if not run.total:
        raise InputError("has no points", path=path)
    described = {
        "bundle": bundle.sha256,
        "domain": bundle.domain,
        "disclosed": bundle.disclosed,
        "interval_s": bundle.needed_clock().interval_s,
        "epsilon_per_report": bundle.costs.other / _MICRO,
    }
    # This thread only waits: Python hands signals to the main thread, which must not be inside Polars for minutes.
    with ThreadPoolExecutor(1) as writer:
        reports = lazy_batches(run.reports(points()), schema=RELEASED_CELLS_SCHEMA)
        written = writer.submit(
            write_table, reports, out, kind="released cells", about=described, private=False, points=True
        )
        try:
            written.result()
        finally:
            run.stopped = True
    return run.summary()


class _Vehicle:
    """What was done for one vehicle: stretches of slots with reports, and the last draw."""

    def __init__(self) -> None:
        self.reports = self.draws = 0
        self._stretches = array("q")
        """First and last slot of each stretch, ascending."""
        self._slot, self._cell = -1, -1
        """The last report."""
        self._x, self._y = 0, 0
        """Where it was drawn."""

    def free(self, slots: Ints) -> Bools:
        """Return which of some ascending slots had no report, and count all of them as reported now."""
        first, last = int(slots[0]), int(slots[-1])
        # Stretches at the indices from `start` to `end` touch this one.
        start, end = bisect_left(self._stretches, first), bisect_right(self._stretches, last)
        free = np.ones(len(slots), np.bool_)
        before = start - start % 2
        for index in range(before, min(end + end % 2, len(self._stretches)), 2):
            free &= (slots < self._stretches[index]) | (slots > self._stretches[index + 1])
        if start % 2:
            first = self._stretches[start - 1]
        if end % 2:
            last = self._stretches[end]
        self._stretches[before : end + end % 2] = array("q", (first, last))
        self.reports += int(np.count_nonzero(free))
        return free

    def hold(self, slots: Ints, x: Ints, y: Ints, cells: Ints, hold_units: int) -> None:
        """Replace the cells of reports at rest by the one that is held; the slots ascend."""
        squared, held_x, held_y = hold_units * hold_units, self._x, self._y
        if self._slot >= slots[0]:
            self._cell = -1  # a trip before one that was reported: there is nothing to hold
        cell = self._cell
        for index, (at_x, at_y, drawn) in enumerate(zip(x.tolist(), y.tolist(), cells.tolist(), strict=True)):
            if cell >= 0 and (at_x - held_x) ** 2 + (at_y - held_y) ** 2 <= squared:
                cells[index] = cell
            else:
                cell, held_x, held_y = drawn, at_x, at_y
                self.draws += 1
        self._slot, self._cell, self._x, self._y = int(slots[-1]), cell, held_x, held_y


class _Run:
    """One pass over points."""

    def __init__(self, bundle: Bundle, path: Path, fences: Fences, progress: Progress) -> None:
        if bundle.lattice is None:
            raise MismatchError("The bundle has no lattice: its zones need roads to match to.")
        self.stopped = False
        self.path, self.total = path, 0
        self._lattice, self._fences, self._progress = bundle.lattice, fences, progress
        self._interval_ms = bundle.needed_clock().interval_ms
        self._costs = bundle.costs
        self._vehicles: dict[str, _Vehicle] = {}
        self._outside = self._exchanged = 0

    def reports(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the reports of all points."""
        done, last = 0, (-1, 0)
        for batch in batches:
            if self.stopped:
                return
            if batch.is_empty():
                continue
            last = self._check_order(batch, last)
            slot = batch["time"].to_physical().to_numpy() // (_US_PER_MS * self._interval_ms)
            chosen = np.flatnonzero(self._is_first(batch["trip"].to_numpy(), slot))
            rows = batch[chosen].with_columns(slot=pl.Series(slot[chosen], dtype=pl.Int64))
            kept = self._kept(rows)
            done += batch.height
            self._progress("perturbing", done, self.total)
            if kept.any():
                yield self._drawn(rows.filter(pl.Series(kept)))

    def _check_order(self, batch: pl.DataFrame, last: tuple[int, int]) -> tuple[int, int]:
        """Raise InputError unless trips, and times within them, ascend; return the last of both."""
        trip, time = batch["trip"].to_numpy(), batch["time"].to_physical().to_numpy()
        trips, times = np.append(last[0], trip), np.append(last[1], time)
        same = trips[1:] == trips[:-1]
        if (trips[1:] < trips[:-1]).any() or (same & (times[1:] < times[:-1])).any():
            raise InputError("its points are not in order of trips and times", path=self.path, hint="Import it again")
        return int(trip[-1]), int(time[-1])

    @staticmethod
    def _is_first(trip: Ints, slot: Ints) -> Bools:
        """Return which points are the first of their trip in a slot, as far as this batch goes."""
        first = np.ones(len(trip), np.bool_)
        first[1:] = (trip[1:] != trip[:-1]) | (slot[1:] != slot[:-1])
        return first

    def _trips(self, rows: pl.DataFrame) -> Iterator[tuple[_Vehicle, slice]]:
        """Yield the rows of each trip, and its vehicle."""
        trip = rows["trip"].to_numpy()
        starts = np.flatnonzero(np.append(True, trip[1:] != trip[:-1]))
        names = rows["vehicle"].gather(starts).to_list()
        for name, start, end in zip(names, starts.tolist(), [*starts[1:].tolist(), len(trip)], strict=True):
            yield self._vehicles.setdefault(name, _Vehicle()), slice(start, end)

    def _kept(self, rows: pl.DataFrame) -> Bools:
        """Return which points are reported."""
        slot = rows["slot"].to_numpy()
        kept = np.ones(len(slot), np.bool_)
        for vehicle, part in self._trips(rows):
            kept[part] = vehicle.free(slot[part])
        return kept

    def _drawn(self, rows: pl.DataFrame) -> pl.DataFrame:
        lat, lon = rows["lat"].to_numpy(), rows["lon"].to_numpy()
        plane = self._lattice.spec.plane
        outside = ~plane.holds_many(lat, lon)
        self._outside += int(np.count_nonzero(outside))
        self._exchanged += int(np.count_nonzero(plane.holds_many(lon[outside], lat[outside])))
        lat_e7, lon_e7 = (np.rint(degrees * 1e7).astype(np.int64) for degrees in (lat, lon))
        x, y = plane.units_e7(*self._fences.apply_many_e7(lat_e7, lon_e7))
        cells = self._lattice.draw_many_at(x, y)
        hold_units, slot = self._lattice.hold_mm // plane.unit_mm, rows["slot"].to_numpy()
        for vehicle, part in self._trips(rows):
            if hold_units:
                vehicle.hold(slot[part], x[part], y[part], cells[part], hold_units)
            else:
                vehicle.draws += part.stop - part.start
        center_lat, center_lon = cell_centers_e7(self._lattice, cells).T / 1e7
        start_us = rows["slot"] * (self._interval_ms * _US_PER_MS)
        return rows.select("vehicle", "trip", "slot").with_columns(
            time=start_us.cast(pl.Datetime("us", "UTC")),
            cell=pl.Series(cells, dtype=pl.Int32),
            lat=pl.Series(center_lat),
            lon=pl.Series(center_lon),
        )

    def summary(self) -> LatticeSummary:
        cost = self._costs.other / _MICRO
        most_draws = max(vehicle.draws for vehicle in self._vehicles.values())
        return LatticeSummary(
            points=self.total,
            reports=sum(vehicle.reports for vehicle in self._vehicles.values()),
            points_outside=self._outside,
            points_exchanged=self._exchanged,
            vehicles=len(self._vehicles),
            interval_s=self._interval_ms / 1000,
            epsilon_per_report=cost,
            draws=sum(vehicle.draws for vehicle in self._vehicles.values()),
            epsilon_per_hour=cost * _MS_PER_HOUR / self._interval_ms,
            most_draws=most_draws,
            epsilon_spent=cost * most_draws,
        )
