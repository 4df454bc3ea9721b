"""What the web page asks about: bundles of the same city, with roads and walks if they were given."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket._training import NOBODY
from geoblanket._untrusted import read_object
from geoblanket.build.record import BuildRecord, read_record, record_path
from geoblanket.build.report_words import cost_table, factor_table, learned_in_words, limits, promise
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.costs import NIGHT_S
from geoblanket.mobility.histories import check_walks
from geoblanket.mobility.walks import Split, scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.service.explore_bundle import ExploredBundle, Traffic, ZoneView
from geoblanket.service.explore_lattice import ExploredLattice
from geoblanket.service.explore_map import PlaceCells, Streets, roads_geojson
from geoblanket.service.explore_replay import Trip, held_out_trips
from geoblanket.service.explore_tracking import MotionModels, fits, in_frame
from geoblanket.service.refusals import OVERLOADED, Refused
from geoblanket.service.store import BundleStore, ServedBundle
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["Explorer", "Prior"]

_MOST_PLAN_BYTES: Final = 1 << 22
_MOST_SCHEDULES: Final = 1000

_Positive = Annotated[float, Field(gt=0, le=1e9)]
Prior = Literal["equal", "traffic"]
"""A recipient's prior: all places of the zone equally probable, or vehicles move as in the walks."""
_MOST_GUESSES = 400
"""Of a large city, this many places are tried as the best guess."""
_MOST_REPLAYS, _TURN_S = 2, 15.0
"""Replays at once, and seconds that another one waits for its turn."""
_LIMITS = (
    "Several draws add up, on the road and with each return to a place: a home needs a fence. Nothing in the bundle "
    "limits how often a vehicle reports.",
    "With hold, when the vehicle rests is not hidden.",
    "When a report was made, and that the vehicle made one, is not hidden.",
    "Who reports is not hidden: a name or a number of the vehicle in a report makes its reports linkable.",
    "What a recipient learns in other ways (a camera, a receipt) is not hidden.",
)
_log = logging.getLogger(__name__)


class _Part(BaseModel):
    # A plan says more than the page shows.
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class _Errors(_Part):
    error_m: Annotated[float, Field(ge=0, le=1e9)]


class _Cost(_Part):
    hour: _Positive


class _Schedule(_Part):
    epsilon_per_km: _Positive
    interval_s: _Positive
    cost_per_km: _Cost
    on_the_road: _Errors


class _Nothing(_Part):
    on_the_road: _Errors


class _Plan(_Part):
    epsilon_by_interval: Annotated[list[_Schedule], Field(min_length=1, max_length=_MOST_SCHEDULES)]
    without_any_report: _Nothing


