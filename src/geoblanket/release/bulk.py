"""Walks and traces perturbed in bulk, by the rule of a bundle.

For data sets that are handed over as a whole. Every report spends budget, and nothing is counted across runs: the
summary says what one run spends, and a second run spends it again. Memory is bounded, whatever the number of rows.

Zones report every step of walks. A lattice needs no roads to match to: it reports once for each vehicle and slot. Of
the points of a vehicle in one slot the first is reported; where trips of a vehicle overlap, those of the first one.
Points inside a fence count as its centre. A report at rest is held, also from one trip of a vehicle to its next. A
lattice's run keeps some bytes of memory for each trip of a vehicle.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Generic, TypedDict, TypeVar, Unpack

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._files import check_output, temporary_folder
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._tables import lazy_batches, reading_parquet, table_batches, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle, ZoneBundle
from geoblanket.mobility.map_matcher import MatchOptions
from geoblanket.mobility.matching import match_traces
from geoblanket.mobility.walks import MatchedWalks, walk_batches, write_walks
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.reporter import LatticeReporter, ZoneReporter
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.traces.table import TRACES_SCHEMA, check_points, scan_traces, write_traces

RELEASED_SCHEMA: dict[str, pl.DataType] = {
    "walk": pl.Int64(),
    "vehicle": pl.String(),
    "trip": pl.Int64(),
    "step": pl.Int32(),
    "time": pl.Datetime("us", "UTC"),
    "place": pl.Int32(),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
}
"""One row per report, in the order of the walks. `place`, `lat` and `lon` are the reported location; everything else is
as in the walks and not protected. Speeds are left out: they are measured on the true path. The file also has `lat` and
`lon` as `geometry` (GeoParquet), which is not read again."""

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

_HOUR_S: Final = 3600
_ROWS_AT_A_TIME: Final = 500_000
_US_PER_MS: Final = 1000
_COLUMNS: Final = ("vehicle", "trip", "time", "lat", "lon")
_Summary = TypeVar("_Summary")


@dataclass(frozen=True)
class PerturbSummary:
    """What was released, and what it cost.

    Examples
    --------
    >>> from geoblanket import load_bundle, perturb_walks
    >>> summary = perturb_walks("walks.parquet", "city.roads", "released.parquet", bundle=load_bundle("city.bundle"))
    >>> summary.epsilon_per_hour  # 120 reports of 2 per km
    240.0
    """

    reports: int
    reports_without_history: int
    """First reports of walks, which use the start regime."""
    places_outside: int
    """Reports from places outside all zones, which count as the nearest place in a zone."""
    vehicles: int
    interval_s: float
    epsilon_per_location: float
    """What a report costs a location at most, per km: as the present, and as the past of later reports."""
    epsilon_per_hour: float
    """What the reports of an hour add up to, per km."""
    most_reports: int
    """Reports of the vehicle that made the most of them."""
    epsilon_spent: float
    """What the reports of that vehicle add up to at most, per km."""
    unit: str = "km"
    """What the kilometre is in the bundle's metric."""

    def __repr__(self) -> str:
        return _in_short(self, f"ε = {self.epsilon_per_location:g} per {self.unit} each at most")


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

    def __repr__(self) -> str:
        return _in_short(self, f"ε = {self.epsilon_per_report:g} per km each")


def _in_short(summary: PerturbSummary | LatticeSummary, each: str) -> str:
    made = counted(summary.reports, "report"), counted(summary.vehicles, "vehicle"), f"every {summary.interval_s:g} s"
    return short_repr(summary, *made, each, f"{summary.epsilon_per_hour:g} an hour")


