"""The content of the web page: one city with its roads and walks, and any lattice over it.

It concerns only places that a reader picks on the map: nobody's location is involved, and nothing is released.
"""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.build.city_lattice import HOLD_M
from geoblanket.build.record import read_record, record_path
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.mechanism.lattice.making import Area
from geoblanket.mobility.walks import MatchedWalks, Split
from geoblanket.planning.on_the_road import Judges
from geoblanket.planning.plan import Plan
from geoblanket.planning.search import make_plan
from geoblanket.planning.wishes import Wishes
from geoblanket.release.fence import NO_FENCES
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.limits import OVERLOADED, Refusal, Refused
from geoblanket.serve.service.bundles import BundleStore, ServedBundle
from geoblanket.serve.service.city_map import roads_geojson
from geoblanket.serve.service.life import MotionModels, Way, commute, drive, fits, held_out_trips, nights
from geoblanket.serve.service.settings import MadeLattices, Setting
from geoblanket.tracking.motion_model import MotionModel

NO_TRIP: Final = Refusal(404, "no_such_trip", "There is no such trip to replay.")
NO_FENCE: Final = Refusal(422, "no_fence", "No fence can lie there: it is too near to a pole.")
NO_CITY: Final = Refusal(404, "no_city", "Nothing that is served has a place on the map: serve a lattice, or roads.")

_MOST_LIVES, _TURN_S = 2, 30.0
"""Lives at once, and seconds that another one waits for its turn, since tracking takes seconds of a processor."""
_PLAN_S: Final = 120.0
_MOST_PLANS: Final = 32
_HOME: Final = (0.62, 0.35)
"""Where the home of the story is, northwards and eastwards, as shares of the city's sides. A vehicle in the middle
would seem easy to find: the middle is a good guess without any report."""
_EPSILON, _INTERVAL_S, _FENCE_KM = 2.0, 30, 1.0
"""Where the page begins if no lattice is served."""
_log = logging.getLogger(__name__)


