"""The life of a vehicle as the page shows it: a drive home, reported by a real device and tracked, then nights at home.

The attacker of the nights sees all reports, and takes the point that fits them best. With a fence that point is its
centre: the attacker also knows the radius and the streets, and takes the middle of the streets around the centre.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle, ZoneBundle
from geoblanket.mechanism.costs import NIGHT_S
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mobility.walks import MatchedWalks, Split, split_walks
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.serve.service.city_map import points, street_lines, way_home
from geoblanket.tracking.estimate import Estimates, Estimator, geometric_median
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles

_MOST_TRIPS: Final = 24
_LEAST_STEPS: Final = 8
_MOST_STEPS: Final = 240
_EVENING: Final = datetime(2026, 1, 12, 17, 30, tzinfo=UTC)
_DRIVE_S, _PARKED_S = 1500.0, 600.0
_DAY_S: Final = 86_400.0
_SPACINGS_M: Final = (250.0, 350.0, 500.0, 700.0, 1000.0, 2000.0)
_MOST_PLACES: Final = 2500
"""If nobody chose the places of a city, their spacing is widened until there are at most this many."""
_SOURCES: Final = ("roads", "roads and walks", "distance", "private", "released")
_NIGHTS: Final = 30
_MOST_LIVES, _LEAST_LIVES = 200, 4
_MOST_STREETS: Final = 1500
"""Nodes of streets that stand for all of them."""
_MOST_MODELS: Final = 4
_STEP_S: Final = 30.0
"""Of a motion model, for all intervals that are multiples of it."""
_SEED: Final = 7
_MOST_DRAWS: Final = 200_000
"""Draws of all lives together: about as many as a page can wait for."""
_ROUNDS: Final = 20
"""Each round about halves the distance from the best point."""
_NEAREST_KM: Final = 1e-3
"""A report at the estimate itself counts as this far from it, so that its weight is finite."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Way:
    """Where a vehicle truly is, report by report."""

    time_s: Floats
    """Since 1970, UTC, shape (T,)."""
    nodes: Indices
    """Of the road graph, shape (T,)."""

    def in_slots(self, interval_s: float) -> Way:
        """Return it with one report in a slot at most, as a device makes them."""
        slot = self.slots(interval_s)
        first = np.concatenate([[True], slot[1:] > slot[:-1]])
        return Way(self.time_s[first], self.nodes[first])

    def slots(self, interval_s: float) -> Ints:
        """Return the slot of each point: intervals since 1970, shape (T,)."""
        return np.floor(self.time_s / interval_s).astype(np.int64)

    def facts(self, graph: RoadGraph) -> dict[str, Any]:
        """Return when it begins, and how long it is along straight lines, as JSON values."""
        lat, lon = graph.lat[self.nodes], graph.lon[self.nodes]
        return {
            "start": datetime.fromtimestamp(float(self.time_s[0]), UTC).isoformat(timespec="minutes"),
            "minutes": float(self.time_s[-1] - self.time_s[0]) / 60,
            "steps": len(self.time_s),
            "length_km": float(haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum() / 1000),
        }


def held_out_trips(walks: MatchedWalks, *, split: Split) -> dict[int, Way]:
    """Return some walks that were held out, long ones, by their number and in order of time."""
    parts = split_walks(walks.frame, path=walks.path, part="held_out", split=split)
    held_out = walks.frame.filter(
        pl.col("walk").is_in(parts.walks[parts.chosen].tolist()), pl.col("step") < _MOST_STEPS
    )
    lengths = held_out.group_by("walk").agg(pl.len().alias("steps"), pl.col("place").n_unique().alias("different"))
    longest = lengths.filter(pl.col("steps") >= _LEAST_STEPS).sort(["different", "walk"], descending=[True, False])
    with reading_parquet(walks.path):
        chosen = longest.head(_MOST_TRIPS).collect()["walk"]
        rows = held_out.filter(pl.col("walk").is_in(chosen.to_list())).sort("walk", "step").collect()
    trips = {
        int(part["walk"][0]): Way(
            np.array([time.timestamp() for time in part["time"].to_list()]),
            walks.places.nodes[part["place"].to_numpy()],
        )
        for part in rows.partition_by("walk", maintain_order=True)
    }
    return dict(sorted(trips.items(), key=lambda trip: trip[1].time_s[0]))


def commute(graph: RoadGraph, lat: float, lon: float, *, interval_s: float) -> Way:
    """Return a made-up drive of about 25 minutes to the node nearest to a coordinate, where the vehicle parks."""
    nodes, time_s = way_home(graph, lat, lon, seconds=_DRIVE_S)
    at_s = np.arange(max(int((time_s[-1] + _PARKED_S) / interval_s), 1) + 1, dtype=np.float64) * interval_s
    sampled = nodes[np.minimum(np.searchsorted(time_s, at_s, side="right") - 1, len(nodes) - 1)]
    return Way(_EVENING.timestamp() + at_s, sampled)