@checked
@takes_frames(walks=write_walks)
def perturb_walks(
    walks: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    bundle: Bundle,
    fences: Fences = NO_FENCES,
    policy: Policy = DEFAULT_POLICY,
    progress: Progress = silent,
) -> PerturbSummary:
    """Perturb every step of walks and write the reports, wholly or not at all.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`, or `Walks` of a data frame.
    roads
        The roads that it was matched to.
    out
        The table to write (`RELEASED_SCHEMA`).
    bundle
        A bundle with a clock and places.
    fences
        Places inside a fence count as the place nearest to its centre, for every vehicle.
    policy
        The least that the bundle must promise.

    Raises
    ------
    PolicyError
        If the bundle promises less than the policy asks for.
    MismatchError
        If the bundle is for other places or another clock than the walks.
    InputError
        If the walks cannot be read.
    RandomnessError
        If the operating system has no randomness.

    Examples
    --------
    >>> from geoblanket import load_bundle, perturb_walks
    >>> summary = perturb_walks("walks.parquet", "city.roads", "released.parquet", bundle=load_bundle("city.bundle"))
    >>> summary.epsilon_per_location
    2.0
    """
    check_output(out)
    return _perturbed(_WalkRun(_with_zones(bundle), MatchedWalks.open(walks, roads), fences, progress), out, policy)


class MatchingOptions(TypedDict, total=False):
    """How traces are matched; see `match_traces`."""

    options: MatchOptions | None
    workers: int | None


@checked
@takes_frames(traces=write_traces)
def perturb_traces(
    traces: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    bundle: Bundle,
    spacing_m: float = 0.0,
    fences: Fences = NO_FENCES,
    policy: Policy = DEFAULT_POLICY,
    progress: Progress = silent,
    **matching: Unpack[MatchingOptions],
) -> PerturbSummary:
    """Match traces to roads by the clock of a bundle, then perturb the walks; see `match_traces` and `perturb_walks`.

    Parameters
    ----------
    traces
        A table written by `geoblanket traces import`, or a data frame with its columns (`TRACES_SCHEMA`).
    spacing_m
        The spacing of the bundle's places, metres.
    fences
        Points inside a fence count as its centre before they are matched, for every vehicle.
    options, workers
        As in `match_traces`.

    Examples
    --------
    >>> from geoblanket import load_bundle, perturb_traces
    >>> bundle = load_bundle("city.bundle")
    >>> summary = perturb_traces("traces.parquet", "city.roads", "released.parquet", bundle=bundle, spacing_m=500)
    >>> summary.interval_s
    30.0
    """
    check_output(out)
    bundle = _with_zones(bundle)
    interval_s = bundle.needed_clock().interval_s
    policy.check(bundle)
    # Before the long work, so that the message names the roads that were given, not the walks made of them.
    _check_places(bundle, choose_places(RoadGraph.load(roads), spacing_m=spacing_m), roads)
    with temporary_folder(out) as folder:
        walks = folder / "walks.parquet"
        fenced = _fenced(traces, folder / "traces.parquet", fences)
        match_traces(fenced, roads, walks, interval_s=interval_s, spacing_m=spacing_m, progress=progress, **matching)
        return perturb_walks(walks, roads, out, bundle=bundle, fences=fences, policy=policy, progress=progress)


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
        A bundle with a lattice.
    fences
        Positions inside a fence count as its centre, for every vehicle.
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
    run = _PointRun(bundle, Path(traces), fences, progress)
    run.read(frame, _points_of_traces(frame, traces))
    return _perturbed(run, out, policy)


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
    matched = MatchedWalks.open(walks, roads)

    def points() -> Iterator[pl.DataFrame]:
        rows = matched.frame.select("walk", "step", "vehicle", "trip", "time", "place")
        for batch in walk_batches(rows, path=walks, place_count=len(matched.places)):
            place = batch["place"].to_numpy()
            lat, lon = pl.Series(matched.places.lat[place]), pl.Series(matched.places.lon[place])
            located = batch.select("vehicle", "trip", "time").with_columns(lat=lat, lon=lon)
            check_points(located, path=walks)
            yield located

    run = _PointRun(bundle, Path(walks), fences, progress)
    run.read(matched.frame, points())
    return _perturbed(run, out, policy)


