"""Traces or walks perturbed in bulk by a lattice: no roads to match to, one report for each vehicle and slot of time.

Of the points of a vehicle in one slot the first is reported; where trips of a vehicle overlap, those of the first one.
Anchors are drawn for each vehicle and period that occurs,
and forgotten at the end. What is kept of what was done takes some bytes for each trip and each hour of a vehicle.
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
from geoblanket._files import check_output
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._progress import Progress, silent
from geoblanket._repr import counted, short_repr
from geoblanket._tables import lazy_batches, reading_parquet, table_batches, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.lattice.anchor import Shift
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mobility.walk_batches import walk_batches
from geoblanket.mobility.walks import scan_walks, write_walks
from geoblanket.release._opening import check_policy
from geoblanket.release.anchoring import Anchoring
from geoblanket.release.lattice_source import cell_centers_e7
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
    """What a report costs, per km."""
    anchor_period_s: int | None
    """How long an anchor stays; None: there is none, and reports at rest add up as those on the road."""
    epsilon_per_period: float | None
    """What a period at one place costs, however many reports, per km."""
    periods: int
    """Periods of vehicles that were begun, an anchor for each."""
    epsilon_per_hour: float
    """What the reports of an hour on the road add up to, per km."""
    most_reports: int
    """Reports of the vehicle that made the most of them."""
    epsilon_spent: float
    """What the reports of that vehicle add up to at most, per km."""
    anchor_epsilon_spent: float | None
    """What its periods would add up to at one place each, per km."""

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

    return _perturbed(frame, points, Path(traces), Path(out), bundle=bundle, policy=policy, progress=progress)


@checked
@takes_frames(walks=write_walks)
def perturb_walk_points(
    walks: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    bundle: Bundle,
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

    return _perturbed(frame, points, Path(walks), Path(out), bundle=bundle, policy=policy, progress=progress)


def _perturbed(
    frame: pl.LazyFrame,
    points: Callable[[], Iterable[pl.DataFrame]],
    path: Path,
    out: Path,
    *,
    bundle: Bundle,
    policy: Policy,
    progress: Progress,
) -> LatticeSummary:
    if out.exists() and out.samefile(path):
        raise ParameterError(f"{path} is both read and written. Choose another name for the result.")
    if bundle.lattice is None:
        raise MismatchError("The bundle has no lattice: its zones need roads to match to.")
    check_policy(policy, bundle, bundle)
    with reading_parquet(path):
        total = int(frame.select(pl.len()).collect().item())
    if not total:
        raise InputError("has no points", path=path)
    run = _Run(bundle, bundle.lattice, path, total, progress)
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
    """What was done for one vehicle: stretches of slots with reports, and the shifts of periods."""

    def __init__(self) -> None:
        self.reports = 0
        self._stretches = array("q")
        """First and last slot of each stretch, ascending."""
        self.periods = array("q")
        self._shifts = array("q")

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

    def shift(self, period: int, draw: Callable[[], Shift]) -> Shift:
        """Return the shift of a period, which is drawn the first time."""
        index = bisect_left(self.periods, period)
        if index == len(self.periods) or self.periods[index] != period:
            east, north = draw()
            self.periods.insert(index, period)
            self._shifts.insert(index, east << 31 | north)
        return divmod(self._shifts[index], 1 << 31)


class _Run:
    """One pass over points."""

    def __init__(self, bundle: Bundle, lattice: Lattice, path: Path, total: int, progress: Progress) -> None:
        self.stopped = False
        tables = ReleaseTables.of(bundle)
        self._lattice, self._path, self._total, self._progress = lattice, path, total, progress
        self._interval_ms = bundle.needed_clock().interval_ms
        self._costs = bundle.costs
        self._anchoring = None
        if lattice.anchor is not None:
            self._anchoring = Anchoring(lattice.anchor, tables, side=lattice.spec.plane.side)
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
            kept, shifts = self._kept(rows)
            done += batch.height
            self._progress("perturbing", done, self._total)
            if kept.any():
                yield self._drawn(rows.filter(pl.Series(kept)), shifts[kept])

    def _check_order(self, batch: pl.DataFrame, last: tuple[int, int]) -> tuple[int, int]:
        """Raise InputError unless trips, and times within them, ascend; return the last of both."""
        trip, time = batch["trip"].to_numpy(), batch["time"].to_physical().to_numpy()
        trips, times = np.append(last[0], trip), np.append(last[1], time)
        same = trips[1:] == trips[:-1]
        if (trips[1:] < trips[:-1]).any() or (same & (times[1:] < times[:-1])).any():
            raise InputError("its points are not in order of trips and times", path=self._path, hint="Import it again")
        return int(trip[-1]), int(time[-1])

    @staticmethod
    def _is_first(trip: Ints, slot: Ints) -> Bools:
        """Return which points are the first of their trip in a slot, as far as this batch goes."""
        first = np.ones(len(trip), np.bool_)
        first[1:] = (trip[1:] != trip[:-1]) | (slot[1:] != slot[:-1])
        return first

    def _kept(self, rows: pl.DataFrame) -> tuple[Bools, Ints]:
        """Return which points are reported, and the shift of each, shape (n, 2)."""
        trip, slot = rows["trip"].to_numpy(), rows["slot"].to_numpy()
        kept, shifts = np.ones(len(trip), np.bool_), np.zeros((len(trip), 2), np.int64)
        starts = np.flatnonzero(np.append(True, trip[1:] != trip[:-1]))
        names = rows["vehicle"].gather(starts).to_list()
        for name, start, end in zip(names, starts.tolist(), [*starts[1:].tolist(), len(trip)], strict=True):
            vehicle = self._vehicles.setdefault(name, _Vehicle())
            free = vehicle.free(slot[start:end])
            kept[start:end] = free
            if self._anchoring is not None:
                periods = slot[start:end] * self._interval_ms // self._anchoring.period_ms
                for part, shift in _shifts(vehicle, self._anchoring, periods, free):
                    shifts[start:end][part] = shift
        return kept, shifts

    def _drawn(self, rows: pl.DataFrame, shifts: Ints) -> pl.DataFrame:
        lat, lon = rows["lat"].to_numpy(), rows["lon"].to_numpy()
        plane = self._lattice.spec.plane
        outside = ~plane.holds_many(lat, lon)
        self._outside += int(np.count_nonzero(outside))
        self._exchanged += int(np.count_nonzero(plane.holds_many(lon[outside], lat[outside])))
        x, y = plane.units(lat, lon)
        east, north = shifts.T
        cells = self._lattice.draw_many_at(x, y, shift=(east, north))
        center_lat, center_lon = cell_centers_e7(self._lattice, cells).T / 1e7
        start_us = rows["slot"] * (self._interval_ms * _US_PER_MS)
        return rows.select("vehicle", "trip", "slot").with_columns(
            time=start_us.cast(pl.Datetime("us", "UTC")),
            cell=pl.Series(cells, dtype=pl.Int32),
            lat=pl.Series(center_lat),
            lon=pl.Series(center_lon),
        )

    def summary(self) -> LatticeSummary:
        anchor, cost = self._lattice.anchor, self._costs.other / _MICRO
        dearest = max(self._vehicles.values(), key=lambda vehicle: vehicle.reports)
        return LatticeSummary(
            points=self._total,
            reports=sum(vehicle.reports for vehicle in self._vehicles.values()),
            points_outside=self._outside,
            points_exchanged=self._exchanged,
            vehicles=len(self._vehicles),
            interval_s=self._interval_ms / 1000,
            epsilon_per_report=cost,
            anchor_period_s=None if anchor is None else anchor.period_s,
            epsilon_per_period=None if anchor is None else anchor.epsilon,
            periods=sum(len(vehicle.periods) for vehicle in self._vehicles.values()),
            epsilon_per_hour=cost * _MS_PER_HOUR / self._interval_ms,
            most_reports=dearest.reports,
            epsilon_spent=cost * dearest.reports,
            anchor_epsilon_spent=None if anchor is None else anchor.epsilon * len(dearest.periods),
        )


def _shifts(vehicle: _Vehicle, anchoring: Anchoring, periods: Ints, free: Bools) -> Iterator[tuple[slice, Shift]]:
    """Yield the shift of each period of a trip in which something is reported, and the points that it is for."""
    starts = np.flatnonzero(np.append(True, periods[1:] != periods[:-1])).tolist()
    for start, end in zip(starts, [*starts[1:], len(periods)], strict=True):
        if free[start:end].any():
            yield slice(start, end), vehicle.shift(int(periods[start]), anchoring.shift)
