"""The content of the web page: bundles of one city, with its roads and walks if they were given.

It concerns only places that a reader picks on the map: nobody's location is involved, and nothing is released.
"""

from __future__ import annotations

import gzip
import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats, Indices
from geoblanket._geodesy import haversine_m
from geoblanket.build.record import BuildRecord, read_record, record_path
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.storage import LatticeBundle, ZoneBundle
from geoblanket.mechanism.costs import NIGHT_S
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.mechanism.promise import laplace_errors
from geoblanket.mobility.walks import MatchedWalks, Split
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.limits import OVERLOADED, Refused
from geoblanket.serve.service.bundles import BundleStore, ServedBundle
from geoblanket.serve.service.city_map import roads_geojson
from geoblanket.serve.service.replay import MotionModels, Way, fits, held_out_trips, in_frame
from geoblanket.tracking.motion_model import MotionModel

_MOST_REPLAYS, _TURN_S = 2, 15.0
"""Replays at once, and seconds that another one waits for its turn."""
_BLOCKS_ACROSS: Final = 71
"""Blocks of cells across the heat map: a city has some hundred thousand cells, too many to send."""
_REACH: Final = 1.3
"""Reach of the heat map, as a multiple of the distance within which 95 % of reports lie."""
_log = logging.getLogger(__name__)

Area = tuple[float, float, float, float]
"""South, west, north and east, degrees."""


class ExploredZones:
    """A bundle with zones, by place and regime.

    Parameters
    ----------
    served
        What is published about it.
    bundle
        Itself.
    record
        Of its build, for losses; None: it is not there.
    """

    def __init__(self, served: ServedBundle, bundle: ZoneBundle, record: BuildRecord | None) -> None:
        self.served, self.bundle, self.record = served, bundle, record
        self._mechanisms = {(bundled.zone, bundled.regime): bundled for bundled in self.bundle}
        self._tables: dict[tuple[str, str], HistoryTable] = {}

    @property
    def start(self) -> str | None:
        """The regime of reports without history; None: the bundle does not say."""
        return None if self.bundle.clock is None else self.bundle.clock.start

    @cached_property
    def zone(self) -> Indices:
        """The number of the zone of each place among `facts.zones`, −1 for none, shape (P,)."""
        result = np.full(len(self.bundle.places_e7), -1, np.int32)
        for (name, _), bundled in self._mechanisms.items():
            result[bundled.histories[:, 0]] = self.served.facts.zones.index(name)
        return result

    def outlook(self, place: int, previous: int | None, regime: str) -> dict[str, Any] | None:
        """Return what would be reported from a place, as JSON values; None: it has no mechanism in that regime.

        Parameters
        ----------
        previous
            The place before; None: there is no history. If the mechanism looks further back, even earlier places count
            as the same one.
        """
        count = len(self.zone)
        if place >= count or (previous is not None and previous >= count) or self.zone[place] < 0:
            return None
        key = self.served.facts.zones[self.zone[place]], regime
        if (bundled := self._mechanisms.get(key)) is None:
            return None
        if key not in self._tables:
            self._tables[key] = HistoryTable(self.bundle.places_e7, bundled.histories, bundled.history_rows)
        history = np.array([[place] if previous is None else [place, previous]])
        probability = bundled.mechanism.weights[self._tables[key].row_of(history)[0]] / 2.0**62
        outputs = bundled.output_places
        lat, lon = self.bundle.places_e7.T * 1e-7
        distance_m = haversine_m(lat[place], lon[place], lat[outputs], lon[outputs])
        order = np.argsort(distance_m, kind="stable")
        half = order[np.searchsorted(np.cumsum(probability[order]), 0.5)]
        zones = () if self.record is None else self.record.zones
        record = next((zone for zone in zones if (zone.zone, zone.regime) == key), None)
        return {
            "outputs": outputs.tolist(),
            "probability": probability.tolist(),
            "error_m": float(probability @ distance_m),
            "median_error_m": float(distance_m[half]),
            "exact": float(probability[outputs == place].sum()),
            "places": int((self.zone == self.zone[place]).sum()),
            "loss": None if record is None else record.loss,
            "lower_bound": None if record is None else record.lower_bound,
            "unit": None if record is None else record.unit,
        }

    def facts(self) -> dict[str, Any]:
        """Return all that the page shows before anything is asked, as JSON values."""
        record, facts = self.record, self.served.facts
        pasts = [mechanism["history_weights"] for mechanism in self.served.guarantee["mechanisms"]]
        return {
            **_facts(self.served, facts.epsilon_per_km[-1]),
            "kind": "zones",
            "history_weights": max(pasts, key=len),
            "regimes": [regime for regime in facts.regimes if regime != self.start] or [self.start],
            "start": self.start,
            "zone": self.zone.tolist(),
            "zones": facts.zones,
            "loss": None if record is None else record.loss,
        }