def _fenced(traces: str | Path, out: Path, fences: Fences) -> str | Path:
    """Write traces whose points inside a fence are its centre, so that the matched path tells no more."""
    if not fences:
        return traces

    def batches() -> Iterator[pl.DataFrame]:
        for batch in _points_of_traces(scan_traces(traces), traces):
            lat, lon = fences.apply_many_e7(*_rounded_e7(batch["lat"].to_numpy(), batch["lon"].to_numpy()))
            yield batch.with_columns(lat=pl.Series(lat / 1e7), lon=pl.Series(lon / 1e7))

    write_table(lazy_batches(batches(), schema=TRACES_SCHEMA), out, kind="traces", about={"format": "frame"})
    return out


def _points_of_traces(frame: pl.LazyFrame, path: str | Path) -> Iterator[pl.DataFrame]:
    for batch in table_batches(frame.select(_COLUMNS), path=path, rows=_ROWS_AT_A_TIME):
        check_points(batch, path=path)
        yield batch


def _rounded_e7(lat: Floats, lon: Floats) -> tuple[Ints, Ints]:
    return np.rint(lat * 1e7).astype(np.int64), np.rint(lon * 1e7).astype(np.int64)


class _Run(Generic[_Summary]):
    """One pass over a table."""

    schema: ClassVar[dict[str, pl.DataType]]
    kind: ClassVar[str]
    """The kind of table, as its file states it."""
    cost: ClassVar[str]
    """The name under which the file states what a report costs."""

    def __init__(self, bundle: Bundle, path: Path, progress: Progress) -> None:
        self.bundle, self.path, self.progress = bundle, path, progress
        self.epsilon = bundle.costs.largest_per_km
        self.stopped = False

    def reports(self) -> Iterator[pl.DataFrame]:
        """Yield the reports of the whole table."""
        raise NotImplementedError

    def summary(self) -> _Summary:
        """Return what was released, and what it cost."""
        raise NotImplementedError

    def located(self, outputs: Ints) -> dict[str, pl.Series]:
        """Return where reported places or cells are, as columns."""
        # Divided, not multiplied by 1e-7: the nearest number to the seven decimals, and the one that a device reports.
        lat, lon = self.bundle.outputs_e7(outputs).T / 1e7
        return {"lat": pl.Series(lat), "lon": pl.Series(lon)}


def _perturbed(run: _Run[_Summary], out: str | Path, policy: Policy) -> _Summary:
    """Write the reports of a run, wholly or not at all."""
    if Path(out).exists() and Path(out).samefile(run.path):
        raise ParameterError(f"{run.path} is both read and written. Choose another name for the result.")
    bundle = run.bundle
    policy.check(bundle)
    about = {
        "bundle": bundle.sha256,
        "domain": bundle.domain,
        "disclosed": bundle.disclosed,
        "interval_s": bundle.needed_clock().interval_s,
        run.cost: run.epsilon,
    }
    # This thread only waits: Python hands signals to the main thread, which must not be inside Polars for minutes.
    with ThreadPoolExecutor(1) as writer:
        reports = lazy_batches(run.reports(), schema=run.schema)
        written = writer.submit(write_table, reports, out, kind=run.kind, about=about, private=False, points=True)
        try:
            written.result()
        finally:
            run.stopped = True
    return run.summary()


def _with_zones(bundle: Bundle) -> ZoneBundle:
    if isinstance(bundle, LatticeBundle):
        raise MismatchError(
            "The bundle has a lattice, no zones: use perturb_points, which needs no roads, or perturb_walk_points."
        )
    return bundle


def _check_places(bundle: ZoneBundle, places: Places, given: str | Path) -> None:
    """Raise unless the bundle is for these places, which come from the file that was `given`."""
    if not np.array_equal(places.coordinates_e7, bundle.places_e7):
        raise MismatchError(
            f"{given} has {len(places):,} places at {places.spacing_m:g} m on these roads, and the bundle is for "
            f"{len(bundle.places_e7):,} others. Match with the roads and the spacing that the bundle was built with."
        )


