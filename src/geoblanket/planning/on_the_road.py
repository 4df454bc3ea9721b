"""How far off a recipient is on the road: trips are reported, and followed as a tracker follows them.

Reports are drawn in floating point, from a seed: planar Laplace noise at the share of ε that the cells of a lattice
leave of it. This is an estimate for choosing; devices draw exactly, from a lattice that was verified. All schedules
have the same trips and the same draws up to their scales, so that their errors can be compared more closely than their
standard errors say. Every report is a new draw: hold repeats those of a vehicle that waits, but places are further
apart than it reaches.

An error counts at every step of the motion model from the first report of a trip on, with a report or without. A trip
ends, and a vehicle that reports rarely is seen less often long after a report than it would be if it drove on: every
time since the last report counts alike.

The trips are those of held-out vehicles or, without any, simulated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from geoblanket._arrays import ArrayTable, Bools, Floats, Indices, Ints
from geoblanket._display import Progress, silent
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.planning.schedules import Schedule
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import LaplaceObservations
from geoblanket.tracking.synthetic_walks import DRAWN, PlaceDrawer, drive

__all__ = [
    "LATTICE_SHARE",
    "RADII_M",
    "JudgedTrips",
    "Judges",
    "RoadErrors",
    "TickErrors",
    "judges_of_model",
    "judges_of_roads",
    "laplace_m",
    "tick_errors",
]

_LEAST_STEPS: Final = 5
_LONGEST_STEPS: Final = 240
"""Longer trips are cut: one of them would count like many."""
_STEPS_OF_SAMPLED: Final = 40
_OTHER_SEED: Final = 1
"""Of trips that are driven to judge: not those that the model was learned from."""
_EXPECT_LARGER: Final = "Real vehicles are less predictable, so expect larger errors."
RADII_M: Final = (100.0, 250.0, 533.4, 563.88)
"""The last two are 1,750 and 1,850 feet: what laws of the United States call precise geolocation."""
LATTICE_SHARE: Final = 0.993
"""Of ε, what cells of 200/ε metres leave."""


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


@dataclass(frozen=True, eq=False)
class TickErrors(ArrayTable):
    """Errors at the steps of trips."""

    error_m: Floats
    """Shape (n,)."""
    age: Ints
    """Steps since the last report, shape (n,)."""
    trip: Ints
    """Shape (n,)."""


@dataclass(frozen=True)
class RoadErrors:
    """How far off a recipient is on the road."""

    error_m: float
    """Mean over every time since the last report alike, metres."""
    standard_error_m: float
    """Of the mean, over trips that are independent."""
    error_at_reports_m: float
    """Mean at the steps that report, metres. With hold a vehicle at rest tells no more than its last report."""
    error_of_steps_m: float
    """Mean over all steps of the trips as they are, metres."""
    within: Mapping[float, float]
    """How often the error is at most this many metres."""
    trips: int
    steps: int

    @classmethod
    def of(cls, errors: TickErrors) -> RoadErrors:
        """Summarise the errors at steps."""
        seen = np.bincount(errors.age)
        weight = 1.0 / (len(seen) * np.maximum(seen, 1)[errors.age])
        weight /= weight.sum()
        of_age = np.bincount(errors.age, errors.error_m) / np.maximum(seen, 1)
        by_trip = np.bincount(errors.trip, weight * (errors.error_m - of_age[errors.age]))
        return cls(
            error_m=float(weight @ errors.error_m),
            standard_error_m=float(np.sqrt((by_trip**2).sum())),
            error_at_reports_m=float(of_age[0]),
            error_of_steps_m=float(errors.error_m.mean()),
            within={radius: float(weight @ (errors.error_m <= radius)) for radius in RADII_M},
            trips=len(np.unique(errors.trip)),
            steps=len(errors.trip),
        )


def laplace_m(epsilon: float, radius: Floats, angle: Floats) -> Floats:
    """Return planar Laplace noise, metres east and north, shape (..., 2).

    Parameters
    ----------
    epsilon
        Per kilometre.
    radius
        Draws of the gamma distribution with shape 2 and scale 1.
    angle
        Draws of 0 to 2π.
    """
    noise: Floats = (1000 / epsilon * radius)[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return noise


def tick_errors(schedule: Schedule | None, model: MotionModel, trips: JudgedTrips, *, seed: int = 0) -> TickErrors:
    """Report trips and follow them.

    Parameters
    ----------
    schedule
        How they report; None: not at all.
    model
        What the recipient knows of how vehicles move.
    seed
        The same seed gives the same draws, whatever the schedule.
    """
    every = 1 if schedule is None else model.steps_in(schedule.interval_s)
    # Without any report all is prediction; the observation model is then never asked.
    epsilon = 1.0 if schedule is None else LATTICE_SHARE * schedule.epsilon
    rng, steps = np.random.default_rng(seed), len(trips.place)
    noise_m = laplace_m(epsilon, rng.gamma(2.0, 1.0, steps), rng.uniform(0, 2 * np.pi, steps))
    # A trip may start at any time since the last report; it counts from its first report on.
    first = np.floor(rng.random(len(trips)) * every).astype(np.int64)
    trip = np.repeat(np.arange(len(trips), dtype=np.int64), trips.lengths)
    since: Ints = np.arange(steps, dtype=np.int64) - trips.starts[trip] - first[trip]
    kept = since >= 0
    trip, since, truth = trip[kept], since[kept], model.xy_m[trips.place[kept]]
    lat, lon = model.to_degrees(truth + noise_m[kept])
    beliefs = BeliefFilter(model, LaplaceObservations(lat, lon, model, epsilon=epsilon, interval_s=model.interval_s))
    age, estimator, error_m = since % every, Estimator(model), np.empty(len(trip))
    output = np.where((age == 0) & (schedule is not None), np.arange(len(trip)), NO_REPORT)

    def note(positions: Ints, belief: Singles) -> None:
        apart = estimator.points(beliefs.places(belief)) - truth[positions]
        error_m[positions] = np.hypot(apart[:, 0], apart[:, 1])

    follow(beliefs, Sequences(since, output, np.flatnonzero(np.diff(trip, prepend=-1))), note)
    return TickErrors(error_m, age, trip)
