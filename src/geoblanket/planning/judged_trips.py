"""Trips that a plan is judged by: held-out vehicles, or, without any, simulated trips."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from geoblanket._arrays import Bools, Indices, Ints
from geoblanket._progress import Progress, silent
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.splitting import Split, split_walks
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.synthetic_walks import DRAWN, PlaceDrawer, drive

__all__ = ["JudgedTrips", "Judges", "judges_of_model", "judges_of_roads"]

_LEAST_STEPS: Final = 5
_LONGEST_STEPS: Final = 240
"""Longer trips are cut: one of them would count like many."""
_STEPS_OF_SAMPLED: Final = 40
_OTHER_SEED: Final = 1
"""Of trips that are driven to judge: not those that the model was learned from."""
_EXPECT_LARGER: Final = "Real vehicles are less predictable, so expect larger errors."


@dataclass(frozen=True, eq=False)
class JudgedTrips:
    """Places of vehicles at each step of a motion model, trip after trip."""

    place: Indices
    """Shape (steps,)."""
    starts: Ints
    """Where each trip starts, shape (trips,)."""

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, place: Indices, is_start: Bools) -> JudgedTrips:
        """Take trips of 5 steps or more from steps one after the other; cut those of more than 240."""
        starts = np.flatnonzero(is_start)
        number = np.cumsum(is_start) - 1
        length = np.diff(np.append(starts, len(place)))
        step = np.arange(len(place)) - starts[number]
        kept = (length[number] >= _LEAST_STEPS) & (step < _LONGEST_STEPS)
        return cls(place[kept].astype(np.int32), np.flatnonzero(step[kept] == 0))

    @property
    def lengths(self) -> Ints:
        """Steps of each trip, shape (trips,)."""
        return np.diff(np.append(self.starts, len(self.place)))

    def some(self, count: int, *, seed: int) -> JudgedTrips:
        """Return a number of the trips, drawn without replacement; all where there are no more."""
        if count >= len(self):
            return self
        order = np.random.default_rng(seed).permutation(len(self))[:count]
        return self.chosen(np.sort(order))

    def chosen(self, trips: Ints) -> JudgedTrips:
        """Return some trips, in this order."""
        lengths = self.lengths[trips]
        starts = np.cumsum(lengths) - lengths
        position = np.arange(lengths.sum()) + np.repeat(self.starts[trips] - starts, lengths)
        return JudgedTrips(self.place[position], starts)


@dataclass(frozen=True, eq=False)
class Judges:
    """A motion model, and trips that it was not learned from."""

    model: MotionModel
    trips: JudgedTrips
    words: str
    """What the trips are, as a sentence."""


def judges_of_roads(
    roads: RoadGraph | str | Path,
    *,
    walks: str | Path | None = None,
    spacing_m: float | None = None,
    interval_s: float | None = None,
    order: int = 2,
    seed: int = 0,
    progress: Progress = silent,
) -> Judges:
    """Learn a motion model from roads, and from the walks of most vehicles; return it with trips of the others.

    Parameters
    ----------
    roads
        A road graph, or its file.
    walks
        Walks on these roads; without, the model knows the roads alone, and judges trips driven over them.
    spacing_m
        Least distance between places, metres; walks have their own. By default 250.
    interval_s
        Seconds of a step; walks have their own. By default 30.
    seed
        Chooses the vehicles that are held out: a fifth.
    """
    graph = roads if isinstance(roads, RoadGraph) else RoadGraph.load(roads)
    if walks is None:
        places = choose_places(graph, spacing_m=250.0 if spacing_m is None else spacing_m)
        model = learn_motion(graph, places, order=order, interval_s=interval_s, seed=seed, progress=progress)
        driven = drive(
            graph, places, interval_s=model.interval_s, trips=4000, seed=seed + _OTHER_SEED, progress=progress
        )
        trips = JudgedTrips.of(driven.place, driven.step == 0)
        words = (
            f"There are no walks: trips were driven over the roads by the rules that the model knows. {_EXPECT_LARGER}"
        )
        return _checked(Judges(model, trips, words), None if isinstance(roads, RoadGraph) else roads)
    frame, about = scan_walks(walks)
    if spacing_m is not None and spacing_m != about["spacing_m"]:
        raise ParameterError(
            f"The walks are between places {about['spacing_m']:g} m apart. Got {spacing_m:g} m instead: leave it out."
        )
    places = choose_places(graph, spacing_m=about["spacing_m"])
    split = Split(seed=seed)
    model = learn_motion(
        graph, places, walks=walks, part="train", split=split, order=order, interval_s=interval_s, progress=progress
    )
    parts = split_walks(frame, path=walks, part="held_out", split=split)
    with reading_parquet(walks):
        table = frame.select("walk", "step", "place").sort("walk", "step").collect()
    _, held_out = parts.of(table["walk"].to_numpy())
    place, step = table["place"].to_numpy()[held_out], table["step"].to_numpy()[held_out]
    _check_places(place, places, walks)
    trips = JudgedTrips.of(place, step == 0)
    vehicles = len(np.unique(parts.vehicle[parts.chosen]))
    words = f"{len(trips):,} trips of {vehicles:,} vehicles that the motion model was not learned from."
    if about.get("method") == DRAWN:
        words = f"The walks were {DRAWN}, not driven. {_EXPECT_LARGER}"
    return _checked(Judges(model, trips, words), walks)


def judges_of_model(model: MotionModel | str | Path, *, trips: int = 2000, seed: int = 0) -> Judges:
    """Return a motion model, or one from a file, with trips sampled from it."""
    model = model if isinstance(model, MotionModel) else MotionModel.load(model)
    place = PlaceDrawer(model).places(np.full(trips, _STEPS_OF_SAMPLED), np.random.default_rng(seed))
    words = f"There are no walks: trips were sampled from the motion model itself. {_EXPECT_LARGER}"
    return Judges(model, JudgedTrips.of(place, np.arange(len(place)) % _STEPS_OF_SAMPLED == 0), words)


def _checked(judges: Judges, path: str | Path | None) -> Judges:
    if not len(judges.trips):
        raise InputError(
            f"has no trip of {_LEAST_STEPS} steps or more to judge by", path=path, hint="Give more walks or roads"
        )
    return judges


def _check_places(place: Indices, places: Places, path: str | Path) -> None:
    if len(place) and not 0 <= place.min() <= place.max() < len(places):
        raise InputError("has places that the roads do not have", path=path, hint="Match the traces again")