class _WalkRun(_Run[PerturbSummary]):
    """Reports of zones for every step of walks."""

    schema, kind, cost = RELEASED_SCHEMA, "released locations", "epsilon_per_location"

    def __init__(self, bundle: ZoneBundle, walks: MatchedWalks, fences: Fences, progress: Progress) -> None:
        super().__init__(bundle, walks.path, progress)
        self._reporter = ZoneReporter(bundle)
        self._clock, self._frame, self._unit = bundle.needed_clock(), walks.frame, bundle.unit
        _check_places(bundle, walks.places, walks.path)
        if walks.interval_s != self._clock.interval_s:
            raise MismatchError(
                f"{walks.path} has a step every {walks.interval_s:g} s, and the bundle is for one every "
                f"{self._clock.interval_s:g} s. Match again with that interval."
            )
        self._fenced = self._fenced_places(bundle, fences)
        self._first = self._outside = 0
        with reading_parquet(self.path):
            by_vehicle = self._frame.group_by(pl.col("vehicle")).len().collect(engine="streaming")["len"]
        self._by_vehicle = by_vehicle.to_list()
        if not self._by_vehicle:
            raise InputError("has no steps", path=self.path)

    def _fenced_places(self, bundle: ZoneBundle, fences: Fences) -> Ints:
        """Return the place that each place counts as: itself, or the one nearest to the centre of its fence."""
        lat, lon = bundle.places_e7.astype(np.int64).T
        result = np.arange(len(lat))
        fenced_lat, fenced_lon = fences.apply_many_e7(lat, lon)
        inside = np.flatnonzero((fenced_lat != lat) | (fenced_lon != lon))
        if len(inside):
            result[inside] = self._reporter.points(fenced_lat[inside], fenced_lon[inside])[:, 0]
        return result

    def reports(self) -> Iterator[pl.DataFrame]:
        """Yield the reports of all steps."""
        lags = len(self._reporter.no_past)
        before, done = np.empty(0, np.int64), 0
        rows = self._frame.select("walk", "vehicle", "trip", "step", "time", "place")
        for batch in walk_batches(rows, path=self.path, place_count=len(self._fenced)):
            if self.stopped:
                return
            if batch["time"].null_count():
                raise InputError("some steps have no time", path=self.path, hint="Match the traces again")
            step, times_ms = batch["step"].to_numpy(), batch["time"].to_physical().to_numpy() // _US_PER_MS
            places = np.concatenate([before, self._fenced[batch["place"].to_numpy()]])
            now = np.arange(len(before), len(places))
            # The places at t − 1, t − 2, ...; −1 before the first step of a walk.
            past = np.column_stack([np.where(step >= lag, places[now - lag], -1) for lag in range(1, 1 + lags)])
            points = places[now][:, None]
            regimes = self._reporter.by_regime(past, times_ms)
            outputs = self._reporter.draw_by_regime(points, past, regimes)
            self._first += int(np.count_nonzero(step == 0))
            self._outside += self._reporter.count_outside(points, regimes)
            before = places[-lags:]
            done += batch.height
            self.progress("perturbing", done, sum(self._by_vehicle))
            yield batch.with_columns(place=pl.Series(outputs, dtype=pl.Int32), **self.located(outputs))

    def summary(self) -> PerturbSummary:
        """Return what was released, and what it cost."""
        most, interval_s = max(self._by_vehicle), self._clock.interval_s
        return PerturbSummary(
            reports=sum(self._by_vehicle),
            reports_without_history=self._first,
            places_outside=self._outside,
            vehicles=len(self._by_vehicle),
            interval_s=interval_s,
            epsilon_per_location=self.epsilon,
            epsilon_per_hour=self.bundle.costs.in_a_row_per_km(_HOUR_S / interval_s),
            most_reports=most,
            epsilon_spent=self.epsilon * most,
            unit=self._unit,
        )


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

    def hold(self, slots: Ints, points: Ints, cells: Ints, hold_units: int) -> None:
        """Replace the cells of reports at rest by the one that is held; the slots ascend."""
        squared, held_x, held_y = hold_units * hold_units, self._x, self._y
        if self._slot >= slots[0]:
            self._cell = -1  # this trip precedes one that was reported: nothing is held
        cell = self._cell
        for index, ((at_x, at_y), drawn) in enumerate(zip(points.tolist(), cells.tolist(), strict=True)):
            if cell >= 0 and (at_x - held_x) ** 2 + (at_y - held_y) ** 2 <= squared:
                cells[index] = cell
            else:
                cell, held_x, held_y = drawn, at_x, at_y
                self.draws += 1
        self._slot, self._cell, self._x, self._y = int(slots[-1]), cell, held_x, held_y


