"""What the web page asks about: bundles of the same places, with roads and walks if they were given."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.build.record import BuildRecord, read_record, record_path
from geoblanket.build.report_words import cost_table, factor_table, limits, promise
from geoblanket.errors import InputError, MismatchError
from geoblanket.mobility.histories import check_walks
from geoblanket.mobility.splitting import Split
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.service.explore_bundle import ExploredBundle, ZoneView
from geoblanket.service.explore_map import PlaceCells, roads_geojson
from geoblanket.service.explore_replay import Trip, held_out_trips
from geoblanket.service.explore_traffic import Traffic
from geoblanket.service.store import BundleStore, ServedBundle

__all__ = ["Explorer", "Prior"]

Prior = Literal["equal", "traffic"]
"""A recipient's prior: all places of the zone equally probable, or vehicles move as in the walks."""

_log = logging.getLogger(__name__)


class Explorer:
    """The bundles of a store that have the places of its first one, and the city around them.

    Parameters
    ----------
    store
        The bundles that are served.
    roads
        The road graph to draw; None: only places and zones are drawn.
    walks
        Walks on these roads, for replays and for what a recipient knows of traffic; None: there is neither.

    Raises
    ------
    MismatchError
        If the walks belong to other roads, places or another interval than the bundles.
    InputError
        If a file cannot be read.
    """

    def __init__(self, store: BundleStore, *, roads: str | Path | None = None, walks: str | Path | None = None) -> None:
        self._store = store
        self._explored: dict[str, ExploredBundle] = {}
        self._graph = None if roads is None else RoadGraph.load(roads)
        self.places: Places | None = None
        self.traffic: Traffic | None = None
        self.trips: dict[int, Trip] = {}
        if walks is not None:
            self._take_walks(Path(walks))

    @property
    def bundles(self) -> dict[str, ExploredBundle]:
        """What can be explored, by hash: bundles with the same places as the first that has places."""
        located = [served for served in self._store.bundles if served.bundle.located]
        same = [served for served in located if np.array_equal(served.bundle.places_e7, located[0].bundle.places_e7)]
        self._explored = {served.sha256: self._explored.get(served.sha256) or _explored(served) for served in same}
        return self._explored

    @cached_property
    def roads(self) -> bytes | None:
        """The roads as GeoJSON."""
        return None if self._graph is None else roads_geojson(self._graph)

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

    def overview(self) -> dict[str, Any]:
        """Return all that the page shows before anything is asked, as JSON values."""
        bundles = self.bundles
        first = next(iter(bundles.values()), None)
        degrees = [] if first is None else (first.bundle.places_e7[:, ::-1] / 1e7).tolist()
        return {
            "places": degrees,
            "roads": self._graph is not None,
            "traffic": self.traffic is not None,
            "trips": [_trip_facts(trip) for trip in self.trips.values()],
            "left_out": len(self._store.bundles) - len(bundles),
            "bundles": [
                _bundle_facts(bundles[served.sha256]) for served in self._store.bundles if served.sha256 in bundles
            ],
        }

    def _take_walks(self, path: Path) -> None:
        if self._graph is None:
            raise InputError("walks are shown on roads", path=path, hint="Give the roads too, with --roads")
        first = next(iter(self.bundles.values()), None)
        if first is None or first.bundle.clock is None:
            raise MismatchError("Walks can be shown for bundles with places and a clock only.")
        _, about = scan_walks(path)
        self.places = choose_places(self._graph, spacing_m=float(about.get("spacing_m", 0.0)))
        check_walks(path, about, self.places)
        if not np.array_equal(self.places.coordinates_e7, first.bundle.places_e7):
            raise MismatchError(f"{path} has other places than the bundles. Give the walks that they were built from.")
        if about.get("interval_s") != first.bundle.clock.interval_s:
            raise MismatchError(f"{path} has another interval than the bundles. Match again with theirs.")
        self.traffic = Traffic(
            path,
            self.places,
            interval_s=first.bundle.clock.interval_s,
            snapping_radius_m=first.bundle.snapping_radius_mm / 1000,
        )
        trips = held_out_trips(path, self.places, split=_split(first.record))
        self.trips = {trip.number: trip for trip in trips}


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
    return {
        "sha256": facts.sha256,
        "name": facts.name,
        "epsilon": facts.epsilon_per_km[-1],
        "eta_km": facts.eta_km[-1],
        "history_weights": max(pasts, key=len),
        "cost": costs.other / 1e6,
        "first_cost": costs.start / 1e6,
        "interval_s": None if facts.clock is None else facts.clock.interval_s,
        "regimes": [regime for regime in facts.regimes if regime != explored.start] or [explored.start],
        "start": explored.start,
        "zone": explored.zone.tolist(),
        "zones": facts.zones,
        "loss": None if record is None else {"words": record.loss, "unit": record.unit, "total": record.totals.loss},
        "guarantee": explored.guarantee["words"],
        "disclosed": facts.disclosed,
        "promise": [] if record is None else promise(record),
        "limits": limits(),
        "factors": [] if record is None else factor_table(record),
        "costs": [] if record is None else cost_table(record),
    }
