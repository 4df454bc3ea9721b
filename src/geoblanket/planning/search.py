"""The best schedule within budgets: candidates, what each is worth on the road and at rest, and the choice.

For each interval the largest ε and ε₀ that the budgets allow are candidates, with an anchor and without. All are judged
by trackers of order 1, with the same trips and draws. An anchor only adds noise, so what a schedule is worth without
one bounds what it is worth with it, and most anchors need not be followed, which takes a hundred times as long. What is
recommended is judged once more, by more trips, and by the order of the motion model if it has no anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from geoblanket._html import card
from geoblanket._lazy import companion
from geoblanket._progress import Progress, silent
from geoblanket._repr import short_repr
from geoblanket._workers import count_workers, run_tasks
from geoblanket.errors import ParameterError, UnmetPlanError
from geoblanket.mechanism.costs import LARGEST_EPSILON
from geoblanket.planning.at_rest import RestErrors, rest_errors
from geoblanket.planning.judged_trips import JudgedTrips, Judges
from geoblanket.planning.on_the_road import RoadErrors, TickErrors, cells_of, tick_errors
from geoblanket.planning.schedules import DAY_S, HOUR_S, Budgets, Schedule, affordable, every, stays
from geoblanket.release.budget import Budget
from geoblanket.tracking.motion_model import MotionModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GRID_EPSILONS", "Plan", "Rated", "search_plan"]

GRID_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
"""Of the table that every plan has: ε of a report, by how often."""
_GRID_STEPS: Final = (1, 2, 4, 8)
_STEPS: Final = (1, 2, 4, 8, 20)
"""Steps of the motion model from one report to the next."""
_ENOUGH_TRIPS: Final = 20
_SEARCH_CELLS, _FINAL_CELLS = 1.5e8, 6e8
"""Cells of all beliefs that are computed for an anchor: to choose one, and to judge the one chosen."""
_FEWEST_TRIPS: Final = 40
_CHUNKS: Final = 4
_S_PER_CELL: Final = 4e-8
_TELLS_SOMETHING: Final = 0.9
"""Of the error without any report: with more, reports are not worth their cost."""
_LARGEST_FACTOR: Final = 2.0**40
_FACTOR_STEP: Final = 1.1


@dataclass(frozen=True)
class Rated:
    """A schedule, and what a recipient makes of its reports.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> best = plan.candidates[0]
    >>> best.schedule.night <= 72, best.road.error_m < plan.no_report_road.error_m
    (True, True)
    """

    schedule: Schedule
    road: RoadErrors
    rest: RestErrors | None = None
    """None where it was not asked for."""

    def facts(self) -> tuple[str, ...]:
        """Return what it is, in a few words each."""
        schedule, road = self.schedule, self.road
        return (
            f"every {every(schedule.interval_s)}",
            f"ε = {schedule.epsilon:g} per km",
            "no anchor" if schedule.anchor_epsilon is None else f"anchor {stays(schedule)}",
            f"{road.error_m:,.0f} ± {road.standard_error_m:.0f} m off on the road",
        )

    def __repr__(self) -> str:
        return short_repr(self, *self.facts())


@dataclass(frozen=True)
class Plan:
    """What to do, what it costs and gives, and what else there was. Made by `make_plan`.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> plan
    <Plan: every ..., ε = ... per km, anchor ε₀ = 8 per km for an hour, ... m off on the road>
    >>> sorted(plan.lattice)  # for `make_lattice`
    ['anchor', 'anchor_epsilon', 'anchor_period_s', 'epsilon', 'interval_s']
    """

    budgets: Budgets
    recommended: Rated
    candidates: Sequence[Rated]
    """All that was judged within the budgets, by trackers of order 1, the smallest error first."""
    tied: Sequence[Rated]
    """Of these, all whose error the simulation cannot tell from the smallest; the one with the smallest ε, which is
    recommended, comes first."""
    without_anchor: Rated | None
    """The recommended schedule without its anchor, which costs more at rest."""
    day: Rated | None
    """The recommended interval with an anchor of a day: for vehicles whose day nobody knows."""
    grid: Sequence[Rated]
    """ε by interval, without an anchor and whatever the budgets."""
    no_report_road: RoadErrors
    no_report_rest: RestErrors
    need_m: float | None
    judged_by: str
    area: tuple[float, float, float, float]
    """South, west, north and east of the places, degrees."""
    order: int
    """Of the motion model."""
    skipped_s: Sequence[float] = field(default=())
    """Intervals that are longer than an hour, or for which the trips are too short."""

    @property
    def lattice(self) -> dict[str, Any]:
        """The options of `make_lattice` that do what is recommended."""
        schedule = self.recommended.schedule
        return {
            "epsilon": schedule.epsilon,
            "interval_s": schedule.interval_s,
            "anchor": schedule.anchor_epsilon is not None,
            "anchor_epsilon": schedule.anchor_epsilon,
            "anchor_period_s": schedule.anchor_period_s,
        }

    @property
    def budget(self) -> Budget:
        """What a ledger allows each vehicle in an hour, so that it can do what is recommended and no more."""
        schedule = self.recommended.schedule
        return Budget(schedule.hour, HOUR_S, schedule.anchors_of_hour or None)

    def __str__(self) -> str:
        return "\n".join(companion("geoblanket.planning.words", "Plan").in_words(self))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw what an hour's budget buys, and how often a recipient is near (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw what an hour buys on; None: a new figure with both, whose left axes are returned.
        """
        axes: Axes = companion("geoblanket.planning.picture", "Plan.plot").plot_plan(self, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        schedule, road = self.recommended.schedule, self.recommended.road
        rows = [
            ("report every", every(schedule.interval_s)),
            ("ε of a report", f"{schedule.epsilon:g} per km"),
            ("anchor", stays(schedule)),
            ("an hour on the road costs", f"{schedule.hour:,g} per km"),
            ("a night at one place costs", f"{schedule.night:,g} per km"),
            ("mean error on the road", f"{road.error_m:,.0f} ± {road.standard_error_m:.0f} m"),
        ]
        return card(self, rows, draw=(lambda ax: self.plot(ax=ax)) if self.grid else None, words=str(self).split("\n"))

    def __repr__(self) -> str:
        return short_repr(self, *self.recommended.facts())


def search_plan(
    judges: Judges,
    budgets: Budgets,
    *,
    need_m: float | None = None,
    private_day: bool = False,
    trips: int = 600,
    grid: bool = True,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress = silent,
) -> Plan:
    """Choose how a vehicle should report.

    Parameters
    ----------
    judges
        A motion model, and trips to judge by.
    budgets
        What a report, an hour on the road and a night at one place may cost.
    need_m
        The mean error on the road that is small enough, metres: the schedule is then the one that costs least, all
        budgets reduced alike. None: the smallest error within the budgets.
    private_day
        Nobody knows where the vehicle is during the day: an anchor may stay for a day. Otherwise it stays for an hour.
    trips
        How many are followed for each schedule, at most; schedules with an anchor have fewer.
    grid
        Whether to judge ε by interval as well.

    Raises
    ------
    UnmetPlanError
        If nothing within the budgets does what is needed, or reports within them would tell nothing.
    """
    if need_m is not None and not 0 < need_m < np.inf:
        raise ParameterError(f"The error that is small enough must be above 0 m. Got {need_m} instead.")
    if trips < 1:
        raise ParameterError(f"A plan is judged by 1 trip or more. Got {trips} instead.")
    period_s = DAY_S if private_day else HOUR_S
    search = _Search(judges, period_s=period_s, trips=trips, seed=seed, workers=workers, progress=progress)
    blind = search.rate_all([None], search.model, search.trips)[0]
    enough_m = _TELLS_SOMETHING * blind.error_m if need_m is None else min(need_m, _TELLS_SOMETHING * blind.error_m)
    used, candidates = budgets, search.candidates(budgets)
    if not candidates or candidates[0].road.error_m > enough_m:
        raise search.unmet(budgets, candidates, need_m, enough_m, blind)
    if need_m is not None:
        used, candidates = search.reduced(budgets, candidates, enough_m)
    tied = _tied(candidates, enough_m)
    recommended = search.judged_again(tied[0].schedule)
    schedule = recommended.schedule
    without = Schedule(schedule.epsilon, schedule.interval_s)
    has_anchor = schedule.anchor_epsilon is not None
    return Plan(
        budgets=used,
        recommended=recommended,
        candidates=candidates,
        tied=tied,
        without_anchor=search.judged_again(without) if has_anchor else None,
        day=search.of_a_day(used, schedule) if has_anchor and not private_day else None,
        grid=search.grid() if grid else (),
        no_report_road=blind,
        no_report_rest=rest_errors(None, search.model, search.trips, seed=seed),
        need_m=need_m,
        judged_by=judges.words,
        area=_area(judges.model),
        order=judges.model.memory,
        skipped_s=search.skipped_s,
    )


class _Search:
    def __init__(
        self, judges: Judges, *, period_s: int, trips: int, seed: int, workers: int | None, progress: Progress
    ) -> None:
        self.model, self.first_order = judges.model, judges.model.of_order_1()
        self.trips = judges.trips.some(trips, seed=seed)
        self._period_s, self._seed = period_s, seed
        self._workers, self._progress = workers, progress
        self._known: dict[Schedule, RoadErrors] = {}
        lengths = np.sort(self.trips.lengths)[::-1]
        # Each time since a report has to be seen often enough; the shortest interval always is.
        enough = int(lengths[min(_ENOUGH_TRIPS, len(lengths)) - 1])
        step_s = self.model.interval_s
        # Budgets and anchors are of an hour: neither a ledger nor a bundle takes a longer interval.
        self.intervals_s = [
            steps * step_s for steps in _STEPS if (2 * steps <= enough and steps * step_s <= HOUR_S) or steps == 1
        ]
        self.skipped_s = [steps * step_s for steps in _STEPS if steps * step_s not in self.intervals_s]

    def rate_all(
        self, schedules: Sequence[Schedule | None], model: MotionModel, trips: JudgedTrips
    ) -> list[RoadErrors]:
        """Follow trips by each schedule."""
        parts = [trips.chosen(np.arange(first, len(trips), _CHUNKS)) for first in range(min(_CHUNKS, len(trips)))]
        tasks = {
            (number, part): (schedule, model, parts[part], self._seed + part)
            for number, schedule in enumerate(schedules)
            for part in range(len(parts))
        }
        cells = sum(len(model) if schedule is None else cells_of(schedule, model) for schedule in schedules)
        seconds = _S_PER_CELL * cells * len(trips.place)
        workers = count_workers(self._workers, tasks=len(tasks), seconds=seconds)
        done: dict[tuple[int, int], TickErrors] = {}
        self._progress("following trips", 0, len(tasks))
        for key, errors in run_tasks(_ticks_of, tasks, workers=workers):
            done[key] = errors
            self._progress("following trips", len(done), len(tasks))
        result = []
        for number in range(len(schedules)):
            own = [done[number, part] for part in range(len(parts))]
            result.append(
                RoadErrors.of(
                    TickErrors(
                        np.concatenate([errors.error_m for errors in own]),
                        np.concatenate([errors.age for errors in own]),
                        np.concatenate([len(parts) * errors.trip + part for part, errors in enumerate(own)]),
                    )
                )
            )
        return result

    def candidates(self, budgets: Budgets, intervals_s: Sequence[float] | None = None) -> list[Rated]:
        """Return what was judged within the budgets, the best first."""
        intervals_s = self.intervals_s if intervals_s is None else intervals_s
        schedules = list(affordable(budgets, intervals_s=intervals_s, periods_s=[self._period_s]))
        anchored = [schedule for schedule in schedules if schedule.anchor_epsilon is not None]
        bare = {schedule: Schedule(schedule.epsilon, schedule.interval_s) for schedule in schedules}
        self._learn(list(bare.values()), self.trips)
        found = [Rated(schedule, self._known[schedule]) for schedule in schedules if schedule not in anchored]
        least_m = min((rated.road.error_m for rated in found), default=np.inf)
        # The same trips for all of them, so that they have the same draws.
        some = self._fewer(anchored, _SEARCH_CELLS)
        for schedule in sorted(anchored, key=lambda schedule: self._known[bare[schedule]].error_m):
            if self._known[bare[schedule]].error_m >= least_m:
                break
            self._learn([schedule], some)
            found.append(Rated(schedule, self._known[schedule]))
            least_m = min(least_m, found[-1].road.error_m)
        return sorted(found, key=lambda rated: rated.road.error_m)

    def _learn(self, schedules: Sequence[Schedule], trips: JudgedTrips) -> None:
        new = [schedule for schedule in dict.fromkeys(schedules) if schedule not in self._known]
        self._known.update(zip(new, self.rate_all(new, self.first_order, trips), strict=True))

    def _fewer(self, schedules: Sequence[Schedule], cells: float) -> JudgedTrips:
        """Return as many trips as the work for each of some schedules allows."""
        if not schedules:
            return self.trips
        of_a_step = sum(cells_of(schedule, self.first_order) for schedule in schedules) / len(schedules)
        of_a_trip = of_a_step * len(self.trips.place) / len(self.trips)
        return self.trips.some(max(int(cells / of_a_trip), _FEWEST_TRIPS), seed=self._seed)

    def judged_again(self, schedule: Schedule) -> Rated:
        """Judge a schedule on the road and at rest, as well as can be."""
        if schedule.anchor_epsilon is None:
            (road,) = self.rate_all([schedule], self.model, self.trips)
        else:
            (road,) = self.rate_all([schedule], self.first_order, self._fewer([schedule], _FINAL_CELLS))
        return Rated(schedule, road, rest_errors(schedule, self.first_order, self.trips, seed=self._seed))

    def of_a_day(self, budgets: Budgets, schedule: Schedule) -> Rated | None:
        """Judge an anchor of a day at the interval of a schedule."""
        for found in affordable(budgets, intervals_s=[schedule.interval_s], periods_s=[DAY_S]):
            if found.anchor_epsilon is not None:
                self._learn([found], self._fewer([found], _SEARCH_CELLS))
                rest = rest_errors(found, self.first_order, self.trips, seed=self._seed)
                return Rated(found, self._known[found], rest)
        return None

    def grid(self) -> list[Rated]:
        """Judge ε by interval, by the order of the motion model."""
        intervals_s = [
            steps * self.model.interval_s for steps in _GRID_STEPS if steps * self.model.interval_s in self.intervals_s
        ]
        schedules = [Schedule(epsilon, interval_s) for epsilon in GRID_EPSILONS for interval_s in intervals_s]
        return [Rated(*pair) for pair in zip(schedules, self.rate_all(schedules, self.model, self.trips), strict=True)]

    def reduced(self, budgets: Budgets, found: list[Rated], enough_m: float) -> tuple[Budgets, list[Rated]]:
        """Return the least budgets that are enough, all reduced alike, and the candidates within them."""
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
        """Return the error that says what would be enough."""
        wanted = f"an error of {enough_m:,.0f} m" if need_m is not None else "reports that tell something"
        best = f"the best schedule is off by {found[0].road.error_m:,.0f} m" if found else "no report can be made"
        start = (
            f"No schedule gives {wanted}: within these budgets {best}, and a recipient without any report by "
            f"{blind.error_m:,.0f} m."
        )
        factor, candidates = 1.0, list(found)
        while factor < _LARGEST_FACTOR:
            factor *= 2
            candidates = self.candidates(budgets.times(factor), self._around(candidates))
            if candidates and candidates[0].road.error_m <= enough_m:
                low = factor / 2
                factor, _ = self._between(budgets, low, factor, candidates, enough_m)
                least = {name: _two_digits(limit * factor) for name, limit in budgets.given().items()}
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
        """Return whether no budget allows more than a schedule has."""
        epsilons = (schedule.epsilon, schedule.anchor_epsilon or LARGEST_EPSILON)
        return min(epsilons) >= LARGEST_EPSILON and schedule.interval_s == self.intervals_s[0]

    def _between(
        self, budgets: Budgets, low: float, high: float, found: list[Rated], enough_m: float
    ) -> tuple[float, list[Rated]]:
        """Return the least factor of the budgets that is enough, between one that is not and one that is."""
        while high / low > _FACTOR_STEP:
            middle = (low * high) ** 0.5
            candidates = self.candidates(budgets.times(middle), self._around(found))
            if candidates and candidates[0].road.error_m <= enough_m:
                found, high = candidates, middle
            else:
                low = middle
        return high, found

    def _around(self, found: Sequence[Rated]) -> Sequence[float]:
        """Return the best interval so far and its neighbours: with other budgets it is hardly another one."""
        if not found:
            return self.intervals_s
        best = self.intervals_s.index(found[0].schedule.interval_s)
        return self.intervals_s[max(best - 1, 0) : best + 2]


def _tied(candidates: Sequence[Rated], enough_m: float) -> list[Rated]:
    """Return the candidates whose error is that of the best within both standard errors, the smallest ε first."""
    best = candidates[0].road
    tied = [
        rated
        for rated in candidates
        if rated.road.error_m <= enough_m
        and rated.road.error_m - best.error_m <= rated.road.standard_error_m + best.standard_error_m
    ]
    return sorted(tied, key=lambda rated: (rated.schedule.epsilon, rated.schedule.night, rated.road.error_m))


def _ticks_of(task: tuple[Schedule | None, MotionModel, JudgedTrips, int]) -> TickErrors:
    schedule, model, trips, seed = task
    return tick_errors(schedule, model, trips, seed=seed)


def _two_digits(limit: float) -> float:
    """Round up to two digits that count."""
    scale = 10.0 ** (1 - np.floor(np.log10(limit)))
    return float(np.ceil(limit * scale * (1 - 1e-12)) / scale)


def _area(model: MotionModel) -> tuple[float, float, float, float]:
    return float(model.lat.min()), float(model.lon.min()), float(model.lat.max()), float(model.lon.max())
