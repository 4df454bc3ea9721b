"""Find the schedule that keeps wishes: closed forms and certainty first, then the error on the road by simulation.

For each interval, the candidate is the largest ε that keeps the wishes for privacy. All candidates are judged by the
same trips and draws. With a wish for the road, every ε is then changed by one factor: the least that keeps the wish.
The wishes for privacy come first: where both cannot be kept, the road gets what they allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._display import Progress, silent
from geoblanket._workers import count_workers, run_tasks
from geoblanket.mechanism.costs import HOUR_S, LARGEST_EPSILON, SMALLEST_EPSILON
from geoblanket.mechanism.lattice.making import Area
from geoblanket.planning.on_the_road import JudgedTrips, Judges, RoadErrors, TickErrors, tick_errors
from geoblanket.planning.plan import Plan, Rated
from geoblanket.planning.schedules import Schedule
from geoblanket.planning.wishes import Wishes, affordable, made_epsilon
from geoblanket.roads.graph import RoadGraph
from geoblanket.tracking.motion_model import MotionModel

GRID_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
"""The ε of the table in every plan: ε of a report, by interval."""
_GRID_STEPS: Final = (1, 2, 4, 8)
_STEPS: Final = (1, 2, 4, 8, 20)
"""Steps of the motion model from one report to the next."""
_STEP_S: Final = 30.0
"""A step where there is no motion model."""
_ENOUGH_TRIPS: Final = 20
_CHUNKS: Final = 4
_S_PER_CELL: Final = 4e-8
_FALL: Final = 0.7
"""Errors on the road fall about as ε to the power of −.7: a first guess."""
_NEAR_ENOUGH: Final = (0.97, 1.04)
"""An error that is within 3 % of the wish, or a factor of ε within 4 % of the least, ends the search."""


@checked
def make_plan(
    judges: Judges | RoadGraph | MotionModel | Area,
    wishes: Wishes | None = None,
    *,
    grid: bool = True,
    workers: int | None = None,
    progress: Progress = silent,
) -> Plan:
    """Choose how a vehicle should report, by wishes: its ε, its interval, and the fence around a home.

    Fence and certainty follow from the mechanism: they need no simulation. Errors on the road are estimates: schedules
    are tried on trips, and a tracker follows the reports.

    Parameters
    ----------
    judges
        A motion model, and trips to judge by. A road graph stands for `Judges.of_roads(graph)`, a motion model for
        `Judges.of_model(model)`. For an `Area` nothing is simulated: the plan comes at once, and tells nothing about
        the error on the road.
    wishes
        What reports may tell, and how near they must be. Of plans that keep them all, this is the one with the smallest
        error on the road; with a wish for the road, the one that tells least. If they conflict, the plan keeps those
        for privacy, and `plan.outcomes` says what becomes of each.
    grid
        Whether to judge a table of ε by interval as well, whatever the wishes.
    workers
        Number of processes; None for one per core.
    progress
        Called as the work goes on.

    Returns
    -------
    plan
        `print(plan)` says what to do, and `plan.plot()` draws errors by certainty. `make_lattice(roads, out,
        **plan.lattice)` makes the bundle, and `ledger.add_fence(lat, lon, radius_km=plan.fence_km)` the fence.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> from geoblanket import Wishes, make_plan
    >>> from geoblanket.planning import Judges
    >>> judges = Judges.of_roads(graph, spacing_m=500, trips=40, order=1)
    >>> plan = make_plan(judges, Wishes(home_m=350, sure=0.9), workers=1)
    >>> print(plan)
    Report every ... at ε = ... per km, held within 50 m, with a fence of 0.62 km around a home.
    On the road, a recipient who tracks the vehicle is then ... m off on average ...
    """
    wishes = Wishes() if wishes is None else wishes
    if isinstance(judges, Area):
        # For the same certainty, many reports of a small ε tell a tracker as much as few of a large one, and sooner.
        corners = (judges.south, judges.west, judges.north, judges.east)
        return Plan(wishes=wishes, schedule=affordable(wishes, interval_s=_STEP_S), area=corners)
    if isinstance(judges, RoadGraph):
        judges = Judges.of_roads(judges, progress=progress)
    elif isinstance(judges, MotionModel):
        judges = Judges.of_model(judges)
    search = _Search(judges, wishes, workers=workers, progress=progress)
    found, need_m, instead = search.candidates(), wishes.road_m, None
    if need_m is not None:
        keeping, more = search.keeping(need_m, found)
        if keeping and not (more and wishes.limited):
            found = keeping
        elif keeping:
            instead = _tied(keeping, need_m)[0]
        elif not wishes.limited:
            found = search.candidates(math.inf)
    tied = _tied(found, math.inf if need_m is None or found[0].road.error_m > need_m else need_m)
    model = judges.model
    return Plan(
        wishes=wishes,
        schedule=tied[0].schedule,
        road=tied[0].road,
        no_report_road=search.road_of(None),
        candidates=found,
        tied=tied,
        instead=instead,
        grid=search.grid() if grid else (),
        judged_by=judges.words,
        area=(float(model.lat.min()), float(model.lon.min()), float(model.lat.max()), float(model.lon.max())),
        order=model.memory,
        skipped_s=search.skipped_s,
    )


class _Search:
    """Judges schedules, each of them once."""

    def __init__(self, judges: Judges, wishes: Wishes, *, workers: int | None, progress: Progress) -> None:
        self._model, self._trips, self._seed = judges.model, judges.trips, judges.seed
        self._workers, self._progress = workers, progress
        self._known: dict[Schedule | None, RoadErrors] = {}
        self._followed = 0
        lengths = np.sort(self._trips.lengths)[::-1]
        # Enough trips must last for two intervals, so that every time since a report is seen; the shortest stays.
        enough = int(lengths[min(_ENOUGH_TRIPS, len(lengths)) - 1])
        step_s = self._model.interval_s
        # A ledger counts by the hour, so intervals are at most an hour.
        intervals_s = [
            steps * step_s for steps in _STEPS if (2 * steps <= enough and steps * step_s <= HOUR_S) or steps == 1
        ]
        self.skipped_s = [steps * step_s for steps in _STEPS if steps * step_s not in intervals_s]
        self._limits = [affordable(wishes, interval_s=interval_s) for interval_s in intervals_s]

    def road_of(self, schedule: Schedule | None) -> RoadErrors:
        """Return the errors of a schedule (None: no reports) that was judged."""
        return self._known[schedule]

    def candidates(self, factor: float = 1.0, around: Sequence[Rated] = ()) -> list[Rated]:
        """Judge the schedules with the largest ε that keeps the wishes for privacy, times a factor.

        Parameters
        ----------
        around
            Other candidates: only their best interval and its neighbours are tried, as it hardly changes.

        Returns
        -------
        rated
            The smallest error first.
        """
        limits = self._limits
        if around:
            best = [limit.interval_s for limit in limits].index(around[0].schedule.interval_s)
            limits = limits[max(best - 1, 0) : best + 2]
        schedules = [Schedule(made_epsilon(factor * limit.epsilon), limit.interval_s) for limit in limits]
        return sorted(self._rated(schedules), key=lambda rated: rated.road.error_m)

    def grid(self) -> list[Rated]:
        """Judge ε by interval."""
        steps_s = [steps * self._model.interval_s for steps in _GRID_STEPS]
        intervals_s = [limit.interval_s for limit in self._limits if limit.interval_s in steps_s]
        return self._rated([Schedule(epsilon, interval_s) for epsilon in GRID_EPSILONS for interval_s in intervals_s])

    def keeping(self, need_m: float, found: list[Rated]) -> tuple[list[Rated], bool]:
        """Return the candidates at the least factor of ε whose best error is small enough; none if no ε is.

        Parameters
        ----------
        need_m
            The error that is small enough, metres.
        found
            The candidates at a factor of 1.

        Returns
        -------
        rated, more
            The candidates, and whether the factor is above 1.
        """
        # Log factors and log errors at both ends: too little, and enough.
        little: tuple[float, float] | None = None
        enough: tuple[float, float] | None = None
        keeping: list[Rated] = []
        log_factor, need = 0.0, math.log(need_m)
        while True:
            error = math.log(found[0].road.error_m)
            if error <= need:
                enough, keeping = (log_factor, error), found
            else:
                little = (log_factor, error)
            if little is None or enough is None:
                epsilons = {rated.schedule.epsilon for rated in found}
                if epsilons == {SMALLEST_EPSILON if little is None else LARGEST_EPSILON}:
                    break
                # The error of the wish, or a little less, by the power law.
                log_factor += (error - need + 0.015) / _FALL if enough is None else (error - need - 0.015) / _FALL
            else:
                narrow = enough[0] - little[0] < math.log(_NEAR_ENOUGH[1])
                if narrow or enough[1] > need + math.log(_NEAR_ENOUGH[0]):
                    break
                share = (little[1] - need + 0.015) / (little[1] - enough[1])
                log_factor = little[0] + min(max(share, 0.1), 0.9) * (enough[0] - little[0])
            found = self.candidates(math.exp(log_factor), keeping or found)
        return keeping, enough is not None and enough[0] > 0

    def _rated(self, schedules: Sequence[Schedule]) -> list[Rated]:
        """Judge schedules that were not judged before; return all of them."""
        # Without any report: the error that a schedule must clearly improve on.
        new = [schedule for schedule in (None, *schedules) if schedule not in self._known]
        if new:
            self._known.update(zip(new, self._follow(new), strict=True))
        return [Rated(schedule, self._known[schedule]) for schedule in schedules]

    def _follow(self, schedules: Sequence[Schedule | None]) -> list[RoadErrors]:
        """Return the errors of each schedule (None: no reports) on the trips."""
        # Trips are divided the same way for any number of processes, so that the draws are the same.
        count = min(_CHUNKS, len(self._trips))
        parts = [self._trips.chosen(np.arange(first, len(self._trips), count)) for first in range(count)]
        tasks = {
            (number, part): (schedule, self._model, parts[part], self._seed + part)
            for number, schedule in enumerate(schedules)
            for part in range(count)
        }
        seconds = _S_PER_CELL * len(schedules) * len(self._model) * len(self._trips.place)
        workers = count_workers(self._workers, tasks=len(tasks), seconds=seconds)
        done: dict[tuple[int, int], TickErrors] = {}
        # The search does not know how often it will try again, so the total grows, and nothing starts from 0 anew.
        total = self._followed + len(tasks)
        self._progress("following trips", self._followed, total)
        for (number, part), errors in run_tasks(_ticks_of, tasks, workers=workers):
            done[number, part] = replace(errors, trip=count * errors.trip + part)
            self._progress("following trips", self._followed + len(done), total)
        self._followed = total
        return [
            RoadErrors.of(TickErrors.joined([done[number, part] for part in range(count)]))
            for number in range(len(schedules))
        ]


def _tied(candidates: Sequence[Rated], enough_m: float) -> list[Rated]:
    """Return the candidates whose error is within both standard errors of the smallest, the smallest ε first."""
    best = candidates[0].road
    tied = [
        rated
        for rated in candidates
        if rated.road.error_m <= enough_m
        and rated.road.error_m - best.error_m <= rated.road.standard_error_m + best.standard_error_m
    ]
    return sorted(tied, key=lambda rated: (rated.schedule.epsilon, rated.schedule.hour))


def _ticks_of(task: tuple[Schedule | None, MotionModel, JudgedTrips, int]) -> TickErrors:
    schedule, model, trips, seed = task
    return tick_errors(schedule, model, trips, seed=seed)
