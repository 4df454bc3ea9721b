"""From what a night, an hour or a report may cost to a plan, in one call."""

from __future__ import annotations

from pathlib import Path

from geoblanket._arguments import checked
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._progress import Progress, silent
from geoblanket.errors import ParameterError
from geoblanket.mobility.walks import write_walks
from geoblanket.planning.judged_trips import judges_of_model, judges_of_roads
from geoblanket.planning.schedules import Budgets
from geoblanket.planning.search import Plan, search_plan
from geoblanket.roads.graph import RoadGraph
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["make_plan"]


@checked
@takes_frames(walks=write_walks)
def make_plan(
    roads: RoadGraph | str | Path | None = None,
    *,
    night: float | None = None,
    hour: float | None = None,
    report: float | None = None,
    walks: str | Path | AnyFrame | None = None,
    model: MotionModel | str | Path | None = None,
    spacing_m: float | None = None,
    error_m: float | None = None,
    private_day: bool = False,
    order: int = 2,
    trips: int = 600,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress = silent,
) -> Plan:
    """Choose how a vehicle should report: which anchor, which ε, and how often.

    Schedules within the budgets are tried on trips, and a tracker follows the reports: all figures are estimates by
    simulation. It takes a minute or so.

    Parameters
    ----------
    roads
        The road graph, or its file.
    night, hour, report
        What 8 hours at one place, an hour on the road and one report may cost at most, ε per kilometre; at least one of
        them. None: no limit.
    walks
        Walks on these roads, or `Walks` of a data frame: the trips of some vehicles then judge, instead of trips that
        nobody drove.
    model
        A motion model, or its file, instead of roads.
    spacing_m
        Without walks: least distance between places, metres; None: 250.
    error_m
        A mean error on the road that is small enough, metres: then the least cost is sought. None: the smallest error.
    private_day
        Nobody knows where the vehicle is by day: an anchor may stay for a day.
    order
        How many recent places the motion model knows.
    trips
        How many are followed for each schedule, at most.
    seed
        Another seed, other trips and draws.
    workers
        Number of processes; None for one per core.
    progress
        Called as the work goes on.

    Returns
    -------
    plan
        `print(plan)` says what to do, `plan.plot()` draws what an hour buys, and `make_lattice(roads, out,
        **plan.lattice)` does it.

    Raises
    ------
    UnmetPlanError
        If nothing within the budgets does what is needed: says which budgets would.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> from geoblanket import make_plan
    >>> plan = make_plan(graph, night=72, hour=240, spacing_m=500, trips=40, order=1, workers=1)
    >>> print(plan)
    Report every ... at ε = ... per km, with an anchor of ε₀ = 8 per km for an hour.
    On the road, a recipient who tracks the vehicle is then ... m off on average ...
    """
    budgets = Budgets(night=night, hour=hour, report=report)
    if (roads is None) == (model is None):
        raise ParameterError("A plan needs either roads or a motion model. Give one of them.")
    if model is not None and (walks is not None or spacing_m is not None):
        raise ParameterError("Walks and a spacing need roads: a motion model has its own places.")
    if roads is not None:
        judges = judges_of_roads(roads, walks=walks, spacing_m=spacing_m, order=order, seed=seed, progress=progress)
    elif model is not None:
        judges = judges_of_model(model, seed=seed)
    return search_plan(
        judges,
        budgets,
        need_m=error_m,
        private_day=private_day,
        trips=trips,
        seed=seed,
        workers=workers,
        progress=progress,
    )
