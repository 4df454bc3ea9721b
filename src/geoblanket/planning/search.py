"""Find the best schedule within budgets, and the fence of a home.

For each interval, the candidate is the largest ε within the budgets. All candidates are judged by the same trips and
draws. `in_words`, `commands` and `plan_facts` show the plan as sentences, commands and JSON values.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._display import Progress, card, short_repr, silent
from geoblanket._lazy import companion
from geoblanket._workers import count_workers, run_tasks
from geoblanket.build.city_lattice import HOLD_M
from geoblanket.errors import ParameterError, UnmetPlanError
from geoblanket.mechanism.costs import LARGEST_EPSILON
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.promise import AtRest, Promise, fenced_m
from geoblanket.planning.on_the_road import (
    JudgedTrips,
    Judges,
    RoadErrors,
    TickErrors,
    tick_errors,
)
from geoblanket.planning.schedules import (
    HOME_M,
    HOUR_S,
    MONTH_NIGHTS,
    Budgets,
    Schedule,
    affordable,
    area_in_degrees,
    every,
    fence_km,
    round_up,
    schedule_commands,
)
from geoblanket.release.budget import Budget
from geoblanket.roads.graph import RoadGraph
from geoblanket.tracking.motion_model import MotionModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GRID_EPSILONS",
    "Plan",
    "Rated",
    "commands",
    "in_words",
    "make_plan",
    "plan_facts",
    "radius_in_words",
]

GRID_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
"""The ε of the table in every plan: ε of a report, by interval."""
_GRID_STEPS: Final = (1, 2, 4, 8)
_STEPS: Final = (1, 2, 4, 8, 20)
"""Steps of the motion model from one report to the next."""
_ENOUGH_TRIPS: Final = 20
_CHUNKS: Final = 4
_S_PER_CELL: Final = 4e-8
_TELLS_SOMETHING: Final = 0.9
"""Share of the error without any report: a schedule with a larger error is not worth its cost."""
_LARGEST_FACTOR: Final = 2.0**40
_FACTOR_STEP: Final = 1.1
_FEET = {533.4: "1,750 ft", 563.88: "1,850 ft"}


@dataclass(frozen=True)
class Rated:
    """A schedule, and the error of a recipient who tracks its reports on the road.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> best = plan.candidates[0]
    >>> best.schedule.hour <= 240, best.road.error_m < plan.no_report_road.error_m
    (True, True)
    """

    schedule: Schedule
    road: RoadErrors

    def facts(self) -> tuple[str, ...]:
        """Return interval, ε and error, in a few words each."""
        schedule, road = self.schedule, self.road
        return (
            f"every {every(schedule.interval_s)}",
            f"ε = {schedule.epsilon:g} per km",
            f"{road.error_m:,.0f} ± {road.standard_error_m:.0f} m off on the road",
        )

    def __repr__(self) -> str:
        return short_repr(self, *self.facts())


@dataclass(frozen=True)
class Plan:
    """A recommended schedule and fence, their cost and error, and the alternatives. Made by `make_plan`.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> plan
    <Plan: every ..., ε = ... per km, ... m off on the road, fence of 1 km>
    >>> sorted(plan.lattice)  # for `make_lattice`
    ['epsilon', 'interval_s']
    """

    budgets: Budgets
    recommended: Rated
    candidates: Sequence[Rated]
    """All schedules judged within the budgets, the smallest error first."""
    tied: Sequence[Rated]
    """The candidates whose error the simulation cannot distinguish from the smallest, the smallest ε first. The first
    is recommended."""
    grid: Sequence[Rated]
    """Errors by ε and interval, whatever the budgets."""
    no_report_road: RoadErrors
    need_m: float | None
    fence_km: float
    """The radius of a fence around a home, kilometres."""
    judged_by: str
    area: tuple[float, float, float, float]
    """South, west, north and east of the places, degrees."""
    order: int
    """The order of the motion model."""
    skipped_s: Sequence[float] = field(default=())
    """Intervals longer than an hour, or too long for the trips, seconds."""

    @property
    def lattice(self) -> dict[str, Any]:
        """The options of `make_lattice` for the recommended schedule."""
        schedule = self.recommended.schedule
        return {"epsilon": schedule.epsilon, "interval_s": schedule.interval_s}

    @property
    def budget(self) -> Budget:
        """The budget of a vehicle's ledger: exactly the recommended schedule for an hour."""
        return Budget(self.recommended.schedule.hour, HOUR_S)

    @property
    def at_rest(self) -> AtRest:
        """What the recommended reports tell of a vehicle at rest."""
        return AtRest(self.recommended.schedule.epsilon, self.recommended.schedule.interval_s, HOLD_M)

    @cached_property
    def promise(self) -> Promise:
        """What a lattice over the places promises with the recommended schedule."""
        schedule = self.recommended.schedule
        spec = spec_over(Area(*self.area), epsilon=schedule.epsilon)
        return replace(Lattice.known(spec, round(1000 * HOLD_M)).promise, interval_s=schedule.interval_s)

    @property
    def bare_home_m(self) -> float:
        """An attacker's mean error about a home without a fence, after a month of nights, metres."""
        return self.at_rest.found_m["month"]

    @property
    def fenced_home_m(self) -> float:
        """The mean error about a fenced home of an attacker who sees any number of nights and no trips, metres."""
        return fenced_m(self.fence_km)

    def __str__(self) -> str:
        return "\n".join(in_words(self))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the error on the road by the cost of an hour, and how often a recipient is near (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib for the first drawing alone; None: a new figure with both, whose left axes are returned.
        """
        axes: Axes = companion("geoblanket.planning.picture", "Plan.plot").plot_plan(self, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        schedule, road = self.recommended.schedule, self.recommended.road
        rows = [
            ("report every", every(schedule.interval_s)),
            ("ε of a report", f"{schedule.epsilon:g} per km"),
            ("an hour on the road costs", f"{schedule.hour:,g} per km"),
            ("mean error on the road", f"{road.error_m:,.0f} ± {road.standard_error_m:.0f} m"),
            ("mean error at rest", f"{road.error_at_reports_m:,.0f} m"),
            ("fence around a home", f"{self.fence_km:g} km"),
            ("home after a month of nights", f"{self.fenced_home_m:,.0f} m off, {self.bare_home_m:,.0f} m without it"),
        ]
        return card(self, rows, draw=(lambda ax: self.plot(ax=ax)) if self.grid else None, words=str(self).split("\n"))

    def __repr__(self) -> str:
        return short_repr(self, *self.recommended.facts(), f"fence of {self.fence_km:g} km")


@checked
def make_plan(
    judges: Judges | RoadGraph | MotionModel,
    budgets: Budgets,
    *,
    home_m: float = HOME_M,
    error_m: float | None = None,
    grid: bool = True,
    workers: int | None = None,
    progress: Progress = silent,
) -> Plan:
    """Choose how a vehicle should report: its ε, its interval, and the fence around a home.

    Schedules within the budgets are tried on trips, and a tracker follows the reports. All errors are estimates by
    simulation.

    Parameters
    ----------
    judges
        A motion model, and trips to judge by. A road graph stands for `Judges.of_roads(graph)`, a motion model for
        `Judges.of_model(model)`.
    budgets
        What an hour on the road and one report may cost at most.
    home_m
        The least mean error about a home, after a month, of an attacker who sees nights only, metres.
    error_m
        A mean error on the road that is small enough, metres: the plan then has the least cost, all budgets reduced by
        the same factor. None: the smallest error within the budgets.
    grid
        Whether to judge a table of ε by interval as well, whatever the budgets.
    workers
        Number of processes; None for one per core.
    progress
        Called as the work goes on.

    Returns
    -------
    plan
        `print(plan)` says what to do, and `plan.plot()` draws errors by cost. `make_lattice(roads, out,
        **plan.lattice)` makes the bundle, and `ledger.add_fence(lat, lon, radius_km=plan.fence_km)` the fence.

    Raises
    ------
    UnmetPlanError
        If no schedule within the budgets is good enough, or reports within them would tell nothing. The error names
        the least budgets that would do.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> from geoblanket import make_plan
    >>> from geoblanket.planning import Budgets, Judges
    >>> judges = Judges.of_roads(graph, spacing_m=500, trips=40, order=1)
    >>> plan = make_plan(judges, Budgets(hour=240), workers=1)
    >>> print(plan)
    Report every ... at ε = ... per km, held within 50 m.
    On the road, a recipient who tracks the vehicle is then ... m off on average ...
    """
    if error_m is not None and not 0 < error_m < np.inf:
        raise ParameterError(f"The error that is small enough must be above 0 m. Got {error_m} instead.")
    radius_km = fence_km(home_m)
    if isinstance(judges, RoadGraph):
        judges = Judges.of_roads(judges, progress=progress)
    elif isinstance(judges, MotionModel):
        judges = Judges.of_model(judges)
    search = _Search(judges, workers=workers, progress=progress)
    # Without any report: the error that a schedule must clearly improve on.
    blind = search.rate_all([None])[0]
    enough_m = min(_TELLS_SOMETHING * blind.error_m, np.inf if error_m is None else error_m)
    used, candidates = budgets, search.candidates(budgets)
    if not candidates or candidates[0].road.error_m > enough_m:
        raise search.unmet(budgets, candidates, error_m, enough_m, blind)
    if error_m is not None:
        used, candidates = search.reduced(budgets, candidates, enough_m)
    tied = _tied(candidates, enough_m)
    return Plan(
        budgets=used,
        recommended=tied[0],
        candidates=candidates,
        tied=tied,
        grid=search.grid() if grid else (),
        no_report_road=blind,
        need_m=error_m,
        fence_km=radius_km,
        judged_by=judges.words,
        area=_area(judges.model),
        order=judges.model.memory,
        skipped_s=search.skipped_s,
    )


class _Search:
    """Judges schedules, each of them once."""

    def __init__(self, judges: Judges, *, workers: int | None, progress: Progress) -> None:
        self._model, self._trips, self._seed = judges.model, judges.trips, judges.seed
        self._workers, self._progress = workers, progress
        self._known: dict[Schedule, RoadErrors] = {}
        lengths = np.sort(self._trips.lengths)[::-1]
        # Enough trips must last for two intervals, so that every time since a report is seen; the shortest stays.
        enough = int(lengths[min(_ENOUGH_TRIPS, len(lengths)) - 1])
        step_s = self._model.interval_s
        # Budgets are for an hour, so intervals are at most an hour.
        self.intervals_s = [
            steps * step_s for steps in _STEPS if (2 * steps <= enough and steps * step_s <= HOUR_S) or steps == 1
        ]
        self.skipped_s = [steps * step_s for steps in _STEPS if steps * step_s not in self.intervals_s]

    def rate_all(self, schedules: Sequence[Schedule | None]) -> list[RoadErrors]:
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
        self._progress("following trips", 0, len(tasks))
        for (number, part), errors in run_tasks(_ticks_of, tasks, workers=workers):
            done[number, part] = replace(errors, trip=count * errors.trip + part)
            self._progress("following trips", len(done), len(tasks))
        return [
            RoadErrors.of(TickErrors.joined([done[number, part] for part in range(count)]))
            for number in range(len(schedules))
        ]

    def candidates(self, budgets: Budgets, intervals_s: Sequence[float] | None = None) -> list[Rated]:
        """Judge the schedules within the budgets; return them with the smallest error first."""
        schedules = affordable(budgets, intervals_s=self.intervals_s if intervals_s is None else intervals_s)
        return sorted(self._rated(list(schedules)), key=lambda rated: rated.road.error_m)

    def grid(self) -> list[Rated]:
        """Judge ε by interval."""
        steps_s = [steps * self._model.interval_s for steps in _GRID_STEPS]
        intervals_s = [interval_s for interval_s in steps_s if interval_s in self.intervals_s]
        return self._rated([Schedule(epsilon, interval_s) for epsilon in GRID_EPSILONS for interval_s in intervals_s])

    def _rated(self, schedules: Sequence[Schedule]) -> list[Rated]:
        """Judge schedules that were not judged before; return all of them."""
        new = [schedule for schedule in schedules if schedule not in self._known]
        self._known.update(zip(new, self.rate_all(new), strict=True))
        return [Rated(schedule, self._known[schedule]) for schedule in schedules]

    def reduced(self, budgets: Budgets, found: list[Rated], enough_m: float) -> tuple[Budgets, list[Rated]]:
        """Return the least budgets that are enough, all reduced by one factor, and the candidates within them."""
        # Halve the budgets until they are not enough, then search between the last two factors.
        low, high = 1.0, 1.0
        while True:
            low /= 2
            candidates = self.candidates(budgets.times(low), self._around(found))
            if not candidates or candidates[0].road.error_m > enough_m or low < 1 / _LARGEST_FACTOR:
                break
            found, high = candidates, low
        factor, found = self._between(budgets, low, high, found, enough_m)
        return budgets.times(factor), found

    def unmet(
        self,
        budgets: Budgets,
        found: Sequence[Rated],
        need_m: float | None,
        enough_m: float,
        blind: RoadErrors,
    ) -> UnmetPlanError:
        """Return the error that names the least budgets that would be enough, all enlarged by one factor."""
        wanted = f"an error of {enough_m:,.0f} m" if need_m is not None else "reports that tell something"
        best = f"the best schedule is {found[0].road.error_m:,.0f} m off" if found else "no report can be made"
        start = (
            f"No schedule gives {wanted}: within these budgets {best}. Without any report a recipient would be "
            f"{blind.error_m:,.0f} m off."
        )
        factor, candidates = 1.0, list(found)
        while factor < _LARGEST_FACTOR:
            factor *= 2
            candidates = self.candidates(budgets.times(factor), self._around(candidates))
            if candidates and candidates[0].road.error_m <= enough_m:
                low = factor / 2
                factor, _ = self._between(budgets, low, factor, candidates, enough_m)
                least = {name: round_up(limit * factor) for name, limit in budgets.given().items()}
                would_do = " ".join(f"--{name} {limit:g}" for name, limit in least.items())
                return UnmetPlanError(
                    f"{start} The least budgets that would do, all enlarged alike: {would_do}.", least
                )
            if candidates and self._is_largest(candidates[0].schedule):
                break
        return UnmetPlanError(
            f"{start} No larger budget would do either, for devices take at most ε = {LARGEST_EPSILON:g} per km. Take "
            "places that are nearer to one another, or a larger error.",
            None,
        )

    def _is_largest(self, schedule: Schedule) -> bool:
        """Return whether no budget allows more than this schedule."""
        return schedule.epsilon >= LARGEST_EPSILON and schedule.interval_s == self.intervals_s[0]

    def _between(
        self, budgets: Budgets, low: float, high: float, found: list[Rated], enough_m: float
    ) -> tuple[float, list[Rated]]:
        """Return the least factor of the budgets that is enough: more than `low`, at most `high`."""
        while high / low > _FACTOR_STEP:
            middle = (low * high) ** 0.5
            candidates = self.candidates(budgets.times(middle), self._around(found))
            if candidates and candidates[0].road.error_m <= enough_m:
                found, high = candidates, middle
            else:
                low = middle
        return high, found

    def _around(self, found: Sequence[Rated]) -> Sequence[float]:
        """Return the best interval so far and its neighbours: with other budgets the best one hardly changes."""
        if not found:
            return self.intervals_s
        best = self.intervals_s.index(found[0].schedule.interval_s)
        return self.intervals_s[max(best - 1, 0) : best + 2]


def _tied(candidates: Sequence[Rated], enough_m: float) -> list[Rated]:
    """Return the candidates whose error is within both standard errors of the smallest, the smallest ε first."""
    best = candidates[0].road
    tied = [
        rated
        for rated in candidates
        if rated.road.error_m <= enough_m
        and rated.road.error_m - best.error_m <= rated.road.standard_error_m + best.standard_error_m
    ]
    return sorted(tied, key=lambda rated: (rated.schedule.epsilon, rated.road.error_m))


def _ticks_of(task: tuple[Schedule | None, MotionModel, JudgedTrips, int]) -> TickErrors:
    schedule, model, trips, seed = task
    return tick_errors(schedule, model, trips, seed=seed)


def _area(model: MotionModel) -> tuple[float, float, float, float]:
    return float(model.lat.min()), float(model.lon.min()), float(model.lat.max()), float(model.lon.max())


def in_words(plan: Plan) -> list[str]:
    """Return what to do and why, in sentences for people."""
    schedule, road = plan.recommended.schedule, plan.recommended.road
    sentences = [
        f"Report every {every(schedule.interval_s)} at ε = {schedule.epsilon:g} per km, held within {HOLD_M:g} m.",
        f"On the road, a recipient who tracks the vehicle is then {_metres(road.error_m)} off on average (± "
        f"{math.ceil(road.standard_error_m):,} m). Without any report it would be "
        f"{_metres(plan.no_report_road.error_m)} off.",
        f"At rest it stays {_metres(road.error_at_reports_m)} off, however long the stay: hold repeats the last "
        "report.",
        plan.promise.certain,
        *plan.promise.limit,
        f"One report costs {schedule.report:g} per km, and so does a stay. An hour on the road costs "
        f"{schedule.hour:g} at most.",
        f"A home needs a fence. After {MONTH_NIGHTS} nights without one, an attacker is "
        f"{_metres(plan.bare_home_m)} off on average (ε adds up to {MONTH_NIGHTS * plan.at_rest.night_cost:g} per km).",
        f"With a fence of {plan.fence_km:g} km, an attacker who sees nights only stays about "
        f"{_metres(plan.fenced_home_m)} off, after any number of nights. The ways in and out tell more.",
    ]
    if others := plan.tied[1:]:
        listed = ", ".join(
            f"every {every(rated.schedule.interval_s)} at ε = {rated.schedule.epsilon:g} "
            f"({rated.road.error_m:,.0f} ± {rated.road.standard_error_m:.0f} m)"
            for rated in others
        )
        sentences.append(f"The simulation cannot tell it from: {listed}. The smaller ε is recommended.")
    if plan.need_m is not None:
        given = ", ".join(f"{limit:.3g} per {name}" for name, limit in plan.budgets.given().items())
        sentences.append(f"An error of {plan.need_m:,.0f} m needs no more than {given}.")
    return sentences


def commands(plan: Plan, *, roads: str | None, program: str = "geoblanket", folder: Path | None = None) -> list[str]:
    """Return the commands that make the bundle, a ledger and the fence of this plan.

    Parameters
    ----------
    roads
        The file of the road graph; None: the area of the places is given instead.
    program
        The name of this program.
    folder
        The folder in which the commands will run: their output files get free names there. None: any folder.
    """
    where = f"--roads {shlex.quote(roads)}" if roads is not None else f"--area={area_in_degrees(plan.area)}"
    schedule = plan.recommended.schedule
    return schedule_commands(schedule, where, radius_km=plan.fence_km, program=program, folder=folder)


def plan_facts(
    plan: Plan, *, roads: str | None, program: str = "geoblanket", folder: Path | None = None
) -> dict[str, Any]:
    """Return a plan as JSON values; the parameters are those of `commands`."""
    return {
        "recommended": _rated(plan.recommended),
        "hold_m": HOLD_M,
        "home": {
            "nights": MONTH_NIGHTS,
            "without_a_fence_m": round(plan.bare_home_m, 1),
            "fence_radius_km": plan.fence_km,
            "with_the_fence_m": round(plan.fenced_home_m, 1),
        },
        "without_any_report": {"on_the_road": _errors(plan.no_report_road)},
        "budgets_per_km": plan.budgets.given(),
        "need_m": plan.need_m,
        "tied": [_rated(rated) for rated in plan.tied],
        "candidates": [_rated(rated) for rated in plan.candidates],
        "epsilon_by_interval": [_rated(rated) for rated in plan.grid],
        "intervals_s_that_trips_are_too_short_for": list(plan.skipped_s),
        "order_of_the_motion_model": plan.order,
        "judged_by": plan.judged_by,
        "in_words": in_words(plan),
        "commands": commands(plan, roads=roads, program=program, folder=folder),
    }


def _rated(rated: Rated) -> dict[str, Any]:
    schedule = rated.schedule
    return {
        "epsilon_per_km": schedule.epsilon,
        "interval_s": schedule.interval_s,
        "cost_per_km": {"report": schedule.report, "hour": schedule.hour},
        "on_the_road": _errors(rated.road),
        "at_rest_m": round(rated.road.error_at_reports_m, 1),
    }


def _errors(errors: RoadErrors) -> dict[str, Any]:
    return {
        "error_m": round(errors.error_m, 1),
        "standard_error_m": round(errors.standard_error_m, 1),
        "share_within": {f"{radius:g} m": round(share, 4) for radius, share in errors.within.items()},
        "error_of_steps_m": round(errors.error_of_steps_m, 1),
        "trips": errors.trips,
        "steps": errors.steps,
    }


def radius_in_words(radius_m: float) -> str:
    """Return a radius in words, in feet too where a law states it in feet."""
    feet = _FEET.get(radius_m)
    return f"{radius_m:.0f} m" if feet is None else f"{radius_m:.0f} m ({feet})"


def _metres(metres: float) -> str:
    """Return an error with two significant digits."""
    if metres < 1:
        return "less than 1 m"
    digits = max(math.floor(math.log10(metres)) - 1, 0)
    return f"{round(metres, -digits):,.0f} m"
