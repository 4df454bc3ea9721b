"""The losses that come with geoblanket: straight line, travel cost and nearest vehicle.

Nearest vehicle: how often a wrong place makes the service mistaken about which vehicle is nearest to a task.
A vehicle competes with n others, each at a place drawn independently from the same prior, whose places the service
knows. The vehicle *has the shortest way* to a task if no other vehicle is strictly nearer: a tie counts as shortest.
The service errs if the vehicle has the shortest way from exactly one of its true place l and its reported place y.

Let d_l and d_y be the ways to the task from l and y, and M the shortest way of the others. The vehicle has the shortest
way from l if d_l ≤ M, and from y if d_y ≤ M. One of these events contains the other, so the probability of exactly one
is the difference of theirs:

    P(error | task) = |G(d_l) − G(d_y)|,   G(d) = P(M ≥ d) = (1 − P(D < d))^n,

where D is the way to the task from a place drawn from the prior: the n others are all at least as far as d. So the
error rate is exact without any trial, and has the form of a travel cost with G(path) in place of path.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.loss.place_loss import LossTable, check_places
from geoblanket.loss.tasks import Effort, TaskPrior, check_roads, mean_difference
from geoblanket.roads.distances import Weight
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places


@checked
@dataclass(frozen=True, eq=False)
class StraightLine:
    """The great-circle distance between the true and the reported place, kilometres.

    Parameters
    ----------
    places
        The places.
    """

    places: Places
    name: str = "straight line"
    unit: str = "km"

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the distance of each reported place from each true one, kilometres; see `PlaceLoss`."""
        row = check_places(true_places, len(self.places), "true places")[:, None]
        column = check_places(reported, len(self.places), "reported places")[None, :]
        lat, lon = self.places.lat, self.places.lon
        return LossTable(haversine_m(lat[row], lon[row], lat[column], lon[column]) / 1000)

    def __repr__(self) -> str:
        return short_repr(self, f"in {self.unit}", counted(len(self.places), "place"))


_PER_UNIT = {"length": 1000.0, "time": 60.0}


@checked
@dataclass(frozen=True, eq=False)
class TravelCost:
    """`Σ_task p_task |path(l, task) − path(y, task)|`: the mean error of the estimated way to a task.

    The way leads from the vehicle to the task, along one-way roads in their direction. The loss is symmetric, zero
    where the true place is reported, and keeps the triangle inequality.

    Parameters
    ----------
    graph
        The roads. Every place must reach every task on them.
    places
        The places, of these roads.
    tasks
        Where tasks are.
    by
        `length` for kilometres along the road, `time` for minutes at free-flow speed.
    effort
        Whether all tasks are used or a sample, memory and cores.
    """

    graph: RoadGraph
    places: Places
    tasks: TaskPrior
    by: Weight = "length"
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        check_roads(self.graph, self.places, self.tasks, self.by)

    @property
    def name(self) -> str:
        """What is lost."""
        return f"travel cost by {self.by}"

    @property
    def unit(self) -> str:
        """Kilometres or minutes."""
        return "km" if self.by == "length" else "min"

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the loss of each reported place for each true one, kilometres or minutes; see `PlaceLoss`."""
        nodes, count = self.places.nodes, len(self.places)
        return mean_difference(
            self.graph,
            self.tasks,
            nodes[check_places(true_places, count, "true places")],
            nodes[check_places(reported, count, "reported places")],
            by=self.by,
            effort=self.effort,
            profile=self._in_unit,
        )

    def _in_unit(self, distances: Floats, _: Floats) -> Floats:
        return np.divide(distances, _PER_UNIT[self.by], out=distances)

    def __repr__(self) -> str:
        places = counted(len(self.places), "place")
        return short_repr(self, f"by {self.by}", f"in {self.unit}", places, f"tasks at {len(self.tasks):,} nodes")


_PRIOR_TOLERANCE = 1e-9
_DECIMALS = 6
"""Ways are compared to a micrometre or a microsecond: ways of the same length are added up from different pieces, and
rounding must not decide which of them is shorter."""


@checked
@dataclass(frozen=True, eq=False)
class NearestVehicle:
    """The probability that the service is mistaken about whether this vehicle is the nearest to a task.

    Parameters
    ----------
    graph
        The roads. Every place with a true or reported vehicle must reach every task on them; other vehicles that cannot
        are never nearer.
    places
        The places, of these roads.
    tasks
        Where tasks are.
    vehicle_prior
        How probable it is that another vehicle is at each place, shape (P,); sums to 1 within 1e-9.
    vehicles
        How many vehicles there are, this one included.
    by
        Nearest by `length` or by `time`.
    effort
        Whether all tasks are used or a sample, memory and cores.
    """

    graph: RoadGraph
    places: Places
    tasks: TaskPrior
    vehicle_prior: Floats
    vehicles: int = 50
    by: Weight = "length"
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        check_roads(self.graph, self.places, self.tasks, self.by)
        if self.vehicles < 2:
            raise ParameterError(f"There must be 2 or more vehicles. Got {self.vehicles} instead.")
        prior = np.array(self.vehicle_prior, np.float64)
        if prior.shape != (len(self.places),) or not (np.isfinite(prior) & (prior >= 0)).all():
            raise ParameterError(
                f"The vehicle prior must have a finite number, not negative, for each of {len(self.places)} places. "
                f"Got shape {prior.shape} instead, or numbers that are not."
            )
        if not abs(prior.sum() - 1) <= _PRIOR_TOLERANCE:
            raise ParameterError(f"The vehicle prior must sum to 1. It sums to {prior.sum():.9g} instead.")
        prior.setflags(write=False)
        object.__setattr__(self, "vehicle_prior", prior)

    @property
    def name(self) -> str:
        """What is lost."""
        return f"nearest of {self.vehicles} vehicles by {self.by}"

    @property
    def unit(self) -> str:
        """A probability has no unit but this."""
        return "error rate"

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the error rate of each reported place for each true one, from 0 to 1; see `PlaceLoss`."""
        nodes, count = self.places.nodes, len(self.places)
        present = self.vehicle_prior > 0
        prior = self.vehicle_prior[present]

        def profile(distances: Floats, others: Floats) -> Floats:
            return _shortest_probability(distances, others, prior, self.vehicles - 1)

        return mean_difference(
            self.graph,
            self.tasks,
            nodes[check_places(true_places, count, "true places")],
            nodes[check_places(reported, count, "reported places")],
            by=self.by,
            effort=self.effort,
            other_nodes=nodes[present],
            profile=profile,
        )

    def __repr__(self) -> str:
        vehicles = counted(self.vehicles, "vehicle")
        return short_repr(
            self, f"by {self.by}", vehicles, counted(len(self.places), "place"), f"tasks at {len(self.tasks):,} nodes"
        )


def _shortest_probability(distances: Floats, others: Floats, prior: Floats, count: int) -> Floats:
    """Return P(M ≥ d) for the distances d to each task, in place.

    Parameters
    ----------
    distances
        Shape (places, tasks).
    others
        Distances from where another vehicle may be, shape (V, tasks).
    prior
        How probable each of these is, shape (V,).
    count
        How many others there are.
    """
    np.round(distances, _DECIMALS, out=distances)
    np.round(others, _DECIMALS, out=others)
    for task in range(distances.shape[1]):
        order = np.argsort(others[:, task])
        nearer = np.concatenate([[0.0], np.cumsum(prior[order])])
        strictly = np.searchsorted(others[order, task], distances[:, task], side="left")
        distances[:, task] = np.clip(1 - nearer[strictly], 0, 1) ** count
    return distances