class _PointRun(_Run[LatticeSummary]):
    """Reports of a lattice for points: one for each vehicle and slot."""

    schema, kind, cost = RELEASED_CELLS_SCHEMA, "released cells", "epsilon_per_report"

    def __init__(self, bundle: Bundle, path: Path, fences: Fences, progress: Progress) -> None:
        if isinstance(bundle, ZoneBundle):
            raise MismatchError("The bundle has no lattice: its zones need roads to match to.")
        super().__init__(bundle, path, progress)
        self._reporter, self._fences = LatticeReporter(bundle), fences
        self._batches: Iterable[pl.DataFrame] = ()
        self._total = 0
        self._vehicles: dict[str, _Vehicle] = {}
        self._outside = self._exchanged = 0

    def read(self, frame: pl.LazyFrame, batches: Iterable[pl.DataFrame]) -> None:
        """Set the points that are reported; raise InputError if the table has none."""
        with reading_parquet(self.path):
            self._total = int(frame.select(pl.len()).collect().item())
        if not self._total:
            raise InputError("has no points", path=self.path)
        self._batches = batches

    def reports(self) -> Iterator[pl.DataFrame]:
        """Yield the reports of all points."""
        done, last = 0, (-1, 0)
        for batch in self._batches:
            if self.stopped:
                return
            if batch.is_empty():
                continue
            last = self._check_order(batch, last)
            slot = batch["time"].to_physical().to_numpy() // (_US_PER_MS * self._reporter.interval_ms)
            chosen = np.flatnonzero(self._is_first(batch["trip"].to_numpy(), slot))
            rows = batch[chosen].with_columns(slot=pl.Series(slot[chosen], dtype=pl.Int64))
            kept = self._kept(rows)
            done += batch.height
            self.progress("perturbing", done, self._total)
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
        lat, lon, slot = (rows[name].to_numpy() for name in ("lat", "lon", "slot"))
        lattice = self._reporter.lattice
        plane = lattice.spec.plane
        outside = ~plane.holds_many(lat, lon)
        self._outside += int(np.count_nonzero(outside))
        self._exchanged += int(np.count_nonzero(plane.holds_many(lon[outside], lat[outside])))
        points = self._reporter.points(*self._fences.apply_many_e7(*_rounded_e7(lat, lon)))
        cells = lattice.draw_many_at(*points.T)
        hold_units = lattice.hold_mm // plane.unit_mm
        for vehicle, part in self._trips(rows):
            if hold_units:
                vehicle.hold(slot[part], points[part], cells[part], hold_units)
            else:
                vehicle.draws += part.stop - part.start
        time = rows["slot"] * (self._reporter.interval_ms * _US_PER_MS)
        return rows.select("vehicle", "trip", "slot").with_columns(
            time=time.cast(pl.Datetime("us", "UTC")), cell=pl.Series(cells, dtype=pl.Int32), **self.located(cells)
        )

    def summary(self) -> LatticeSummary:
        """Return what was released, and what it cost."""
        vehicles, interval_s = self._vehicles.values(), self._reporter.interval_ms / 1000
        most = max(vehicle.draws for vehicle in vehicles)
        return LatticeSummary(
            points=self._total,
            reports=sum(vehicle.reports for vehicle in vehicles),
            points_outside=self._outside,
            points_exchanged=self._exchanged,
            vehicles=len(vehicles),
            interval_s=interval_s,
            epsilon_per_report=self.epsilon,
            draws=sum(vehicle.draws for vehicle in vehicles),
            epsilon_per_hour=self.epsilon * _HOUR_S / interval_s,
            most_draws=most,
            epsilon_spent=self.epsilon * most,
        )
