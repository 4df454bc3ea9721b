"""The error of a recipient on the road: simulated reports of trips, followed by a tracker.

Reports are drawn in floating point, from a seed: planar Laplace noise with the share of ε that the cells of a lattice
leave. This is an estimate for choosing a schedule; devices draw exactly, from a verified lattice. All schedules use the
same trips and, up to their scale, the same draws. So differences between their errors are more certain than their
standard errors suggest. Every report is a new draw: hold reaches less far than the distance between places.

Walks tell the place of a vehicle, so its coordinates are drawn around that place, by the spread of the motion model.
Errors are distances from these coordinates. They count at every step of the motion model from the first report of a
trip on, with or without a report. Because trips end, steps long after a report are rarer than on an endless trip. So
the mean gives every time since the last report the same weight.

The trips are those of held-out vehicles or, without walks, simulated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import ArrayTable, Bools, Floats, Indices, Ints
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.walks import MatchedWalks, Split, split_walks, write_walks
from geoblanket.planning.schedules import Schedule
from geoblanket.roads.graph import RoadGraph, reorder_ragged
from geoblanket.roads.places import choose_places
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import LaplaceObservations
from geoblanket.tracking.synthetic_walks import DRAWN, PlaceDrawer, drive

_LEAST_STEPS: Final = 5
_LONGEST_STEPS: Final = 240
"""Longer trips are cut, because one of them would count like many."""
_SAMPLED, _STEPS_OF_SAMPLED = 2000, 40
DEFAULT_TRIPS: Final = 600
_OTHER_SEED: Final = 1
"""Added to the seed of simulated trips to judge by: they differ from those that the model was learned from."""
_EXPECT: Final = "Real vehicles are less predictable, so expect larger errors."
RADII_M: Final = (100.0, 250.0, 533.4, 563.88)
"""The last two are 1,750 and 1,850 feet: what laws of the United States call precise geolocation."""
LATTICE_SHARE: Final = 0.9965
"""Share of ε that cells of 140/ε metres leave for the noise."""


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
        """Take the trips of 5 steps or more; cut them after 240 steps."""
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
        """Return at most `count` of the trips, drawn without replacement."""
        if count >= len(self):
            return self
        order = np.random.default_rng(seed).permutation(len(self))[:count]
        return self.chosen(np.sort(order))

    def chosen(self, trips: Ints) -> JudgedTrips:
        """Return some trips, in this order."""
        offsets, steps = reorder_ragged(np.append(self.starts, len(self.place)), trips)
        return JudgedTrips(self.place[steps], offsets[:-1])


@checked
@dataclass(frozen=True, eq=False)
class Judges:
    """A motion model and trips to judge schedules by; the model was not learned from these trips.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> from geoblanket.planning import Judges
    >>> len(Judges.of_roads(graph, spacing_m=500, order=1, trips=40).trips)
    40
    """

    model: MotionModel
    trips: JudgedTrips
    words: str
    """What the trips are, as a sentence."""
    seed: int = 0
    """Seed of the reports."""

    @classmethod
    @checked
    @takes_frames(walks=write_walks)
    def of_roads(
        cls,
        roads: RoadGraph | str | Path,
        *,
        walks: str | Path | AnyFrame | None = None,
        spacing_m: float | None = None,
        order: int = 2,
        trips: int = DEFAULT_TRIPS,
        seed: int = 0,
        progress: Progress = silent,
    ) -> Judges:
        """Learn a motion model from roads, and from the walks of most vehicles; return it with trips of the others.

        Parameters
        ----------
        roads
            A road graph, or its file.
        walks
            Walks on these roads, or `Walks` of a data frame. None: the model knows the roads alone, and the trips are
            simulated over them.
        spacing_m
            Least distance between places, metres; by default that of the walks, or 250 without walks.
        order
            The order of the motion model.
        trips
            The largest number of trips for each schedule.
        seed
            Seed of the choice of trips, and of the fifth of the vehicles that is held out.
        """
        _check_trips(trips)
        graph = roads if isinstance(roads, RoadGraph) else RoadGraph.load(roads)
        if walks is None:
            places = choose_places(graph, spacing_m=250.0 if spacing_m is None else spacing_m)
            model = learn_motion(graph, places, order=order, seed=seed, progress=progress)
            driven = drive(
                graph, places, interval_s=model.interval_s, trips=4000, seed=seed + _OTHER_SEED, progress=progress
            )
            judged = JudgedTrips.of(driven.place, driven.step == 0)
            words = f"There are no walks: trips were driven over the roads by the rules that the model knows. {_EXPECT}"
        else:
            matched = MatchedWalks.open(walks, graph)
            if spacing_m is not None and spacing_m != matched.places.spacing_m:
                raise ParameterError(
                    f"The walks are between places {matched.places.spacing_m:g} m apart. Got {spacing_m:g} m instead: "
                    "leave it out."
                )
            split = Split(seed=seed)
            model = learn_motion(graph, matched.places, walks=walks, split=split, order=order, progress=progress)
            judged, words = _held_out_trips(matched, split)
        if not len(judged):
            raise InputError(
                f"has no trip of {_LEAST_STEPS} steps or more to judge by",
                path=walks if walks is not None else None if isinstance(roads, RoadGraph) else roads,
                hint="Give more walks or roads",
            )
        return cls(model, judged.some(trips, seed=seed), words, seed)

    @classmethod
    @checked
    def of_model(cls, model: MotionModel | str | Path, *, trips: int = DEFAULT_TRIPS, seed: int = 0) -> Judges:
        """Return a motion model, or one from a file, with trips sampled from it."""
        _check_trips(trips)
        model = model if isinstance(model, MotionModel) else MotionModel.load(model)
        place = PlaceDrawer(model).places(np.full(_SAMPLED, _STEPS_OF_SAMPLED), np.random.default_rng(seed))
        words = f"There are no walks: trips were sampled from the motion model itself. {_EXPECT}"
        judged = JudgedTrips.of(place, np.arange(len(place)) % _STEPS_OF_SAMPLED == 0)
        return cls(model, judged.some(trips, seed=seed), words, seed)

    def __repr__(self) -> str:
        return short_repr(self, counted(len(self.trips), "trip"), counted(self.model.place_count, "place"))


def _check_trips(trips: int) -> None:
    if trips < 1:
        raise ParameterError(f"A plan is judged by 1 trip or more. Got {trips} instead.")


def _held_out_trips(matched: MatchedWalks, split: Split) -> tuple[JudgedTrips, str]:
    """Return the trips of held-out vehicles, and a sentence about them."""
    parts = split_walks(matched.frame, path=matched.path, part="held_out", split=split)
    with reading_parquet(matched.path):
        table = matched.frame.select("walk", "step", "place").sort("walk", "step").collect()
    _, held_out = parts.of(table["walk"].to_numpy())
    trips = JudgedTrips.of(table["place"].to_numpy()[held_out], table["step"].to_numpy()[held_out] == 0)
    if matched.about.get("method") == DRAWN:
        return trips, f"The walks were {DRAWN}, not driven. {_EXPECT}"
    vehicles = len(np.unique(parts.vehicle[parts.chosen]))
    return trips, f"{len(trips):,} trips of {vehicles:,} vehicles that the motion model was not learned from."


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
    """The error of a recipient on the road."""

    error_m: float
    """Mean error, metres; every time since the last report has the same weight."""
    standard_error_m: float
    """Standard error of the mean, over independent trips, metres."""
    error_at_reports_m: float
    """Mean error at the steps with a report, metres. With hold a vehicle at rest tells no more than that."""
    error_of_steps_m: float
    """Mean error over all steps of the trips, metres."""
    within: Mapping[float, float]
    """How often the error is at most a radius, by radius in metres."""
    trips: int
    steps: int

    @classmethod
    def of(cls, errors: TickErrors) -> RoadErrors:
        """Summarise the errors at steps."""
        # Weights make every age (steps since a report) equally heavy; the residuals of a trip are correlated, so
        # they are summed by trip before they are squared.
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
    """Simulate the reports of trips, track them, and return the errors at all steps.

    Parameters
    ----------
    schedule
        How the vehicles report; None: not at all.
    model
        The recipient's motion model.
    seed
        The same seed gives the same draws, whatever the schedule.
    """
    every = 1 if schedule is None else model.steps_in(schedule.interval_s)
    # Without any report the filter only predicts, and never uses the observation model.
    epsilon = 1.0 if schedule is None else LATTICE_SHARE * schedule.epsilon
    rng, steps = np.random.default_rng(seed), len(trips.place)
    noise_m = laplace_m(epsilon, rng.gamma(2.0, 1.0, steps), rng.uniform(0, 2 * np.pi, steps))
    # The first report comes at a random step of the first interval; errors count from there on.
    first = np.floor(rng.random(len(trips)) * every).astype(np.int64)
    trip = np.repeat(np.arange(len(trips), dtype=np.int64), trips.lengths)
    since: Ints = np.arange(steps, dtype=np.int64) - trips.starts[trip] - first[trip]
    kept = since >= 0
    # Trips are sequences of places. A vehicle is near its place, not at it: errors are those of true coordinates.
    off_m = model.spread_m / 2**0.5 * rng.normal(size=(steps, 2))
    trip, since, truth = trip[kept], since[kept], (model.xy_m[trips.place] + off_m)[kept]
    lat, lon = model.to_degrees(truth + noise_m[kept])
    beliefs = BeliefFilter(model, LaplaceObservations(lat, lon, model, epsilon=epsilon, interval_s=model.interval_s))
    age, estimator, error_m = since % every, Estimator(model), np.empty(len(trip))
    output = np.where((age == 0) & (schedule is not None), np.arange(len(trip)), NO_REPORT)

    def note(positions: Ints, belief: Singles) -> None:
        apart = estimator.points(beliefs.places(belief)) - truth[positions]
        error_m[positions] = np.hypot(apart[:, 0], apart[:, 1])

    follow(beliefs, Sequences(since, output, np.flatnonzero(np.diff(trip, prepend=-1))), note)
    return TickErrors(error_m, age, trip)
