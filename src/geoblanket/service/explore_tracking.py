"""The recipient on the page: the tracker of `geoblanket.tracking`, with the best motion model that there is.

Where a city's roads are known, the motion model is one that was given, or is learned from the roads (and from the
training walks, if there are walks) when it is first needed. Elsewhere near places are more probable than far ones.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mobility.walks import Split, scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.service.explore_map import points
from geoblanket.tracking.estimate import Estimates, Estimator
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import Reports

__all__ = [
    "MotionModels",
    "ZoneAlone",
    "fits",
    "in_frame",
    "model_around",
    "model_facts",
    "track",
    "tracked_json",
    "typical_error_m",
    "unreported",
]

_SPACINGS_M: Final = (250.0, 350.0, 500.0, 700.0, 1000.0, 2000.0)
_MOST_PLACES: Final = 2500
"""Where nobody chose the places of a city, they are as far apart as leaves no more than this."""
_MOST_ACROSS: Final = 40
_LEAST_STEP_M: Final = 100.0
"""A grid without roads has at most the one from edge to edge, and points no nearer than the other."""
_MOST_KM: Final = 4.744
"""95 % of planar Laplace noise lies within this over ε."""
_OUTLIER_KM: Final = 15.0
"""Hardly any noise lies beyond this over ε."""
_SQUARE: Final = 6**-0.5
"""How far points of a square are from its middle, root mean square, in sides: a place of a grid stands for them."""
_SOURCES: Final = ("roads", "roads and walks", "distance", "private", "released")

_log = logging.getLogger(__name__)


class MotionModels:
    """The motion model for the reports of each bundle.

    Parameters
    ----------
    given
        A model from a file; it is used where it fits.
    graph
        The roads; None: there are none, and bundles have no model of the city.
    places
        Of the walks; None: there are none, and places are chosen on the roads.
    walks, split
        To learn from, and how the build split them: those held out are to be replayed, and are not learned from.
    """

    def __init__(
        self,
        *,
        given: MotionModel | None = None,
        graph: RoadGraph | None = None,
        places: Places | None = None,
        walks: Path | None = None,
        split: Split | None = None,
    ) -> None:
        self._given, self._graph, self._places, self._walks, self._split = given, graph, places, walks, split
        self._learned: dict[float, MotionModel | None] = {}
        self._lock = threading.Lock()

    def of(self, bundle: Bundle) -> MotionModel | None:
        """Return the model for a bundle's reports; None: nothing is known of its city. The first call may take long."""
        if bundle.clock is None:
            return None
        if self._given is not None and fits(self._given, bundle):
            return self._given
        interval_s = bundle.needed_clock().interval_s
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
        places = self._places if self._places is not None else _chosen_places(self._graph)
        walks = self._walks
        if walks is not None and (interval_s / float(scan_walks(walks)[1]["interval_s"])) % 1:
            walks = None  # their steps do not fit into the interval
        try:
            if walks is None:
                return learn_motion(self._graph, places, interval_s=interval_s)
            return learn_motion(self._graph, places, walks=walks, part="train", split=self._split)
        except InputError as error:
            _log.warning("The page's tracker knows no roads: %s", error)
            return None


def fits(model: MotionModel, bundle: Bundle) -> bool:
    """Return whether a tracker of a bundle's reports can use a model: same city, same places for zones, same clock."""
    if bundle.clock is None:
        return False
    try:
        model.steps_in(bundle.clock.interval_s)
    except MismatchError:
        return False
    if bundle.lattice is None:
        return np.array_equal(bundle.places_e7, model.places_e7)
    return in_frame(model.lat, model.lon, bundle.lattice.spec.plane)


def in_frame(lat: Floats, lon: Floats, plane: Plane) -> bool:
    """Return whether most of some points lie in the frame of a lattice, so that both are of one city."""
    return float(np.mean(plane.holds_many(lat, lon))) > 1 / 2


def _chosen_places(graph: RoadGraph) -> Places:
    for spacing_m in _SPACINGS_M:
        places = choose_places(graph, spacing_m=spacing_m)
        if len(places) <= _MOST_PLACES:
            break
    return places