class Explorer:
    """A city, any lattice over it, and the lives of vehicles there.

    Parameters
    ----------
    store
        The bundles that are served.
    roads
        The road graph to draw, and to drive on; None: there is neither.
    walks
        Walks on these roads, to replay; None: there are none.
    model
        A motion model for the tracker; None: it is learned from the roads and the training walks, as far as there are
        any.

    Raises
    ------
    MismatchError
        If the roads are of another city than the bundles, the walks belong to other roads or another city, or the
        motion model fits no bundle.
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
        self._of_store = _area_of(store)
        self.graph = None if roads is None else self._around_bundles(Path(roads))
        self.area = self._of_store if self.graph is None else _around(self.graph.lat, self.graph.lon)
        self._lattices = None if self.area is None else MadeLattices(self.area)
        self.trips: dict[int, Way] = {}
        self._walks = None if walks is None else Path(walks)
        matched, split = (None, Split()) if self._walks is None else self._take_walks(self._walks)
        given = None if model is None else self._fitting(Path(model))
        self.motion = MotionModels(given=given, graph=self.graph, walks=matched, split=split)
        self._began = threading.Event()
        self._turns, self._planning = threading.BoundedSemaphore(_MOST_LIVES), threading.Lock()
        self._simulated = lru_cache(_MOST_PLANS)(self._simulate)

    @property
    def lattices(self) -> MadeLattices:
        """Lattices over the city; raise Refused if nothing is known of a city."""
        if self._lattices is None:
            raise Refused(NO_CITY)
        return self._lattices

    @property
    def setting(self) -> Setting:
        """Where the page begins: the lattice of middle ε among those that are served, with a fence."""
        offered = sorted(filter(None, self._settings()), key=lambda setting: setting.epsilon)
        if offered:
            return offered[len(offered) // 2]
        return Setting(epsilon=_EPSILON, interval_s=_INTERVAL_S, hold_m=HOLD_M, fence_km=_FENCE_KM)

    def _settings(self) -> Iterator[Setting | None]:
        """Yield the setting of each bundle; None where the page cannot offer it."""
        for served in self._store.bundles:
            bundle = served.bundle
            yield Setting.of(bundle, fence_km=_FENCE_KM) if isinstance(bundle, LatticeBundle) else None

    @cached_property
    def home(self) -> tuple[float, float]:
        """Latitude and longitude of the home in the story, degrees; a drive ends at the nearest road."""
        area = self.lattices.area
        return area.south + _HOME[0] * (area.north - area.south), area.west + _HOME[1] * (area.east - area.west)

    @cached_property
    def roads(self) -> bytes | None:
        """The roads as GeoJSON, compressed by gzip: large, and always the same."""
        return None if self.graph is None else gzip.compress(roads_geojson(self.graph), compresslevel=5, mtime=0)

    @cached_property
    def scenery(self) -> bytes | None:
        """Names, water and parks as GeoJSON, compressed by gzip."""
        named = self.graph is not None and self.graph.scenery
        return gzip.compress(named, compresslevel=5, mtime=0) if named else None

    def overview(self) -> dict[str, Any]:
        """Return all that the page shows before anything is asked, as JSON values.

        The first call means that somebody opened the page: then a motion model is learned in the background.
        """
        area, graph = self.lattices.area, self.graph
        if graph is not None and not self._began.is_set():
            self._began.set()
            threading.Thread(target=self._prepare, name="motion model", daemon=True).start()
        return {
            "area": [area.south, area.west, area.north, area.east],
            "roads": graph is not None,
            "scenery": graph is not None and bool(graph.scenery),
            "credit": "" if graph is None else graph.credit,
            "trips": [] if graph is None else [{"number": n, **trip.facts(graph)} for n, trip in self.trips.items()],
            "setting": self.setting.model_dump(),
            "bundles": [
                {
                    "name": served.facts.name,
                    "promise": served.bundle.promise.in_one_sentence,
                    "setting": None if setting is None else setting.model_dump(),
                }
                for served, setting in zip(self._store.bundles, self._settings(), strict=True)
            ],
        }

    def life(self, setting: Setting, *, at: tuple[float, float] | None, trip: int | None) -> dict[str, Any]:
        """Return a drive home with its reports, and thirty nights there without and with the fence, as JSON values.

        Parameters
        ----------
        at
            Latitude and longitude of the home, degrees; None: somewhere in the city.
        trip
            The number of a trip of the walks, which ends at the home; None: the drive is made up.
        """
        if trip is not None and trip not in self.trips:
            raise Refused(NO_TRIP)
        bundle = self.lattices.bundle(setting).bundle
        (lat, lon), graph = at or self.home, self.graph
        with self._turn():
            way = None
            if graph is not None:
                interval_s = setting.interval_s
                way = commute(graph, lat, lon, interval_s=interval_s) if trip is None else self.trips[trip]
                way = way.in_slots(interval_s)
                lat, lon = float(graph.lat[way.nodes[-1]]), float(graph.lon[way.nodes[-1]])
            stay = partial(nights, bundle.lattice, lat, lon, interval_s=setting.interval_s, graph=graph)
            try:
                radius_km, fences, fence = setting.fence_km, NO_FENCES, None
                if radius_km is not None:
                    fences, fence = NO_FENCES.with_place(lat, lon, radius_km=radius_km)
                bare = stay(radius_km=None)
                fenced = fence and stay(radius_km=radius_km, fences=fences)
            except ParameterError as error:
                raise Refused(NO_FENCE) from error
            model = None if way is None else self.motion.of(bundle)
            driven = None
            if graph is not None and way is not None and model is not None:
                driven = drive(bundle, graph, way, model, fences)
        return {
            "home": [round(lon, 6), round(lat, 6)],
            "fence": fence and {"center": [fence.lon_e7 / 1e7, fence.lat_e7 / 1e7], "radius_m": fence.radius_m},
            "drive": driven,
            "bare": bare,
            "fenced": fenced,
        }

    def plan(self, wishes: Wishes, *, simulate: bool) -> Plan:
        """Return a plan by wishes: at once without errors on the road, or simulated on the city's roads."""
        if not simulate or self.graph is None:
            return make_plan(self.lattices.area, wishes)
        if not self._planning.acquire(timeout=_PLAN_S):
            raise Refused(OVERLOADED)
        try:
            return self._simulated(wishes)
        finally:
            self._planning.release()

    def _simulate(self, wishes: Wishes) -> Plan:
        return make_plan(self._judges, wishes, grid=False, workers=1)

    @cached_property
    def _judges(self) -> Judges:
        if self.graph is None:
            raise Refused(NO_CITY)
        return Judges.of_roads(self.graph, walks=self._walks)

    def _prepare(self) -> None:
        """Make what the page asks for first."""
        try:
            self.motion.of(self.lattices.bundle(self.setting).bundle)
        except Exception as error:
            _log.error("Learning a motion model failed with %s.", type(error).__name__)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_TURN_S):
            raise Refused(OVERLOADED)
        try:
            yield
        finally:
            self._turns.release()

    def _around_bundles(self, path: Path) -> RoadGraph:
        """Return the roads of a file, which must be of the bundles' city."""
        graph, area = RoadGraph.load(path), self._of_store
        if area is not None and not _share_inside(area, graph.lat, graph.lon):
            raise MismatchError(
                f"{path} has the roads of another city than the bundles. Give the roads that they were made from; "
                "serve bundles of different cities apart."
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
        walks = MatchedWalks.open(path, self.graph)
        split = next(filter(None, map(_split_of, self._store.bundles)), Split())
        self.trips = held_out_trips(walks, split=split)
        return walks, split


def _area_of(store: BundleStore) -> Area | None:
    """Return the area of the first bundle that has coordinates: of its places, or the frame of its lattice."""
    for served in store.bundles:
        if isinstance(bundle := served.bundle, LatticeBundle):
            return Area(*bundle.lattice.spec.plane.corners)
        if bundle.located:
            return _around(*(bundle.places_e7.T * 1e-7))
    return None


def _around(lat: Floats, lon: Floats) -> Area:
    return Area(float(lat.min()), float(lon.min()), float(lat.max()), float(lon.max()))


def _share_inside(area: Area, lat: Floats, lon: Floats) -> float:
    """Return the share of points in an area."""
    return float(
        np.mean((lat >= area.south) & (lat <= area.north) & ((lon - area.west) % 360 <= (area.east - area.west) % 360))
    )


def _split_of(served: ServedBundle) -> Split | None:
    """Return how the build of a bundle split its walks; None where its record is not beside it."""
    path = record_path(served.path)
    if not path.is_file():
        return None
    try:
        record = read_record(path)
    except InputError as error:
        _log.warning("It is not known which walks a bundle was built from: %s", error)
        return None
    options = record.config["held_out"]
    return Split(by=options["split"], held_out=options["held_out"], seed=options["seed"])
