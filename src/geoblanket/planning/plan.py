"""A plan: a schedule and a fence, what becomes of each wish, and all of it as sentences, commands and JSON values."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from geoblanket._display import card, short_repr
from geoblanket._lazy import companion
from geoblanket.build.city_lattice import HOLD_M
from geoblanket.mechanism.certainty import certainty, times_in_100
from geoblanket.mechanism.costs import HOUR_S
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.promise import AtRest, Promise, fenced_m, two_digits
from geoblanket.planning.on_the_road import RoadErrors
from geoblanket.planning.schedules import MONTH_NIGHTS, Schedule, area_in_degrees, every, fence_km, schedule_commands
from geoblanket.planning.wishes import SURE, Wishes, right
from geoblanket.release.budget import Budget

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TELLS_SOMETHING: Final = 0.9
"""Share of the error without any report: reports with a larger error are not worth their cost."""
_FEET: Final = {533.4: "1,750 ft", 563.88: "1,850 ft"}


@dataclass(frozen=True)
class Rated:
    """A schedule, and the error of a recipient who tracks its reports on the road.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> best = plan.candidates[0]
    >>> best.schedule.epsilon <= 20, best.road.error_m < plan.no_report_road.error_m
    (True, True)
    """

    schedule: Schedule
    road: RoadErrors

    def in_words(self) -> str:
        """Return interval, ε and error, in a few words."""
        schedule, road = self.schedule, self.road
        return (
            f"every {every(schedule.interval_s)}, ε = {schedule.epsilon:g} per km, {road.error_m:,.0f} ± "
            f"{road.standard_error_m:.0f} m off on the road"
        )

    def __repr__(self) -> str:
        return short_repr(self, self.in_words())


@dataclass(frozen=True)
class Outcome:
    """What becomes of a wish. `plan.outcomes` has one for each wish that was made.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> home = plan.outcomes[0]
    >>> home.wish, home.asked, home.kept
    ('home', 350, True)
    """

    wish: str
    """Which: home, sure, road, hour or report."""
    asked: float
    """Metres, a share, or ε per km."""
    got: float | None
    """The same of the plan; None as long as nothing was simulated."""
    kept: bool | None
    """Whether the plan keeps the wish; None as long as nothing was simulated."""
    asked_in_words: str
    got_in_words: str

    def __repr__(self) -> str:
        kept = "not simulated" if self.kept is None else "kept" if self.kept else "not kept"
        return short_repr(self, f"{self.asked_in_words}: {kept}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A recommended schedule and fence, what becomes of each wish, and the alternatives. Made by `make_plan`.

    Examples
    --------
    With the `plan` in the example of `make_plan`:

    >>> plan
    <Plan: Report every ... at ε = ... per km, held within 50 m, with a fence of 0.62 km around a home.>
    >>> sorted(plan.lattice)  # for `make_lattice`
    ['epsilon', 'interval_s']
    """

    wishes: Wishes
    schedule: Schedule
    """What is recommended."""
    road: RoadErrors | None = None
    """Its error on the road; None if nothing was simulated."""
    no_report_road: RoadErrors | None = None
    """The error on the road without any report."""
    candidates: Sequence[Rated] = ()
    """The schedules that were tried at last, one for each interval, the smallest error first."""
    tied: Sequence[Rated] = ()
    """The candidates whose error the simulation cannot distinguish from the smallest, the smallest ε first. The first
    is recommended."""
    instead: Rated | None = None
    """If the wish for the road is not kept: a schedule that keeps it, and no other wish; None if none does."""
    grid: Sequence[Rated] = ()
    """Errors by ε and interval, whatever the wishes."""
    judged_by: str = "Nothing was simulated."
    area: tuple[float, float, float, float]
    """South, west, north and east of the places, degrees."""
    order: int | None = None
    """The order of the motion model."""
    skipped_s: Sequence[float] = field(default=())
    """Intervals longer than an hour, or too long for the trips, seconds."""

    @property
    def lattice(self) -> dict[str, Any]:
        """The options of `make_lattice` for the recommended schedule."""
        return {"epsilon": self.schedule.epsilon, "interval_s": self.schedule.interval_s}

    @property
    def budget(self) -> Budget:
        """The budget of a vehicle's ledger: exactly the recommended schedule for an hour."""
        return Budget(self.schedule.hour, HOUR_S)

    @property
    def fence_km(self) -> float:
        """The radius of a fence around a home, kilometres."""
        return fence_km(self.wishes.kept_home_m)

    @property
    def at_rest(self) -> AtRest:
        """What the recommended reports tell of a vehicle at rest."""
        return AtRest(self.schedule.epsilon, self.schedule.interval_s, HOLD_M)

    @cached_property
    def promise(self) -> Promise:
        """What a lattice over the places promises with the recommended schedule."""
        spec = spec_over(Area(*self.area), epsilon=self.schedule.epsilon)
        return replace(Lattice.known(spec, round(1000 * HOLD_M)).promise, interval_s=self.schedule.interval_s)

    @cached_property
    def right(self) -> float:
        """How often the best guess between the two alternatives is right, at most, as `certainty` computes it."""
        draws = self.wishes.draws(self.schedule.interval_s)
        return certainty(self.promise.source, apart_m=self.wishes.apart_m, reports=draws).right

    def right_with(self, schedule: Schedule) -> float:
        """Return about the same for another schedule, to .0002."""
        draws = self.wishes.draws(schedule.interval_s)
        return right(schedule.epsilon, apart_m=self.wishes.apart_m, draws=draws)

    @property
    def bare_home_m(self) -> float:
        """An attacker's mean error about a home without a fence, after a month of nights, metres."""
        return self.at_rest.found_m["month"]

    @property
    def fenced_home_m(self) -> float:
        """The mean error about a fenced home of an attacker who sees any number of nights and no trips, metres."""
        return fenced_m(self.fence_km)

    @property
    def outcomes(self) -> list[Outcome]:
        """What becomes of each wish that was made."""
        wishes, schedule, road, found = self.wishes, self.schedule, self.road, []
        apart = f"{wishes.apart_m:,g} m apart, {every(wishes.for_s)} on the road"
        simulated = "not simulated" if road is None else f"{road.error_m:,.0f} ± {road.standard_error_m:.0f} m"
        got = {
            "home": (self.fenced_home_m, "at least {:,g} m off a home after a month of nights",
                     f"about {self.fenced_home_m:,.0f} m, by a fence of {self.fence_km:g} km"),
            "sure": (self.right, apart + ": right at most {:.4g} times in 100",
                     f"right {times_in_100(self.right)} times in 100"),
            "road": (None if road is None else road.error_m, "at most {:,g} m off on the road", simulated),
            "hour": (schedule.hour, "an hour costs at most {:g} per km", f"{schedule.hour:g} per km"),
            "report": (schedule.report, "a report costs at most {:g} per km", f"{schedule.report:g} per km"),
        }  # fmt: skip
        for wish, asked in wishes.given().items():
            value, wanted, words = got[wish]
            # A home is as far off as asked, or further; all else is at most as asked. Floats lose less than 1e-9.
            above = None if value is None else value / asked - 1
            kept = None if above is None else above > -1e-9 if wish == "home" else above < 1e-9
            shown = wanted.format(100 * asked if wish == "sure" else asked)
            found.append(Outcome(wish, asked, value, kept, shown, words))
        return found

    @property
    def headline(self) -> str:
        """What to do, in a sentence."""
        return (
            f"Report every {every(self.schedule.interval_s)} at ε = {self.schedule.epsilon:g} per km, held within "
            f"{HOLD_M:g} m, with a fence of {self.fence_km:g} km around a home."
        )

    @property
    def tells_something(self) -> bool:
        """Whether a recipient is clearly nearer with these reports than without any."""
        if self.road is None or self.no_report_road is None:
            return True
        return self.road.error_m <= _TELLS_SOMETHING * self.no_report_road.error_m

    def __str__(self) -> str:
        return "\n".join(in_words(self))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the error on the road by how often a guess is right, and how often a recipient is near (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib for the first drawing alone; None: a new figure with both, whose left axes are returned.
        """
        axes: Axes = companion("geoblanket.planning.picture", "Plan.plot").plot_plan(self, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        schedule, road = self.schedule, self.road
        error = "not simulated" if road is None else f"{road.error_m:,.0f} ± {road.standard_error_m:.0f} m"
        rows = [
            ("report every", every(schedule.interval_s)),
            ("ε of a report", f"{schedule.epsilon:g} per km"),
            ("an hour on the road costs", f"{schedule.hour:,g} per km"),
            ("mean error on the road", error),
            ("fence around a home", f"{self.fence_km:g} km"),
            ("home after a month of nights", f"{self.fenced_home_m:,.0f} m off, {self.bare_home_m:,.0f} m without it"),
        ]
        return card(self, rows, draw=(lambda ax: self.plot(ax=ax)) if self.grid else None, words=str(self).split("\n"))

    def __repr__(self) -> str:
        return short_repr(self, self.headline)


def in_words(plan: Plan) -> list[str]:
    """Return what to do and why, in sentences for people."""
    schedule, wishes = plan.schedule, plan.wishes
    sentences = [plan.headline, *_unkept(plan)]
    if not wishes.limited and wishes.road_m is None:
        sentences.append(
            f"Nothing was wished for the road. So two places {wishes.apart_m:,g} m apart are told apart at most "
            f"{100 * SURE:g} times in 100."
        )
    if plan.road is not None and plan.no_report_road is not None:
        sentences += [
            f"On the road, a recipient who tracks the vehicle is then {two_digits(plan.road.error_m)} off on average "
            f"(± {math.ceil(plan.road.standard_error_m):,} m). Without any report it would be "
            f"{two_digits(plan.no_report_road.error_m)} off.",
            f"At rest it stays {two_digits(plan.road.error_at_reports_m)} off, however long the stay: hold repeats the "
            "last report.",
        ]
    sentences += [
        plan.promise.certain,
        *plan.promise.limit,
        f"One report costs {schedule.report:g} per km, and so does a stay. An hour on the road costs "
        f"{schedule.hour:g} at most.",
        f"A home needs a fence. After {MONTH_NIGHTS} nights without one, an attacker is {two_digits(plan.bare_home_m)} "
        f"off on average (ε adds up to {MONTH_NIGHTS * plan.at_rest.night_cost:g} per km).",
        f"With a fence of {plan.fence_km:g} km, an attacker who sees nights only stays about "
        f"{two_digits(plan.fenced_home_m)} off, after any number of nights. The ways in and out tell more.",
    ]
    if others := plan.tied[1:]:
        listed = ", ".join(
            f"every {every(rated.schedule.interval_s)} at ε = {rated.schedule.epsilon:g} "
            f"({rated.road.error_m:,.0f} ± {rated.road.standard_error_m:.0f} m)"
            for rated in others
        )
        sentences.append(f"The simulation cannot tell it from: {listed}. The smaller ε is recommended.")
    return sentences


def _unkept(plan: Plan) -> list[str]:
    """Return which wishes the plan does not keep, and what would keep them."""
    unkept = {outcome.wish: outcome for outcome in plan.outcomes if outcome.kept is False}
    sentences = [
        f"Not kept: {outcome.asked_in_words}. This plan gives {outcome.got_in_words}." for outcome in unkept.values()
    ]
    if "road" in unkept:
        sentences.append(
            "It keeps the wishes for privacy, and comes as near to the one for the road as they allow. "
            + (
                "No schedule keeps the one for the road: take a larger error, or places that are nearer to one another."
                if plan.instead is None
                else f"For the road alone, report {plan.instead.in_words()}: two places {plan.wishes.apart_m:,g} m "
                f"apart are then told apart {times_in_100(plan.right_with(plan.instead.schedule))} times in 100."
            )
        )
    if not plan.tells_something:
        sentences.append("These reports tell hardly more than none. Ask for less privacy, or do not report at all.")
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
    return schedule_commands(plan.schedule, where, radius_km=plan.fence_km, program=program, folder=folder)


def plan_facts(
    plan: Plan, *, roads: str | None = None, program: str = "geoblanket", folder: Path | None = None
) -> dict[str, Any]:
    """Return a plan as JSON values; the parameters are those of `commands`."""
    return {
        "recommended": _costs(plan.schedule, plan.road),
        "wishes": [vars(outcome) for outcome in plan.outcomes],
        "hold_m": HOLD_M,
        "home": {
            "nights": MONTH_NIGHTS,
            "without_a_fence_m": round(plan.bare_home_m, 1),
            "fence_radius_km": plan.fence_km,
            "with_the_fence_m": round(plan.fenced_home_m, 1),
        },
        "certainty": {"apart_m": plan.wishes.apart_m, "for_s": plan.wishes.for_s, "right": plan.right},
        "limit_m": 2000 / plan.schedule.epsilon,
        "without_any_report": {"on_the_road": _errors(plan.no_report_road)},
        "tells_something": plan.tells_something,
        "instead": None if plan.instead is None else _rated(plan, plan.instead),
        "tied": [_rated(plan, rated) for rated in plan.tied],
        "candidates": [_rated(plan, rated) for rated in plan.candidates],
        "epsilon_by_interval": [_rated(plan, rated) for rated in plan.grid],
        "intervals_s_that_trips_are_too_short_for": list(plan.skipped_s),
        "order_of_the_motion_model": plan.order,
        "judged_by": plan.judged_by,
        "in_words": in_words(plan),
        "commands": commands(plan, roads=roads, program=program, folder=folder),
    }


def _rated(plan: Plan, rated: Rated) -> dict[str, Any]:
    return {**_costs(rated.schedule, rated.road), "right": round(plan.right_with(rated.schedule), 4)}


def _costs(schedule: Schedule, road: RoadErrors | None) -> dict[str, Any]:
    return {
        "epsilon_per_km": schedule.epsilon,
        "interval_s": schedule.interval_s,
        "cost_per_km": {"report": schedule.report, "hour": schedule.hour},
        "on_the_road": _errors(road),
        "at_rest_m": None if road is None else round(road.error_at_reports_m, 1),
    }


def _errors(errors: RoadErrors | None) -> dict[str, Any] | None:
    if errors is None:
        return None
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
