"""What is promised: the one place where privacy is put into numbers and words.

A `Promise` says what one report may tell, what reports add up to, what is disclosed, and what is not promised. Every
bundle has one (`bundle.promise`). Commands, reports, pages and services show it as sections of sentences, as text, or
as JSON. They compose no sentences about privacy of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from geoblanket._training import NOBODY, Training
from geoblanket.errors import ParameterError
from geoblanket.mechanism.certainty import Certainty, ReportSource, compose, times_in_100
from geoblanket.mechanism.costs import HOUR_S, NIGHT_S, Costs
from geoblanket.mechanism.lattice.limit import limit_km

DISTANCES_KM: Final = (0.1, 0.5, 1.0)
DISCLOSED: Final = "the zone, the regime, and when a report was made"
"""What a report from a zone tells besides its output."""
DISCLOSED_BY_LATTICE: Final = "when a report was made"
"""What a report from a lattice tells besides its output."""
DISCLOSED_BY_HOLD: Final = "when a report was made, and when the vehicle rests"
"""The same, if reports are held."""
_LIMITS: Final = (
    "Who reports is not hidden: a name or a number of the vehicle in a report makes its reports linkable.",
    "What a recipient learns in other ways (a camera, a receipt) is not hidden.",
)
"""What no mechanism of this kind promises."""
_TABLE_KM: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
_PAIRS: Final = {"location": "locations", "history": "histories of one zone and regime"}
_NIGHTS = {"night": 1, "week": 7, "month": 30}
_NEARLY_1 = 1.2
"""Below it two digits of the whole would say 1: what is above 1 is what counts."""


def odds(epsilon: float, distance_km: float) -> float:
    """Return the factor by which one report changes the odds between two locations this far apart, at most."""
    return math.exp(min(epsilon * distance_km, 700.0))


def odds_in_words(epsilon: float, *, between: Literal["location", "history"] = "location", unit: str = "km") -> str:
    """Return what ε means for two locations, or two histories of one, at distances that people know, in a sentence."""
    parts = [f"{times_in_words(odds(epsilon, km))} at {_distance(km)}" for km in DISTANCES_KM]
    factors = f"{', '.join(parts[:-1])} and {parts[-1]}{unit.removeprefix('km')}"
    return f"One report changes the odds between two {_PAIRS[between]} by at most a factor of {factors}."


def hour_in_words(hour_per_km: float, interval_s: float, unit: str = "km") -> str:
    """Return what the reports of an hour cost a location together, at most, in a sentence."""
    return f"An hour on the road, one report every {interval_s:g} s, adds up to {hour_per_km:,g} per {unit} at most."


@dataclass(frozen=True)
class Errors:
    """How far planar Laplace noise goes, kilometres."""

    mean_km: float
    median_km: float
    most_km: float
    """95 % of reports are nearer."""


def laplace_errors(epsilon: float) -> Errors:
    """Return how far reports with planar Laplace noise of ε per kilometre lie from the truth."""
    if not epsilon > 0:
        raise ParameterError("ε must be above 0 per km.")
    # The distance r has the density ε²·r·e^(−ε·r), so that (1 + ε·r)·e^(−ε·r) of the reports are further away.
    return Errors(mean_km=2 / epsilon, median_km=1.678347 / epsilon, most_km=4.743865 / epsilon)


def found_km(epsilon: float, draws: float) -> float:
    """Return how far off the best guess of a point is, on average, from independent reports, kilometres.

    Exact for one report, and what it tends to for many. Knowledge of streets and habits helps beyond that.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre.
    draws
        How many reports there are, at least one.
    """
    if draws <= 1:
        return 2 / epsilon
    # The point that fits n reports best is off by √2/(ε·√n) along an axis, by √(π/2) times as much over both.
    return math.sqrt(math.pi / draws) / epsilon


HOME_M_PER_KM: Final = 570.0
"""The attacker's mean error for each km of ρ, by nights only, with a prior over homes. `python -m benchmarks.home`
measured 301, 596 and 812 m at ρ = .5, 1 and 1.5 km."""


def fenced_m(radius_km: float) -> float:
    """Return how far off the best guess of a fenced place is, on average, after any number of reports, metres.

    The reports tell the centre c of the fence. It was drawn uniformly within ρ of the place, so without a prior over
    homes the place is uniform within ρ of c. The best guess is then c, and its mean error 2ρ/3. A prior over homes
    helps (`HOME_M_PER_KM`). This is for nights only: the ways in and out tell more.

    Parameters
    ----------
    radius_km
        ρ: how far the centre may lie from the place, kilometres.
    """
    return HOME_M_PER_KM * radius_km


def fenced_in_words(radius_km: float, delta: float) -> str:
    """Return what a fence promises, and what it does not, for people.

    Parameters
    ----------
    radius_km
        ρ: how far the centre may lie from the place, kilometres.
    delta
        δ of two places 100 m apart.
    """
    return (
        "Reports from inside tell nothing more about the place, however many there are. An attacker who sees nights "
        f"only stays about {two_digits(fenced_m(radius_km))} off, after any number of nights. Two places 100 m apart: "
        f"right {times_in_100((1 + delta) / 2)} times in 100, once for life (50 would be chance; δ = {100 * delta:.1f} "
        "%). The ways in and out still tell something: a larger fence tells less."
    )


@dataclass(frozen=True)
class AtRest:
    """What reports tell of a vehicle at rest: the one place where nights are counted, and put into words."""

    epsilon: float
    """ε of a report, per kilometre."""
    interval_s: float
    """From one report to the next, seconds."""
    hold_m: float = 0.0
    """Within this distance of the last draw its report is repeated at no cost, metres; 0: every report is drawn."""

    @property
    def night_cost(self) -> float:
        """What a night at one place costs, per kilometre: one report if it is held, in whole millionths as ledgers."""
        return round(self._draws(NIGHT_S) * self.epsilon, 6)

    @property
    def found_m(self) -> dict[str, float]:
        """How far off the best guess is on average after an hour, a night, a week and a month of nights, metres.

        Each night is a return, and so a draw of its own. Knowledge of streets or habits brings the guess nearer.
        """
        draws = {"hour": self._draws(HOUR_S)} | {name: n * self._draws(NIGHT_S) for name, n in _NIGHTS.items()}
        return {name: 1000 * found_km(self.epsilon, count) for name, count in draws.items()}

    def _draws(self, seconds: float) -> int:
        """Return how many reports are drawn in a stay."""
        return 1 if self.hold_m else math.ceil(seconds / self.interval_s)

    def in_words(self) -> str:
        """Return how near reports lead after a stay and after nights, and what they cost, for people."""
        found = {name: two_digits(metres) for name, metres in self.found_m.items()}
        cost = {name: f"{round(n * self.night_cost, 6):,g} per km" for name, n in _NIGHTS.items()}
        stay = (
            f"A stay costs one report, however long: a recipient of all reports is about {found['hour']} off "
            f"({cost['night']}). Each return is a new draw."
            if self.hold_m
            else f"Every report at rest is a new draw: a recipient of all reports is about {found['hour']} off after "
            f"an hour at one place and {found['night']} after a night ({cost['night']})."
        )
        return (
            f"{stay} After a week of nights the recipient is {found['week']} off ({cost['week']}), after a month "
            f"{found['month']} ({cost['month']}). A fence of 1 km keeps a home about {two_digits(fenced_m(1))} off, "
            "however many nights are seen. Knowledge of streets and habits brings a guess nearer."
        )


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What reports by a bundle promise, disclose and cost. Read it from a bundle: `bundle.promise`.

    Examples
    --------
    >>> from geoblanket import load_bundle
    >>> promise = load_bundle("city.bundle").promise
    >>> print(promise.meaning[0])
    One report changes the odds between two histories by at most a factor of ...
    >>> list(promise.sections())
    ['What it means', 'What is promised', 'What is disclosed', 'What is not promised', 'How it was verified', ...]
    """

    epsilon: float
    """ε of one report, per kilometre; the largest where mechanisms differ."""
    smallest_epsilon: float | None = None
    """ε of the zones with the smallest, per kilometre; None where all mechanisms have the same."""
    between: Literal["location", "history"]
    """Two of these are hard to tell apart: any coordinates, or histories of places in one zone and regime."""
    unit: str = "km"
    """What the kilometre is here: on the map, or in another metric, such as a kilometre of road."""
    eta_km: float = math.inf
    """η: the promise is for distances up to this, kilometres; the smallest where mechanisms differ."""
    added_m: float | None
    """What to add to the distance of two coordinates for rounding them, metres; None where it is not known."""
    costs: Costs
    """What a report costs a location."""
    interval_s: float | None = None
    """From one report to the next, seconds; None where the bundle has no clock."""
    hold_m: float = 0.0
    """Within this distance of the last draw its report is repeated at no cost, metres; 0: every report is drawn."""
    disclosed: str
    """What a report tells besides its output, as part of a sentence."""
    terms: tuple[str, ...]
    """Exactly what is promised, in sentences."""
    verified: tuple[str, ...]
    """How that was verified, in sentences."""
    not_promised: tuple[str, ...]
    """What is not promised, in sentences, the gravest first."""
    training: Training = NOBODY
    """What the mechanisms were learned from."""
    source: ReportSource = field(repr=False, compare=False)
    """What reports are drawn from: how sure anyone can be follows from it."""

    @cached_property
    def certainties(self) -> dict[str, Certainty]:
        """How sure anyone can be between two alternatives 100 m apart: after one report, and after more."""
        apart_m, draws = 1000 * DISTANCES_KM[0], {"one report": 1}
        if self.interval_s is not None:
            night, hour = (math.ceil(seconds / self.interval_s) for seconds in (NIGHT_S, HOUR_S))
            nights = {"a month of nights at one of them": 30} if self.hold_m else {"a night at one of them": night}
            draws |= (nights if self.between == "location" else {}) | {"an hour on the road": hour}
        curve = self.source.loss_curve(apart_m)
        return {what: compose(curve, apart_m=apart_m, reports=count) for what, count in draws.items()}

    @property
    def certain(self) -> str:
        """How sure anyone can be, in a sentence: metres and chances, with ε in brackets."""
        first, *others = (f"{times_in_100(each.right)} after {what}" for what, each in self.certainties.items())
        listed = ", ".join((first.replace(" ", " times in 100 ", 1), *others))
        alternatives = "locations" if self.unit == "km" else "places"
        zone = "" if self.between == "location" else " of one zone"
        apart = f"{_distance(DISTANCES_KM[0])}{self.unit.removeprefix('km')} apart"
        return (
            f"The best guess between two {alternatives}{zone}, {apart}, is right {listed} (50 "
            f"would be chance; {self.epsilon_in_words})."
        )

    @property
    def limit(self) -> list[str]:
        """How near reports come to the limit of all mechanisms, in a sentence; none where that depends on a prior."""
        if (mean_km := self.source.mean_error_km) is None:
            return []
        return [
            f"A report is {_distance(mean_km)} off on average: {100 * (mean_km / limit_km(self.epsilon) - 1):.1f} % "
            "above the least that any mechanism with this promise can do."
        ]

    @property
    def epsilon_in_words(self) -> str:
        """ε, or from what to what it goes, with its unit."""
        least = "" if self.smallest_epsilon is None else f"{self.smallest_epsilon:.9g} to "
        return f"ε = {least}{self.epsilon:.9g} per {self.unit}"

    @property
    def meaning(self) -> list[str]:
        """What the promise means for a vehicle, in sentences; the last is about a vehicle at rest."""
        lines = [self.certain, odds_in_words(self.epsilon, between=self.between, unit=self.unit)]
        if self.between == "location":
            errors = laplace_errors(self.epsilon)
            lines.append(
                f"Half of the reports are within {_distance(errors.median_km)} of the truth, 95 % within "
                f"{_distance(errors.most_km)}."
            )
        lines += self.limit
        if self.interval_s is not None:
            hour = self.costs.in_a_row_per_km(HOUR_S / self.interval_s)
            lines.append(hour_in_words(hour, self.interval_s, self.unit))
            if self.between == "location":
                lines.append(AtRest(self.epsilon, self.interval_s, self.hold_m).in_words())
        return lines

    @property
    def in_one_sentence(self) -> str:
        """What is promised to those who report, and to those who were learned from."""
        within = "" if self.eta_km == math.inf else f" ≤ {self.eta_km:.9g}"
        odds = (
            f"each report changes the odds between two {_PAIRS[self.between]}, d{within} {self.unit} apart, by at most "
            f"a factor of e^({self.epsilon:.9g}·d)"
        )
        if self.added_m is not None:
            raw = "for rounding" if self.between == "location" else "for coordinates amid the places"
            odds += f", with {_metres(self.added_m)} added to d {raw}"
        stays = "; a stay costs one report" if self.hold_m else ""
        return f"In one sentence: {odds}{stays}; disclosed: {self.disclosed}; {_learned(self.training)}."

    @property
    def learned(self) -> list[str]:
        """What those whose trips were learned from have been promised, in sentences."""
        return learned_in_words(self.training)

    @property
    def caveats(self) -> list[str]:
        """What this promise does not cover, in sentences, the gravest first."""
        learned = self.training.caveat()
        return [*([] if learned is None else [learned]), *self.not_promised]

    def factors(self) -> list[tuple[float, float]]:
        """Return distances up to η, kilometres, each with how much one report changes the odds over it at most."""
        return [(km, odds(self.epsilon, km)) for km in _TABLE_KM if km <= self.eta_km]

    def totals(self) -> list[tuple[str, float]]:
        """Return what one and many reports in a row cost a location together, at most, per kilometre."""
        rows = {"one report": 1.0, "ten reports in a row": 10.0}
        if self.interval_s is not None:
            hour = HOUR_S / self.interval_s
            rows |= {f"an hour, one every {self.interval_s:g} s": hour, "eight hours": 8 * hour}
        return [(what, self.costs.in_a_row_per_km(reports)) for what, reports in rows.items()]

    def factor_rows(self) -> list[tuple[str, str]]:
        """Return `factors` as the rows of a table: the distance, and the factor."""
        return [(f"{km:g} {self.unit}", f"{times_in_words(factor)} times") for km, factor in self.factors()]

    def total_rows(self) -> list[tuple[str, str, str]]:
        """Return `totals` as the rows of a table: reports, cost per km, and the factor for places 100 m apart."""
        return [
            (what, f"{cost:,.4g}", f"{times_in_words(odds(cost, DISTANCES_KM[0]))} times")
            for what, cost in self.totals()
        ]

    def sections(self) -> dict[str, list[str]]:
        """Return everything in sentences, by heading: what every page and every command shows."""
        return {
            "What it means": self.meaning,
            "What is promised": list(self.terms),
            "What is disclosed": [f"Every report discloses {self.disclosed}."],
            "What is not promised": [*self.caveats, *_LIMITS],
            "How it was verified": list(self.verified),
            "What was learned from": self.learned,
        }

    def __str__(self) -> str:
        parts = ["\n  ".join([heading, *lines]) for heading, lines in self.sections().items()]
        return "\n".join([*parts, self.in_one_sentence])

    def as_json(self) -> dict[str, Any]:
        """Return numbers and sentences as JSON values; None stands for infinity."""
        return {
            "epsilon_per_km": self.epsilon,
            "smallest_epsilon_per_km": self.epsilon if self.smallest_epsilon is None else self.smallest_epsilon,
            "unit": self.unit,
            "between": self.between,
            "eta_km": None if self.eta_km == math.inf else self.eta_km,
            "added_m": self.added_m,
            "hold_m": self.hold_m,
            "interval_s": self.interval_s,
            "disclosed": self.disclosed,
            "certainty": [
                {"after": what, "apart_m": each.apart_m, "reports": each.reports, "right": each.right}
                for what, each in self.certainties.items()
            ],
            "factors": [{"distance_km": km, "factor": factor} for km, factor in self.factors()],
            "totals_per_km": dict(self.totals()),
            "in_one_sentence": self.in_one_sentence,
            "sections": self.sections(),
        }


