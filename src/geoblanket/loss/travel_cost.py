"""Travel cost: how wrong the service is about the way from the vehicle to a task."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket._display import counted, short_repr
from geoblanket.loss.over_tasks import Effort, check_roads, mean_difference
from geoblanket.loss.place_loss import LossTable, check_places
from geoblanket.loss.tasks import TaskPrior
from geoblanket.roads.distances import Weight
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places

__all__ = ["TravelCost"]

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