class ExploredLattice:
    """A bundle with a lattice, by coordinate."""

    def __init__(self, served: ServedBundle, bundle: LatticeBundle) -> None:
        self.served, self.bundle, self.lattice = served, bundle, bundle.lattice
        self.interval_s: float = bundle.needed_clock().interval_s

    def heat(self, lat: float, lon: float) -> dict[str, Any]:
        """Return where reports from a coordinate fall, around it: blocks of cells, as JSON values.

        Blocks go from west to east, then from south to north. Each has the probability of a hectare within it.

        Parameters
        ----------
        lat, lon
            Degrees; outside the frame, its nearest point counts.
        """
        spec, cell_m = self.lattice.spec, self.lattice.cell_m
        plane, n, across = spec.plane, spec.cell_units, spec.cells_across
        x, y = (int(value) for value in plane.units(lat, lon))
        reach_m = _REACH * 1000 * laplace_errors(self.lattice.epsilon).most_km
        cells = max(math.ceil(2 * reach_m / cell_m / _BLOCKS_ACROSS), 1)
        half = math.ceil(reach_m / cell_m / cells) * cells + cells // 2
        (left, columns), (low, rows) = (_blocks(value // n - half, 2 * half + 1, cells, across) for value in (x, y))
        whole = self.lattice.weights_at(x, y).reshape(across, across)
        part = whole[low : low + rows * cells, left : left + columns * cells]
        blocks = (part / DENOMINATOR / (cell_m / 100) ** 2).reshape(rows, cells, columns, cells).mean(axis=(1, 3))
        (south, next_south), (west, next_west) = plane.degrees(
            [left * n, (left + cells) * n], [low * n, (low + cells) * n]
        )
        return {
            "south": float(south),
            "west": float(west),
            "north_step": float(next_south - south),
            "east_step": float((next_west - west) % 360),
            "columns": columns,
            "cells": cells,
            "per_hectare": [float(f"{value:.3g}") for value in blocks.ravel().tolist()],  # as a colour needs
        }

    def facts(self) -> dict[str, Any]:
        """Return all that the page shows before anything is asked, as JSON values."""
        lattice, errors = self.lattice, laplace_errors(self.lattice.epsilon)
        facts = _facts(self.served, lattice.epsilon)
        return {
            **facts,
            "kind": "lattice",
            "history_weights": [],
            "night_cost": lattice.epsilon if lattice.hold_mm else facts["night_cost"],
            "lattice": None if self.served.facts.lattice is None else asdict(self.served.facts.lattice),
            "figures": {
                "error_m": 1000 * errors.mean_km,
                "median_error_m": 1000 * errors.median_km,
                "most_error_m": 1000 * errors.most_km,
            },
        }


def _facts(served: ServedBundle, epsilon: float) -> dict[str, Any]:
    """Return what the page shows of any bundle."""
    facts, cost = served.facts, served.bundle.costs.other / 1e6
    interval_s = None if facts.clock is None else facts.clock.interval_s
    return {
        "sha256": facts.sha256,
        "name": facts.name,
        "epsilon": epsilon,
        "cost": cost,
        "night_cost": None if interval_s is None else round(math.ceil(NIGHT_S / interval_s) * cost, 6),
        "interval_s": interval_s,
        "promise": served.bundle.promise.as_json(),
    }


def _blocks(start: int, length: int, cells: int, across: int) -> tuple[int, int]:
    """Return the first cell, and how many whole blocks there are, of a stretch that is cut off at the frame's edges."""
    first, end = max(start, 0), min(start + length, across)
    return first, max((end - first) // cells, 1)


class Explorer:
    """The bundles of a store that are on one map, and the city around them.

    Those with zones have the places of the first one; those with a lattice have a frame around its middle.

    Parameters
    ----------
    store
        The bundles that are served.
    roads
        The road graph to draw, and to replay drives on; None: there is neither.
    walks
        Walks on these roads, to replay; None: there are none.
    model
        A motion model for the tracker of replays; None: it is learned from the roads and the training walks, as far as
        there are any.

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
    ) -> None:
        self._store = store
        self._zones: dict[str, ExploredZones] = {}
        self._lattices: dict[str, ExploredLattice] = {}
        self.graph = None if roads is None else self._around_bundles(Path(roads))
        self.trips: dict[int, Way] = {}
        matched, split = (None, Split()) if walks is None else self._take_walks(Path(walks))
        self.motion = MotionModels(
            given=None if model is None else self._fitting(Path(model)),
            graph=self.graph,
            walks=matched,
            split=split,
        )
        self._began = threading.Event()
        self._turns = threading.BoundedSemaphore(_MOST_REPLAYS)

    @property
    def zones(self) -> dict[str, ExploredZones]:
        """Bundles with the same places as the first that has places, by hash."""
        located = self._located
        self._zones = {
            bundle.sha256: self._zones.get(bundle.sha256) or ExploredZones(served, bundle, _record(served))
            for served, bundle in located
            if np.array_equal(bundle.places_e7, located[0][1].places_e7)
        }
        return self._zones

    @property
    def lattices(self) -> dict[str, ExploredLattice]:
        """Bundles with a lattice around the middle of the map, by hash."""
        middle = self.middle
        self._lattices = {
            bundle.sha256: self._lattices.get(bundle.sha256) or ExploredLattice(served, bundle)
            for served in self._store.bundles
            if isinstance(bundle := served.bundle, LatticeBundle)
            and middle is not None
            and bundle.lattice.spec.plane.holds(middle[1], middle[0])
        }
        return self._lattices

    @property
    def middle(self) -> tuple[float, float] | None:
        """Longitude and latitude of the middle of the map: of the places, or of the first lattice's frame."""
        if self._first is None:
            return None
        bundle = self._first.bundle
        if isinstance(bundle, ZoneBundle):
            lat, lon = bundle.places_e7.mean(axis=0) / 1e7
        else:
            plane = bundle.lattice.spec.plane
            lat, lon = plane.degrees(plane.side // 2, plane.side // 2)
        return float(lon), float(lat)

    @property
    def _first(self) -> ServedBundle | None:
        """The bundle that decides which city is on the map: the first with places, or else with a lattice."""
        lattices = (served for served in self._store.bundles if isinstance(served.bundle, LatticeBundle))
        return next((served for served, _ in self._located), next(lattices, None))

    @property
    def _located(self) -> list[tuple[ServedBundle, ZoneBundle]]:
        """Bundles that have zones with coordinates."""
        return [
            (served, bundle)
            for served in self._store.bundles
            if isinstance(bundle := served.bundle, ZoneBundle) and bundle.located
        ]

    @property
    def area(self) -> Area | None:
        """The area of the city's roads, or else of its places; None: there are neither."""
        if self.graph is not None:
            return _around(self.graph.lat, self.graph.lon)
        first = next(iter(self.zones.values()), None)
        return None if first is None else _around(*(first.bundle.places_e7.T * 1e-7))

    @cached_property
    def roads(self) -> bytes | None:
        """The roads as GeoJSON, compressed by gzip: large, and always the same."""
        return None if self.graph is None else gzip.compress(roads_geojson(self.graph), compresslevel=5, mtime=0)

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

        The first call means that somebody opened the page: then motion models are learned in the background.
        """
        explored: dict[str, ExploredZones | ExploredLattice] = {**self.zones, **self.lattices}
        if not self._began.is_set():
            self._began.set()
            self.motion.begin([served.bundle for served in self._store.bundles])
        first = next(iter(self._zones.values()), None)
        graph, trips = self.graph, self.trips.items()
        return {
            "places": [] if first is None else (first.bundle.places_e7[:, ::-1] / 1e7).tolist(),
            "middle": self.middle,
            "area": self.area,
            "roads": graph is not None,
            "credit": "" if graph is None else graph.credit,
            "trips": [] if graph is None else [{"number": number, **trip.facts(graph)} for number, trip in trips],
            "left_out": len(self._store.bundles) - len(explored),
            "bundles": [explored[served.sha256].facts() for served in self._store.bundles if served.sha256 in explored],
        }

    def _around_bundles(self, path: Path) -> RoadGraph:
        """Return the roads of a file, which must be of the city on the map."""
        graph = RoadGraph.load(path)
        if self._first is None:
            return graph
        bundle = self._first.bundle
        if isinstance(bundle, LatticeBundle):
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

    def _take_walks(self, path: Path) -> tuple[MatchedWalks, Split]:
        """Return walks, which must be of the bundles' city, and how the build split them."""
        if self.graph is None:
            raise InputError("walks are shown on roads", path=path, hint="Give the roads too, with --roads")
        first, lattices = next(iter(self.zones.values()), None), self.lattices
        walks = MatchedWalks.open(path, self.graph)
        if first is not None and first.bundle.clock is not None:
            _check_same(walks, first.bundle)
        elif not lattices:
            raise MismatchError("Walks can be shown for bundles with places and a clock, or with a lattice, only.")
        elif not in_frame(walks.places.lat, walks.places.lon, next(iter(lattices.values())).lattice.spec.plane):
            raise MismatchError(f"{path} is from another city than the bundles: its places are outside their frame.")
        split = _split(None if first is None else first.record)
        self.trips = held_out_trips(walks, split=split)
        return walks, split


def _around(lat: Floats, lon: Floats) -> Area:
    return float(lat.min()), float(lon.min()), float(lat.max()), float(lon.max())


def _check_same(walks: MatchedWalks, bundle: ZoneBundle) -> None:
    if not np.array_equal(walks.places.coordinates_e7, bundle.places_e7):
        raise MismatchError(f"{walks.path} has other places than the bundles. Give the walks they were built from.")
    if walks.interval_s != bundle.needed_clock().interval_s:
        raise MismatchError(f"{walks.path} has another interval than the bundles. Match again with theirs.")


def _record(served: ServedBundle) -> BuildRecord | None:
    """Return the record of a bundle's build, if it lies beside the bundle."""
    path = record_path(served.path)
    if not path.is_file():
        return None
    try:
        record = read_record(path)
    except InputError as error:
        _log.warning("The page shows no losses of a bundle: %s", error)
        return None
    if record.bundle_sha256 != served.sha256:
        _log.warning("%s is the record of another bundle; the page shows no losses.", path)
        return None
    return record


def _split(record: BuildRecord | None) -> Split:
    """Return how the build split its walks, or the usual way."""
    if record is None:
        return Split()
    options = record.config["held_out"]
    return Split(by=options["split"], held_out=options["held_out"], seed=options["seed"])