class ZoneAlone:
    """The observation model of a recipient who learns the zones of reports and nothing else.

    Parameters
    ----------
    zone
        The zone of each place, shape (P,).
    """

    def __init__(self, zone: Indices, model: MotionModel, *, interval_s: float) -> None:
        self.interval_s, self.outputs = interval_s, len(zone)
        self._zone, self._of_state = zone, zone[model.present]

    def likelihood(self, reports: Reports) -> Singles:
        """Return 1 for the states in the zone of each report and 0 for others, shape (N, B)."""
        inside: Singles = (self._of_state[:, None] == self._zone[reports.output]).astype(np.float32)
        return inside


def model_around(lattice: Lattice, cells: Ints, *, interval_s: float) -> MotionModel:
    """Return a model on a grid as far around reports as the vehicle can be: near is more probable than far.

    Parameters
    ----------
    cells
        What was reported, shape (T,).
    """
    spec, plane = lattice.spec, lattice.spec.plane
    metre = 1000 / plane.unit_mm
    # In units: how far noise reaches, and beyond what a rare report would make the grid coarse.
    margin, outlier = (1000 * metre * reach / lattice.epsilon for reach in (_MOST_KM, _OUTLIER_KM))
    row, column = np.divmod(cells, spec.cells_across)
    axes = []
    for numbers in (column, row):
        at = numbers * spec.cell_units + spec.cell_units // 2
        near = at[np.abs(at - np.median(at)) <= outlier]
        axes.append((max(float(near.min()) - margin, 0.0), min(float(near.max()) + margin, plane.side - 1.0)))
    step = max(max(high - low for low, high in axes) / _MOST_ACROSS, _LEAST_STEP_M * metre)
    x, y = (part.ravel() for part in np.meshgrid(*(np.arange(low, high + 1, step) for low, high in axes)))
    lat, lon = plane.degrees(x, y)
    places_e7 = np.rint(np.column_stack([lat, lon]) * 1e7).astype(np.int32)
    return replace(MotionModel.by_distance(places_e7, interval_s=interval_s), spread_m=_SQUARE * step / metre)


def track(beliefs: BeliefFilter, slots: Ints, outputs: Ints) -> Estimates:
    """Follow one vehicle, and return where it is in each slot by its reports up to then; −1: no report in a slot."""
    estimator = Estimator(beliefs.model)
    lat, lon, radius_m = np.empty((3, len(slots)))

    def seen(positions: npt.NDArray[np.intp], states: Singles) -> None:
        estimates = estimator.estimates(beliefs.places(states))
        lat[positions], lon[positions], radius_m[positions] = estimates.lat, estimates.lon, estimates.radius_m

    follow(beliefs, Sequences(slots, outputs, np.zeros(1, np.int64)), seen)
    return Estimates(lat, lon, radius_m)


def unreported(beliefs: BeliefFilter, slots: Ints) -> Estimates:
    """Return where the vehicle is to somebody who gets no report, in each slot."""
    return track(beliefs, slots, np.full(len(slots), NO_REPORT, np.int64))


def typical_error_m(model: MotionModel) -> float:
    """Return how far off the best guess without any report is, on average over where vehicles are, metres."""
    usual = model.to_places @ model.usual
    guess = Estimator(model).estimates(usual[:, None])
    return float(haversine_m(guess.lat, guess.lon, model.lat, model.lon) @ usual / usual.sum())


def tracked_json(estimates: Estimates, lat: Floats, lon: Floats) -> dict[str, Any]:
    """Return estimates and how far they are from the truth, degrees, as JSON values."""
    return {
        "at": points(estimates.lat, estimates.lon),
        "radius_m": np.round(estimates.radius_m).tolist(),
        "error_m": np.round(haversine_m(lat, lon, estimates.lat, estimates.lon), 1).tolist(),
    }


def model_facts(model: MotionModel) -> dict[str, Any]:
    """Return what a model knows, for the page to say it; whatever a file says it was learned from."""
    source = model.learned.get("from")
    return {
        "from": source if source in _SOURCES else "a file",
        "order": model.memory,
        "places": model.place_count,
        "saw_all": model.learned.get("part") == "all",
        "learned": model.training.in_words(),
    }