def drive(bundle: LatticeBundle, graph: RoadGraph, way: Way, model: MotionModel, fences: Fences) -> dict[str, Any]:
    """Report a way by a device that may report in every slot, track it, and return both as JSON values.

    Parameters
    ----------
    model
        How vehicles move in this city.
    fences
        Those of the vehicle; the tracker does not know them.
    """
    lat, lon = graph.lat[way.nodes], graph.lon[way.nodes]
    whole = len(way.nodes) * max(bundle.costs) / 1e6
    # What is shown was verified when it was made.
    with Device.open(
        bundle,
        ledger=None,
        budget=Budget(whole, _DAY_S),
        policy=ANYTHING,
        replay=True,
        hold_in_memory=True,
        fences=fences,
    ) as device:
        reports = [device.report(*at) for at in zip(lat.tolist(), lon.tolist(), way.time_s.tolist(), strict=True)]
    reported_lat, reported_lon = np.array([(report.lat, report.lon) for report in reports]).T
    outputs = np.array([report.place for report in reports], np.int64)
    estimates = track(BeliefFilter.of(bundle, model), way.slots(bundle.needed_clock().interval_s), outputs)
    return {
        "times": [datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds") for time in way.time_s.tolist()],
        "true": points(lat, lon),
        "lines": street_lines(graph, way.nodes),
        "model": model_facts(model),
        "reports": points(reported_lat, reported_lon),
        "spent": [round(whole - report.left, 6) for report in reports],
        "tracked": {
            "at": points(estimates.lat, estimates.lon),
            "radius_m": np.round(estimates.radius_m).tolist(),
            "error_m": np.round(haversine_m(lat, lon, estimates.lat, estimates.lon), 1).tolist(),
        },
        "without_m": unreported_error_m(model),
    }


def track(beliefs: BeliefFilter, slots: Ints, outputs: Ints) -> Estimates:
    """Follow one vehicle, and return where it is in each slot by its reports up to then."""
    estimator = Estimator(beliefs.model)
    lat, lon, radius_m = np.empty((3, len(slots)))

    def seen(positions: npt.NDArray[np.intp], states: Singles) -> None:
        estimates = estimator.estimates(beliefs.places(states))
        lat[positions], lon[positions], radius_m[positions] = estimates.lat, estimates.lon, estimates.radius_m

    follow(beliefs, Sequences(slots, outputs, np.zeros(1, np.int64)), seen)
    return Estimates(lat, lon, radius_m)


def unreported_error_m(model: MotionModel) -> float:
    """Return how far off the best guess without any report is, on average over where vehicles are, metres."""
    usual = model.to_places @ model.usual
    guess = Estimator(model).estimates(usual[:, None])
    return float(haversine_m(guess.lat, guess.lon, model.lat, model.lon) @ usual / usual.sum())


def model_facts(model: MotionModel) -> dict[str, Any]:
    """Return what a model was learned from, in known words, for the page."""
    source = model.learned.get("from")
    return {
        "from": source if source in _SOURCES else "a file",
        "order": model.memory,
        "saw_all": model.learned.get("part") == "all",
        "learned": model.training.in_words(),
    }


class MotionModels:
    """The motion model for the reports of each bundle: given, or learned when it is first needed.

    Parameters
    ----------
    given
        A model from a file; it is used where it fits.
    graph
        The roads; None: there are none, and nothing is learned.
    walks
        To learn from; None: there are none, and places are chosen on the roads.
    split
        How the build split the walks: those held out are replayed, and not learned from.
    """

    def __init__(
        self,
        *,
        given: MotionModel | None = None,
        graph: RoadGraph | None = None,
        walks: MatchedWalks | None = None,
        split: Split | None = None,
    ) -> None:
        self._given, self._graph, self._walks, self._split = given, graph, walks, split or Split()
        self._of_step = lru_cache(_MOST_MODELS)(self._learn)
        self._lock = threading.Lock()

    def of(self, bundle: Bundle) -> MotionModel | None:
        """Return the model for a bundle's reports; None: nothing is known of its city. The first call may take long."""
        if bundle.clock is None:
            return None
        if self._given is not None and fits(self._given, bundle):
            return self._given
        interval_s = bundle.clock.interval_s
        with self._lock:
            model = self._of_step(interval_s if interval_s % _STEP_S else _STEP_S)
        return model if model is not None and fits(model, bundle) else None

    def _learn(self, interval_s: float) -> MotionModel | None:
        if self._graph is None:
            return None
        walks = self._walks
        places = _chosen_places(self._graph) if walks is None else walks.places
        try:
            if walks is None or (interval_s / walks.interval_s) % 1:  # their steps do not fit into the interval
                return learn_motion(self._graph, places, interval_s=interval_s)
            return learn_motion(self._graph, places, walks=walks.path, split=self._split)
        except InputError as error:
            _log.warning("The page's tracker knows no roads: %s", error)
            return None


def _chosen_places(graph: RoadGraph) -> Places:
    for spacing_m in _SPACINGS_M:
        places = choose_places(graph, spacing_m=spacing_m)
        if len(places) <= _MOST_PLACES:
            break
    return places


def fits(model: MotionModel, bundle: Bundle) -> bool:
    """Return whether a tracker of a bundle's reports can use a model: same city, same places for zones, same clock."""
    if bundle.clock is None:
        return False
    try:
        model.steps_in(bundle.clock.interval_s)
    except MismatchError:
        return False
    if isinstance(bundle, ZoneBundle):
        return np.array_equal(bundle.places_e7, model.places_e7)
    return in_frame(model.lat, model.lon, bundle.lattice.spec.plane)


def in_frame(lat: Floats, lon: Floats, plane: Plane) -> bool:
    """Return whether most of some points lie in the frame of a lattice, so that both are of one city."""
    return float(np.mean(plane.holds_many(lat, lon))) > 1 / 2


def nights(
    lattice: Lattice,
    lat: float,
    lon: float,
    *,
    interval_s: float,
    radius_km: float | None,
    fences: Fences = NO_FENCES,
    graph: RoadGraph | None = None,
) -> dict[str, Any]:
    """Simulate thirty nights at homes; return, as JSON values, means over many lives and the first life to draw.

    Parameters
    ----------
    lat, lon
        The home of the first life, degrees; the others have homes on the roads, if there are roads.
    interval_s
        Seconds from one report to the next; with hold it makes no difference.
    radius_km
        ρ of the fence around each home, kilometres; None: there are none.
    fences
        Those of the first life.

    Raises
    ------
    ParameterError
        If no fence can lie there.
    """
    reports = 1 if lattice.hold_mm else max(round(NIGHT_S / interval_s), 1)
    lives = int(np.clip(_MOST_DRAWS // (_NIGHTS * reports), _LEAST_LIVES, _MOST_LIVES))
    # Kilometres east and north of the first home: all of a city is near enough to it.
    scale = np.array([111.195 * np.cos(np.radians(lat)), 111.195])
    homes, streets = np.tile([lon, lat], (lives, 1)), None
    if graph is not None:
        rng, nodes = np.random.default_rng(_SEED), np.column_stack([graph.lon, graph.lat])
        homes[1:] = nodes[rng.integers(len(nodes), size=lives - 1)]
        streets = (nodes[rng.permutation(len(nodes))[:_MOST_STREETS]] - [lon, lat]) * scale
    seen = homes.copy()
    if radius_km is not None:
        drawn = [fences, *(NO_FENCES.with_place(y, x, radius_km=radius_km)[0] for x, y in homes[1:].tolist())]
        seen = np.array([(fence.lon_e7, fence.lat_e7) for fence in map(next, map(iter, drawn))]) * 1e-7
    seen_lon, seen_lat = np.repeat(seen, _NIGHTS * reports, axis=0).T
    reported_lat, reported_lon = lattice.centers(lattice.draw_many(seen_lat, seen_lon))
    reported = (np.column_stack([reported_lon, reported_lat]) - [lon, lat]) * scale
    guesses = _guesses(reported.reshape(lives, _NIGHTS, reports, 2))
    if radius_km is not None and streets is not None:
        guesses = _among_streets(guesses, streets, radius_km)
    off_m = 1000 * np.linalg.norm(guesses - ((homes - [lon, lat]) * scale)[:, None], axis=-1)
    shown, told = guesses[0] / scale, reported.reshape(lives, _NIGHTS, reports, 2)[0, :, -1] / scale
    return {
        "lives": lives,
        "draws": reports,
        "error_m": np.round(off_m.mean(axis=0), 1).tolist(),
        "circle_m": np.round(np.quantile(off_m, 0.9, axis=0), 1).tolist(),
        "reports": points(lat + told[:, 1], lon + told[:, 0]),
        "guesses": points(lat + shown[:, 1], lon + shown[:, 0]),
    }


def _among_streets(centers: Floats, streets: Floats, radius_km: float) -> Floats:
    """Return the middle of the streets within a radius of each point; the point itself where there are none."""
    flat = centers.reshape(-1, 2)
    near = (np.linalg.norm(flat[:, None] - streets, axis=-1) <= radius_km).astype(np.float32)
    count = near.sum(axis=1, keepdims=True)
    middle = np.where(count > 0, near @ streets / np.maximum(count, 1), flat)
    return middle.reshape(centers.shape)


def _guesses(reported: Floats) -> Floats:
    """Return the guess after each night, shape (lives, nights, 2), from reports, (lives, nights, reports, 2)."""
    _, nights, reports, _ = reported.shape
    best_fit = partial(geometric_median, nearest=_NEAREST_KM, rounds=_ROUNDS)
    if reports == 1:
        return np.stack([best_fit(reported[:, :night, 0]) for night in range(1, nights + 1)], axis=1)
    # The mean of equally good guesses is as good as the point that fits all of their many reports.
    nightly = best_fit(reported)
    mean: Floats = nightly.cumsum(axis=1) / np.arange(1, nights + 1)[:, None]
    return mean
