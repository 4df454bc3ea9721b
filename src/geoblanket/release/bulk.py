"""Walks perturbed in bulk: a report for every step, by the rule of a bundle.

For data sets that are handed over as a whole. Every report spends budget, and nothing is counted across runs: the
summary says what one run spends, and a second run spends it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Indices
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._files import check_output, temporary_folder
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._tables import lazy_batches, reading_parquet, table_batches, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mobility.matching import Method, match_traces
from geoblanket.mobility.walks import scan_walks, walk_batches, write_walks
from geoblanket.release._opening import check_policy
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.nearest import PlaceRaster
from geoblanket.release.rule import ReleaseRule
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.traces.table import TRACES_SCHEMA, check_points, scan_traces, write_traces

__all__ = ["RELEASED_SCHEMA", "PerturbSummary", "perturb_traces", "perturb_walks"]

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

_SECONDS_PER_HOUR = 3600.0
_ROWS_AT_A_TIME = 500_000


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

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def __repr__(self) -> str:
        made = counted(self.reports, "report"), counted(self.vehicles, "vehicle"), f"every {self.interval_s:g} s"
        each = f"ε = {self.epsilon_per_location:g} per km each at most"
        return short_repr(self, *made, each, f"{self.epsilon_per_hour:g} an hour")


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

    Memory is bounded, whatever the number of steps.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`, or `Walks` of a data frame.
    roads
        The roads that it was matched to.
    out
        The table to write (`RELEASED_SCHEMA`).
    bundle
        With a clock and with places.
    fences
        Places inside one count as the place nearest to its centre, whichever vehicle is there.
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
    _check_zones(bundle)
    frame, about = scan_walks(walks)
    if Path(out).exists() and Path(out).samefile(walks):
        raise ParameterError(f"{walks} is both read and written. Choose another name for the result.")
    clock = _check_fit(bundle, walks, about, RoadGraph.load(roads))
    check_policy(policy, bundle, bundle)
    run = _Run(bundle, Path(walks), frame, fences, progress)
    described = {
        "bundle": bundle.sha256,
        "domain": bundle.domain,
        "disclosed": bundle.disclosed,
        "interval_s": clock.interval_s,
        "epsilon_per_location": run.epsilon_per_location,
    }
    # This thread only waits: Python hands signals to the main thread, which must not be inside Polars for minutes.
    with ThreadPoolExecutor(1) as writer:
        reports = lazy_batches(run.reports(), schema=RELEASED_SCHEMA)
        written = writer.submit(
            write_table, reports, out, kind="released locations", about=described, private=False, points=True
        )
        try:
            written.result()
        finally:
            run.stopped = True
    return run.summary()


@checked
@takes_frames(traces=write_traces)
def perturb_traces(
    traces: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    bundle: Bundle,
    spacing_m: float = 0.0,
    method: Method = "hmm",
    workers: int | None = None,
    fences: Fences = NO_FENCES,
    policy: Policy = DEFAULT_POLICY,
    progress: Progress = silent,
) -> PerturbSummary:
    """Match traces to roads by the clock of a bundle, then perturb the walks; see `match_traces` and `perturb_walks`.

    Parameters
    ----------
    traces
        A table written by `geoblanket traces import`, or a data frame with its columns (`TRACES_SCHEMA`).
    spacing_m
        The spacing of the bundle's places, metres.
    fences
        Points inside one count as its centre, before they are matched, whichever vehicle is there.

    Examples
    --------
    >>> from geoblanket import load_bundle, perturb_traces
    >>> bundle = load_bundle("city.bundle")
    >>> summary = perturb_traces("traces.parquet", "city.roads", "released.parquet", bundle=bundle, spacing_m=500)
    >>> summary.interval_s
    30.0
    """
    check_output(out)
    _check_zones(bundle)
    clock = bundle.needed_clock()
    check_policy(policy, bundle, bundle)
    # Before the long work, and in the words of who gave roads and spacing.
    _check_places(bundle, choose_places(RoadGraph.load(roads), spacing_m=spacing_m), roads)
    with temporary_folder(out) as folder:
        walks = folder / "walks.parquet"
        match_traces(
            _fenced(traces, folder / "traces.parquet", fences),
            roads,
            walks,
            interval_s=clock.interval_s,
            method=method,
            spacing_m=spacing_m,
            workers=workers,
            progress=progress,
        )
        return perturb_walks(walks, roads, out, bundle=bundle, fences=fences, policy=policy, progress=progress)


def _fenced(traces: str | Path, out: Path, fences: Fences) -> str | Path:
    """Write traces whose points inside a fence are its centre: the way that is matched must not tell more."""
    if not fences:
        return traces

    def batches() -> Iterator[pl.DataFrame]:
        for batch in table_batches(scan_traces(traces), path=traces, rows=_ROWS_AT_A_TIME):
            check_points(batch, path=traces)
            lat_e7, lon_e7 = (np.rint(batch[name].to_numpy() * 1e7).astype(np.int64) for name in ("lat", "lon"))
            lat, lon = fences.apply_many_e7(lat_e7, lon_e7)
            yield batch.with_columns(lat=pl.Series(lat / 1e7), lon=pl.Series(lon / 1e7))

    write_table(lazy_batches(batches(), schema=TRACES_SCHEMA), out, kind="traces", about={"format": "frame"})
    return out


def _check_zones(bundle: Bundle) -> None:
    if bundle.lattice is not None:
        raise MismatchError(
            "The bundle has a lattice, no zones: use perturb_points, which needs no roads, or perturb_walk_points."
        )


def _check_places(bundle: Bundle, places: Places, given: str | Path) -> None:
    """Raise unless the bundle is for these places, which come from the file that was `given`."""
    if not np.array_equal(places.coordinates_e7, bundle.places_e7):
        raise MismatchError(
            f"{given} has {len(places):,} places at {places.spacing_m:g} m on these roads, and the bundle is for "
            f"{len(bundle.places_e7):,} others. Match with the roads and the spacing that the bundle was built with."
        )


def _check_fit(bundle: Bundle, walks: str | Path, about: dict[str, Any], graph: RoadGraph) -> Clock:
    """Return the clock of the bundle; raise unless walks, roads and bundle belong together."""
    clock = bundle.needed_clock()
    if about.get("roads") != graph.identity:
        raise MismatchError(f"{walks} was matched to other roads. Give the roads that it was matched to.")
    _check_places(bundle, choose_places(graph, spacing_m=about["spacing_m"]), walks)
    if about.get("interval_s") != clock.interval_s:
        raise MismatchError(
            f"{walks} has a step every {about.get('interval_s'):g} s, and the bundle is for one every "
            f"{clock.interval_s:g} s. Match again with that interval."
        )
    return clock


def _fenced_places(places_e7: Indices, fences: Fences) -> Indices:
    """Return the place that each place counts as: itself, or the one nearest to the centre of its fence."""
    result = np.arange(len(places_e7), dtype=np.int32)
    lat, lon = places_e7.astype(np.int64).T
    fenced_lat, fenced_lon = fences.apply_many_e7(lat, lon)
    inside = np.flatnonzero((fenced_lat != lat) | (fenced_lon != lon))
    if len(inside):
        result[inside] = PlaceRaster(places_e7).of(fenced_lat[inside], fenced_lon[inside])
    return result


class _Run:
    """One pass over walks."""

    def __init__(self, bundle: Bundle, path: Path, frame: pl.LazyFrame, fences: Fences, progress: Progress) -> None:
        self.stopped = False
        clock = bundle.needed_clock()
        self._bundle, self._clock, self._path, self._frame = bundle, clock, path, frame
        self._progress = progress
        self._rule = ReleaseRule(bundle)
        self._fenced = _fenced_places(bundle.places_e7, fences)
        self._costs = bundle.costs
        self._names = (*(name for name, _ in clock.regimes), clock.start)
        self._of_hour = np.array([self._names.index(clock.regime(hour)) for hour in range(24)], np.uint8)
        self._by_regime = np.zeros(len(self._names), np.int64)
        self._outside = 0
        with reading_parquet(path):
            by_vehicle = frame.group_by(pl.col("vehicle")).len().collect(engine="streaming")["len"]
        self._reports, self._vehicles = int(by_vehicle.sum()), len(by_vehicle)
        self._most = int(by_vehicle.max() or 0)  # type: ignore[arg-type]  # a column of lengths holds whole numbers
        if not self._reports:
            raise InputError("has no steps", path=path)

    @property
    def epsilon_per_location(self) -> float:
        return self._costs.largest_per_km

    def reports(self) -> Iterator[pl.DataFrame]:
        """Yield the reports of all steps."""
        hour = pl.col("time").dt.convert_time_zone(self._clock.time_zone).dt.hour().alias("hour")
        rows = self._frame.select("walk", "vehicle", "trip", "step", "time", "place", hour)
        kept: Indices = np.empty(0, np.int32)
        done = 0
        lat, lon = (self._bundle.places_e7 * 1e-7).T
        for batch in walk_batches(rows, path=self._path, place_count=len(self._bundle.places_e7)):
            if self.stopped:
                return
            if batch["time"].null_count():
                raise InputError("some steps have no time", path=self._path, hint="Match the traces again")
            places = np.concatenate([kept, self._fenced[batch["place"].to_numpy()]])
            step = batch["step"].to_numpy()
            reported = self._draw(self._histories(places, len(kept), step), step, batch["hour"].to_numpy())
            kept = places[max(0, len(places) - self._rule.past) :]
            done += batch.height
            self._progress("perturbing", done, self._reports)
            yield batch.drop("hour").with_columns(
                place=pl.Series(reported), lat=pl.Series(lat[reported]), lon=pl.Series(lon[reported])
            )

    def _histories(self, places: Indices, before: int, step: Indices) -> Indices:
        """Return the places at t, t − 1, ... of the steps after the first `before`, −1 for what is not known."""
        now = np.arange(before, len(places))
        histories = np.empty((len(now), 1 + self._rule.past), np.int32)
        for lag in range(1 + self._rule.past):
            histories[:, lag] = np.where(step >= lag, places[now - lag], -1)
        return histories

    def _draw(self, histories: Indices, step: Indices, hour: npt.NDArray[np.int8]) -> Indices:
        regime = np.where(step == 0, len(self._names) - 1, self._of_hour[hour])
        result = np.empty(len(step), np.int32)
        for number, name in enumerate(self._names):
            some = np.flatnonzero(regime == number)
            if len(some):
                chosen = histories[some]
                result[some] = self._rule.draw(chosen, name)
                self._by_regime[number] += len(some)
                self._outside += int(np.count_nonzero(self._rule.outside(chosen[:, 0], name)))
        return result

    def summary(self) -> PerturbSummary:
        return PerturbSummary(
            reports=self._reports,
            reports_without_history=int(self._by_regime[-1]),
            places_outside=self._outside,
            vehicles=self._vehicles,
            interval_s=self._clock.interval_s,
            epsilon_per_location=self.epsilon_per_location,
            epsilon_per_hour=self._costs.in_a_row_per_km(_SECONDS_PER_HOUR / self._clock.interval_s),
            most_reports=self._most,
            epsilon_spent=self.epsilon_per_location * self._most,
        )
