"""Replays for the web page: a recipient tracks a drive, or finds a home over nights.

A drive is a held-out trip, or a made-up one. A real device, with its budget in memory, makes its reports. The recipient
is the tracker of `geoblanket.tracking`, who knows the city's roads by a motion model. Walks are true paths of vehicles,
so the service accepts them only on a loopback address, and the page says what they are.

A home is measured on simulated lives. Each life draws a fence of its own, comes home every evening, and reports by the
lattice of the bundle. With hold a night is one draw; without it every report of the night is one. The attacker knows
the mechanism, and takes the point that fits all reports so far best. Streets and habits would help beyond that.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.bundle.storage import Bundle, ZoneBundle
from geoblanket.mechanism.costs import NIGHT_S
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mobility.walks import MatchedWalks, Split, split_walks
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.release.fence import NO_FENCES
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.serve.service.city_map import points, street_drive, street_lines
from geoblanket.tracking.estimate import Estimates, Estimator, geometric_median
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles

_MOST_TRIPS: Final = 24
_LEAST_STEPS: Final = 8
_MOST_STEPS: Final = 240
_MORNING: Final = datetime(2026, 1, 12, 8, tzinfo=UTC)
_DRIVE_S: Final = 2700.0
_DAY_S: Final = 86_400.0
_SPACINGS_M: Final = (250.0, 350.0, 500.0, 700.0, 1000.0, 2000.0)
_MOST_PLACES: Final = 2500
"""If nobody chose the places of a city, their spacing is widened until there are at most this many."""
_SOURCES: Final = ("roads", "roads and walks", "distance", "private", "released")
_NIGHTS: Final = 30
_MOST_LIVES, _LEAST_LIVES = 200, 12
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


def made_up_drive(lattice: Lattice, graph: RoadGraph, lat: float, lon: float, *, interval_s: float) -> Way | None:
    """Return a drive of 45 minutes over the roads near a coordinate; None: there are no roads near by."""
    inside = lattice.spec.plane.holds_many(graph.lat, graph.lon)
    nodes = street_drive(graph, lat, lon, seconds=_DRIVE_S, interval_s=interval_s, inside=inside)
    if nodes is None:
        return None
    return Way(_MORNING.timestamp() + np.arange(len(nodes), dtype=np.float64) * interval_s, nodes)


def replay(bundle: Bundle, graph: RoadGraph, way: Way, model: MotionModel) -> dict[str, Any]:
    """Report a way by a device that may report in every slot, track it, and return both as JSON values.

    Parameters
    ----------
    model
        How vehicles move in this city.
    """
    lat, lon = graph.lat[way.nodes], graph.lon[way.nodes]
    whole = len(way.nodes) * max(bundle.costs) / 1e6
    # What is shown was accepted when it was loaded.
    with Device.open(
        bundle, ledger=None, budget=Budget(whole, _DAY_S), policy=ANYTHING, replay=True, hold_in_memory=True
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
        "error_m": np.round(haversine_m(lat, lon, reported_lat, reported_lon), 1).tolist(),
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
        self._learned: dict[float, MotionModel | None] = {}
        self._lock = threading.Lock()

    def of(self, bundle: Bundle) -> MotionModel | None:
        """Return the model for a bundle's reports; None: nothing is known of its city. The first call may take long."""
        if bundle.clock is None:
            return None
        if self._given is not None and fits(self._given, bundle):
            return self._given
        interval_s = bundle.clock.interval_s
        with self._lock:
            if interval_s not in self._learned:
                self._learned[interval_s] = self._learn(interval_s)
        model = self._learned[interval_s]
        return model if model is not None and fits(model, bundle) else None

    def begin(self, bundles: list[Bundle]) -> None:
        """Learn in the background what will be asked for."""

        def learn() -> None:
            try:
                for bundle in bundles:
                    self.of(bundle)
            except Exception as error:
                _log.error("Learning a motion model failed with %s.", type(error).__name__)

        if self._graph is not None:
            threading.Thread(target=learn, name="motion model", daemon=True).start()

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


def live_at_home(
    lattice: Lattice, lat: float, lon: float, *, interval_s: float, hold: bool, radius_km: float | None
) -> dict[str, Any]:
    """Simulate thirty nights at a home; return, as JSON values, means over many lives and one life to draw.

    Parameters
    ----------
    lat, lon
        The home, degrees.
    interval_s
        Seconds from one report to the next; with hold it makes no difference.
    hold
        Whether reports at rest are held, so that a night is one draw.
    radius_km
        ρ of the fence around the home, kilometres; None: there is none.

    Raises
    ------
    ParameterError
        If no fence can lie there.
    """
    reports = 1 if hold else max(round(NIGHT_S / interval_s), 1)
    lives = int(np.clip(_MOST_DRAWS // (_NIGHTS * reports), _LEAST_LIVES, _MOST_LIVES))
    fences = [
        NO_FENCES if radius_km is None else NO_FENCES.with_place(lat, lon, radius_km=radius_km)[0] for _ in range(lives)
    ]
    at_e7 = [fence.apply_e7(round(lat * 1e7), round(lon * 1e7)) for fence in fences]
    seen_lat, seen_lon = np.repeat(np.array(at_e7) * 1e-7, _NIGHTS * reports, axis=0).T
    reported_lat, reported_lon = lattice.centers(lattice.draw_many(seen_lat, seen_lon))
    # Kilometres east and north of the home: an attacker's figures do not depend on where that is.
    scale = np.array([111.195 * np.cos(np.radians(lat)), 111.195])
    reported = np.column_stack([reported_lon - lon, reported_lat - lat]).reshape(lives, _NIGHTS, reports, 2) * scale
    guesses = _guesses(reported)
    off_m = 1000 * np.hypot(*np.moveaxis(guesses, -1, 0))
    shown, told = guesses[0] / scale, reported[0, :, -1] / scale
    fence = next(iter(fences[0]), None)
    return {
        "lives": lives,
        "draws": reports,
        "fence": None
        if fence is None
        else {
            "center": [fence.lon_e7 / 1e7, fence.lat_e7 / 1e7],
            "radius_m": fence.radius_m,
            "delta_100_m": fence.delta(0.1),
        },
        "error_m": np.round(off_m.mean(axis=0), 1).tolist(),
        "circle_m": np.round(np.quantile(off_m, 0.9, axis=0), 1).tolist(),
        "reports": points(lat + told[:, 1], lon + told[:, 0]),
        "guesses": points(lat + shown[:, 1], lon + shown[:, 0]),
    }


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