def read_plan(path: str | Path) -> dict[str, Any]:
    """Return how far off the tracker is on the road by ε and interval, and without any report, as JSON values.

    Raises
    ------
    InputError
        If the file is no plan.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            plan = _Plan.model_validate(read_object(file.read(_MOST_PLAN_BYTES)))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except (ValueError, ValidationError) as error:
        raise InputError(
            "is not a plan with errors by ε and interval", path=path, hint="Write it with geoblanket plan --json"
        ) from error
    return {
        "without_m": plan.without_any_report.on_the_road.error_m,
        "schedules": [
            {
                "epsilon": schedule.epsilon_per_km,
                "interval_s": schedule.interval_s,
                "hour": schedule.cost_per_km.hour,
                "error_m": schedule.on_the_road.error_m,
            }
            for schedule in plan.epsilon_by_interval
        ],
    }


class Explorer:
    """The bundles of a store that are on one map, and the city around them.

    Those with zones have the places of the first one; those with a lattice have a frame around its middle.

    Parameters
    ----------
    store
        The bundles that are served.
    roads
        The road graph to draw; None: only places and zones are drawn.
    walks
        Walks on these roads, for replays and for what a recipient knows of traffic; None: there is neither.
    model
        A motion model for the tracker of replays; None: it is learned from the roads and the training walks, as far as
        there are any.
    plan
        A plan as JSON, to show what other intervals would give; None: that is not shown.

    Raises
    ------
    MismatchError
        If the roads are of another city than the bundles, the walks belong to other roads, places or another interval,
        or the motion model fits no bundle.
    InputError
        If a file cannot be read.
    """

    def __init__(
        self,
        store: BundleStore,
        *,
        roads: str | Path | None = None,
        walks: str | Path | None = None,
        model: str | Path | None = None,
        plan: str | Path | None = None,
    ) -> None:
        self._store = store
        self._plan = None if plan is None else read_plan(plan)
        self._explored: dict[str, ExploredBundle] = {}
        self._lattices: dict[str, ExploredLattice] = {}
        self.graph = None if roads is None else self._around_bundles(Path(roads))
        self.places: Places | None = None
        self.traffic: Traffic | None = None
        self.trips: dict[int, Trip] = {}
        self._guesses: dict[tuple[Prior, int | None], int] = {}
        split = None if walks is None else self._take_walks(Path(walks))
        self.motion = MotionModels(
            given=None if model is None else self._fitting(Path(model)),
            graph=self.graph,
            places=self.places,
            walks=None if walks is None else Path(walks),
            split=split,
        )
        self._began = threading.Event()
        self._turns = threading.BoundedSemaphore(_MOST_REPLAYS)

    @property
    def bundles(self) -> dict[str, ExploredBundle]:
        """What can be explored, by hash: bundles with the same places as the first that has places."""
        located = [served for served in self._store.bundles if served.bundle.located]
        same = [served for served in located if np.array_equal(served.bundle.places_e7, located[0].bundle.places_e7)]
        self._explored = {served.sha256: self._explored.get(served.sha256) or _explored(served) for served in same}
        return self._explored

    @property
    def lattices(self) -> dict[str, ExploredLattice]:
        """What can be explored over the whole city, by hash: bundles with a lattice around the middle of the map."""
        middle = self.middle
        found = [
            served
            for served in self._store.bundles
            if served.bundle.lattice is not None
            and middle is not None
            and served.bundle.lattice.spec.plane.holds(middle[1], middle[0])
        ]
        self._lattices = {
            served.sha256: self._lattices.get(served.sha256) or ExploredLattice(served, self.area) for served in found
        }
        return self._lattices

    @property
    def middle(self) -> tuple[float, float] | None:
        """Longitude and latitude of the middle of the map: of the places, or of the first lattice's frame."""
        if self._first is None:
            return None
        bundle = self._first.bundle
        if bundle.lattice is None:
            lat, lon = bundle.places_e7.mean(axis=0) / 1e7
        else:
            plane = bundle.lattice.spec.plane
            lat, lon = plane.degrees(plane.side // 2, plane.side // 2)
        return float(lon), float(lat)

    @property
    def _first(self) -> ServedBundle | None:
        """The bundle that decides which city is on the map: the first with places, or else with a lattice."""
        served = self._store.bundles
        located = (each for each in served if each.bundle.located)
        return next(located, next((each for each in served if each.bundle.lattice is not None), None))

    @property
    def area(self) -> tuple[float, float, float, float] | None:
        """South, west, north and east of the city's roads, or else of its places, degrees; None: there are neither."""
        if self.graph is not None:
            return _around(self.graph.lat, self.graph.lon)
        first = next(iter(self.bundles.values()), None)
        return None if first is None else _around(*(first.bundle.places_e7.T * 1e-7))

    @cached_property
    def roads(self) -> bytes | None:
        """The roads as GeoJSON."""
        return None if self.graph is None else roads_geojson(self.graph)

    @cached_property
    def cells(self) -> PlaceCells | None:
        """The part of the map that belongs to each place."""
        first = next(iter(self.bundles.values()), None)
        return None if first is None else PlaceCells(first.bundle.places_e7)

    def prior(self, kind: Prior, view: ZoneView, previous: int | None) -> Floats:
        """Return a recipient's prior over the places of a zone, shape (n,); uniform without walks."""
        if kind == "equal" or self.traffic is None:
            return np.full(len(view.places), 1 / len(view.places))
        return self.traffic.prior(view, previous)

    def unreported_error_m(self, kind: Prior, view: ZoneView, previous: int | None) -> float:
        """Return how far off a recipient is who gets no report, not even its zone, on average over a zone, metres."""
        known = previous if kind == "traffic" and self.traffic is not None else None
        if (kind, known) not in self._guesses:
            self._guesses[kind, known] = self._best_guess(kind, known)
        return view.error_of_m(self._guesses[kind, known], self.prior(kind, view, previous))

    def _best_guess(self, kind: Prior, previous: int | None) -> int:
        """Return the place of the least expected distance from where vehicles are, in the whole city."""
        first = next(iter(self.bundles.values()))
        if kind == "equal" or self.traffic is None:
            whole = (first.zone >= 0).astype(np.float64)
        else:
            whole = self.traffic.anywhere(previous)
        lat, lon = (first.bundle.places_e7 * 1e-7).T
        likely = np.flatnonzero(whole > 0)
        some = likely[:: max(len(likely) // _MOST_GUESSES, 1)]
        away = haversine_m(lat[some, None], lon[some, None], lat[likely], lon[likely])
        return int(some[int((away @ whole[likely]).argmin())])

    @cached_property
    def streets(self) -> Streets | None:
        """The roads, for lines that follow them."""
        return None if self.graph is None else Streets(self.graph)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Hold one of a few turns to replay something, since tracking takes seconds of a processor.

        Raises
        ------
        Refused
            If no turn comes soon.
        """
        if not self._turns.acquire(timeout=_TURN_S):
            raise Refused(OVERLOADED)
        try:
            yield
        finally:
            self._turns.release()

    def overview(self) -> dict[str, Any]:
        """Return all that the page shows before anything is asked, as JSON values.

        Whoever asks has opened the page: from now on the motion models are learned, in the background.
        """
        bundles, lattices = self.bundles, self.lattices
        if not self._began.is_set():
            self._began.set()
            self.motion.begin([served.bundle for served in self._store.bundles])
        first = next(iter(bundles.values()), None)
        degrees = [] if first is None else (first.bundle.places_e7[:, ::-1] / 1e7).tolist()
        return {
            "places": degrees,
            "middle": self.middle,
            "area": self.area,
            "roads": self.graph is not None,
            "credit": "" if self.graph is None else self.graph.credit,
            "traffic": self.traffic is not None,
            "plan": self._plan,
            "trips": [_trip_facts(trip) for trip in self.trips.values()],
            "left_out": len(self._store.bundles) - len(bundles) - len(lattices),
            "bundles": [
                _bundle_facts(bundles[sha256]) if sha256 in bundles else _lattice_facts(lattices[sha256])
                for sha256 in (served.sha256 for served in self._store.bundles)
                if sha256 in bundles or sha256 in lattices
            ],
        }

    def _around_bundles(self, path: Path) -> RoadGraph:
        """Return the roads of a file, which must be of the city on the map."""
        graph = RoadGraph.load(path)
        if self._first is None:
            return graph
        bundle = self._first.bundle
        if bundle.lattice is not None:
            same = bundle.lattice.spec.plane.holds_many(graph.lat, graph.lon).any()
        else:
            (south, west, north, east), (lat, lon) = _around(graph.lat, graph.lon), bundle.places_e7.T * 1e-7
            same = ((south <= lat) & (lat <= north) & (west <= lon) & (lon <= east)).mean() > 1 / 2
        if not same:
            raise MismatchError(
                f"{path} has the roads of another city than {self._first.path}. Give the roads that the bundle was "
                "made from; serve bundles of different cities apart."
            )
        return graph

    def _fitting(self, path: Path) -> MotionModel:
        """Return the motion model of a file, which must fit some bundle."""
        model = MotionModel.load(path)
        if not any(fits(model, served.bundle) for served in self._store.bundles):
            raise MismatchError(
                f"{path} is a motion model of another city, other places or another interval than the bundles. "
                "Learn it from their roads."
            )
        return model

    def _take_walks(self, path: Path) -> Split:
        if self.graph is None:
            raise InputError("walks are shown on roads", path=path, hint="Give the roads too, with --roads")
        first, lattices = next(iter(self.bundles.values()), None), self.lattices
        if not lattices and (first is None or first.bundle.clock is None):
            raise MismatchError("Walks can be shown for bundles with places and a clock, or with a lattice, only.")
        _, about = scan_walks(path)
        self.places = choose_places(self.graph, spacing_m=float(about.get("spacing_m", 0.0)))
        check_walks(path, about, self.places)
        if first is not None and first.bundle.clock is not None:
            self._learn_traffic(path, about, self.places, first.bundle, first.bundle.clock)
        elif not in_frame(self.places.lat, self.places.lon, next(iter(lattices.values())).lattice.spec.plane):
            raise MismatchError(f"{path} is from another city than the bundles: its places are outside their frame.")
        split = _split(None if first is None else first.record)
        self.trips = {trip.number: trip for trip in held_out_trips(path, self.places, split=split)}
        return split

    def _learn_traffic(self, path: Path, about: dict[str, Any], places: Places, bundle: Bundle, clock: Clock) -> None:
        if not np.array_equal(places.coordinates_e7, bundle.places_e7):
            raise MismatchError(f"{path} has other places than the bundles. Give the walks that they were built from.")
        if about.get("interval_s") != clock.interval_s:
            raise MismatchError(f"{path} has another interval than the bundles. Match again with theirs.")
        self.traffic = Traffic(
            path,
            places,
            interval_s=clock.interval_s,
            snapping_radius_m=bundle.snapping_radius_mm / 1000,
        )


def _around(lat: Floats, lon: Floats) -> tuple[float, float, float, float]:
    return float(lat.min()), float(lon.min()), float(lat.max()), float(lon.max())


def _explored(served: ServedBundle) -> ExploredBundle:
    path, record = record_path(served.path), None
    if path.is_file():
        try:
            record = read_record(path)
        except InputError as error:
            _log.warning("The page shows no losses of a bundle: %s", error)
        if record is not None and record.bundle_sha256 != served.sha256:
            _log.warning("%s is the record of another bundle; the page shows no losses.", path)
            record = None
    return ExploredBundle(served, record)


def _split(record: BuildRecord | None) -> Split:
    """Return how the build split its walks, or the usual way."""
    if record is None:
        return Split()
    options = record.config["held_out"]
    return Split(by=options["split"], held_out=options["held_out"], seed=options["seed"])


def _trip_facts(trip: Trip) -> dict[str, Any]:
    minutes = (trip.times[-1] - trip.times[0]).total_seconds() / 60
    return {
        "number": trip.number,
        "start": trip.times[0].isoformat(timespec="minutes"),
        "minutes": minutes,
        "steps": len(trip.times),
        "length_km": trip.length_km,
    }


def _bundle_facts(explored: ExploredBundle) -> dict[str, Any]:
    facts, costs, record = explored.facts, explored.bundle.costs, explored.record
    pasts = [mechanism["history_weights"] for mechanism in explored.guarantee["mechanisms"]]
    interval_s = None if facts.clock is None else facts.clock.interval_s
    return {
        "kind": "zones",
        "sha256": facts.sha256,
        "name": facts.name,
        "epsilon": facts.epsilon_per_km[-1],
        "eta_km": facts.eta_km[-1],
        "history_weights": max(pasts, key=len),
        "cost": costs.other / 1e6,
        "first_cost": costs.start / 1e6,
        "night_cost": None if interval_s is None else _night_cost(costs.other / 1e6, interval_s),
        "interval_s": interval_s,
        "regimes": [regime for regime in facts.regimes if regime != explored.start] or [explored.start],
        "start": explored.start,
        "zone": explored.zone.tolist(),
        "zones": facts.zones,
        "loss": None if record is None else {"words": record.loss, "unit": record.unit, "total": record.totals.loss},
        "guarantee": explored.guarantee["words"],
        "disclosed": facts.disclosed,
        "promise": [] if record is None else promise(record),
        "learned": learned_in_words(explored.bundle.training),
        "limits": limits(),
        "factors": [] if record is None else factor_table(record),
        "costs": [] if record is None else cost_table(record),
    }


def _night_cost(cost: float, interval_s: float) -> float:
    """Return what a night at one place costs if every report of it does, per km."""
    return round(math.ceil(NIGHT_S / interval_s) * cost, 6)


def _lattice_facts(explored: ExploredLattice) -> dict[str, Any]:
    facts, lattice = explored.facts, explored.lattice
    return {
        "kind": "lattice",
        "sha256": facts.sha256,
        "name": facts.name,
        "epsilon": lattice.epsilon,
        "history_weights": [],
        "cost": explored.costs.other / 1e6,
        "night_cost": lattice.epsilon if lattice.hold_mm else _night_cost(lattice.epsilon, explored.interval_s),
        "interval_s": explored.interval_s,
        "lattice": None if facts.lattice is None else asdict(facts.lattice),
        "figures": explored.figures,
        "loss": None,
        "guarantee": explored.guarantee["words"],
        "disclosed": facts.disclosed,
        "learned": learned_in_words(NOBODY),
        "limits": _LIMITS,
    }