def learned_in_words(training: Training) -> list[str]:
    """Return what those whose trips were learned from have been promised, in sentences."""
    if training.source == "nobody":
        return ["Nothing was learned from anyone's trips."]
    if training.source == "released":
        return [f"Released reports were learned from, and keep their own promise: {_learned(training)}."]
    if (promise := training.promise) is None:
        return [f"Those whose trips were learned from are promised nothing: {_learned(training)}."]
    return [
        f"Those whose trips were learned from are protected too: {_learned(training)}.",
        f"The ε of learning was computed again from the noise that the file names (ρ = {promise.rho:.4g} for each "
        f"{promise.unit}). That this noise was added, only who learned can know.",
    ]


def _learned(training: Training) -> str:
    if training == NOBODY:
        return "nothing was learned from anyone"
    return f"the mechanisms were {training.in_words()}"


def times_in_words(value: float) -> str:
    """Return a factor that is stated as "at most": to two digits that count, rounded up."""
    if value < _NEARLY_1:
        above = max(value - 1, 1e-9)
        digits = 1 - math.floor(math.log10(above))
        return f"{1 + math.ceil(above * 10**digits) / 10**digits:.{digits}f}"
    if value < 10:
        return f"{math.ceil(10 * value) / 10:.2g}"
    return f"{math.ceil(value):,}" if value < 1e6 else "a million or more"


def _distance(km: float) -> str:
    return f"{1000 * km:.0f} m" if km < 1 else f"{km:.3g} km"


def _metres(metres: float) -> str:
    return f"{metres:.3g} m" if metres < 100 else f"{metres:,.0f} m"


def two_digits(metres: float) -> str:
    """Return a distance to two digits that count, with its unit."""
    return f"{float(f'{metres:.2g}'):,g} m"
