"""What people wish of reports, in metres and chances, and the largest ε that keeps it.

How often a guess is right follows from the weights of a lattice (`geoblanket.mechanism.certainty`). Lattices are
enlargements of one another: with half of ε, everything is twice as far. So ε is found on one small lattice, without
roads and trips. What a plan then states is computed from the weights of the lattice that it asks for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Final

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError
from geoblanket.mechanism.certainty import LossCurve, compose
from geoblanket.mechanism.costs import HOUR_S, LARGEST_EPSILON, SMALLEST_EPSILON
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.planning.schedules import Schedule, fence_km, round_down, round_up

HOME_M: Final = 570.0
"""How far off a home is kept where nothing else is wished, metres: a fence of 1 km."""
SURE: Final = 0.7
"""How often a guess may be right where nothing else limits reports."""
_METRES: Final = {"": 1.0, "m": 1.0, "km": 1000.0}
_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_PERCENT: Final = {"%": 1.0}
_QUANTITY: Final = re.compile(r"(\d+\.?\d*|\.\d+) ?([a-z%]*)")
_SMALL_EPSILON: Final = 2.0
_ROUNDED_M: Final = 1.45
"""What a lattice adds to a distance for rounding, metres; below ε = 1.42 per km it is this much times 1.42/ε."""
_UNLIKE: Final = 2e-4
"""More than cells, frames and rounding differ from those of the small lattice, in how often a guess is right."""
_NORMAL: Final = NormalDist()


@checked
@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What reports may tell, and how near they must be. A wish that is None is not made.

    Examples
    --------
    >>> from geoblanket import Wishes
    >>> wishes = Wishes.read(home="350m/month", apart="100m", sure="70%", road="0.5km")
    >>> wishes.given()
    {'home': 350.0, 'sure': 0.7, 'road': 500.0}
    """

    home_m: float | None = None
    """The least mean error about a home of an attacker who sees a month of nights, metres; 570 where it is None."""
    apart_m: float = 100.0
    """How far apart two places or ways are that shall be hard to tell apart, metres."""
    sure: float | None = None
    """How often the best guess between both may be right, given all reports: a share, above .5, which is chance."""
    for_s: float = HOUR_S
    """How long both differ, seconds on the road."""
    road_m: float | None = None
    """The largest mean error on the road of a recipient who tracks the vehicle, metres."""
    hour: float | None = None
    """What an hour on the road may cost at most, ε per km."""
    report: float | None = None
    """What one report may cost at most, ε per km."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value < math.inf:
                raise ParameterError(f"The wish {field.name} must be a number above 0. Got {value} instead.")
        if self.sure is not None and not 0.5 < self.sure < 1:
            raise ParameterError(
                "How often a guess may be right is above 50 %, which is chance, and below 100 %. Got "
                f"{100 * self.sure:g} % instead."
            )
        fence_km(self.kept_home_m)

    @classmethod
    @checked
    def read(
        cls,
        *,
        home: str | None = None,
        apart: str | None = None,
        sure: str | None = None,
        for_: str | None = None,
        road: str | None = None,
        more: Mapping[str, float] | None = None,
    ) -> Wishes:
        """Return wishes that are given as texts with units.

        Parameters
        ----------
        home
            A distance, such as "350m" or "350m/month": a fence keeps it for any number of nights.
        apart, road
            Distances, such as "100m" or "0.5km".
        sure
            A share, such as "70%".
        for_
            A time, such as "15min", "1h" or "30d".
        more
            Other wishes, by the name of their field.

        Raises
        ------
        ParameterError
            If a text has no unit that is known, or a wish cannot be meant.
        """
        read: dict[str, float | None] = {
            "home_m": None
            if home is None
            else metres_of("home", home.removesuffix("/month"), "a distance such as 350m or 350m/month"),
            "apart_m": None if apart is None else metres_of("apart", apart),
            "sure": None if sure is None else _quantity("sure", sure, _PERCENT, "a share such as 70%") / 100,
            "for_s": None if for_ is None else seconds_of("for", for_),
            "road_m": None if road is None else metres_of("road", road),
        }
        return cls(**{name: value for name, value in read.items() if value is not None}, **(more or {}))

    @property
    def kept_home_m(self) -> float:
        """The least mean error about a home that the fence keeps, metres."""
        return HOME_M if self.home_m is None else self.home_m

    @property
    def limited(self) -> bool:
        """Whether something limits what reports may tell on the road."""
        return not self.sure is self.hour is self.report is None

    def given(self) -> dict[str, float]:
        """Return the wishes that are made, by name."""
        made = {name: getattr(self, name) for name in ("home_m", "sure", "road_m", "hour", "report")}
        return {name.removesuffix("_m"): value for name, value in made.items() if value is not None}

    def draws(self, interval_s: float) -> int:
        """Return how many reports are drawn on the road while two alternatives differ."""
        return math.ceil(self.for_s / interval_s)


def affordable(wishes: Wishes, *, interval_s: float) -> Schedule:
    """Return the schedule with the largest ε that keeps the wishes for privacy, rounded down to two digits.

    A larger ε is never less useful, so smaller ones are not tried. If no ε keeps them, it is the smallest that is made.
    """
    if not wishes.limited:
        wishes = replace(wishes, sure=SURE)
    limits = [LARGEST_EPSILON if wishes.report is None else wishes.report]
    if wishes.hour is not None:
        limits.append(wishes.hour / Schedule(1.0, interval_s).hour)
    if wishes.sure is not None:
        limits.append(_largest_epsilon(wishes.sure, wishes.apart_m, wishes.draws(interval_s)))
    return Schedule(made_epsilon(min(limits)), interval_s)


def right(epsilon: float, *, apart_m: float, draws: int) -> float:
    """Return about how often the best guess between two alternatives is right after some draws, to .0002.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre.
    apart_m
        How far apart the alternatives are, metres.
    draws
        How many reports are drawn while they differ.
    """
    rounded_m = _ROUNDED_M * max(1.0, 1.42 / epsilon)
    curve = _small_curve(max((apart_m + rounded_m) * epsilon / _SMALL_EPSILON - _ROUNDED_M, 0.001))
    return compose(curve, apart_m=apart_m, reports=draws).right


@cache
def _small_lattice() -> Lattice:
    return Lattice.known(spec_over(Area.around(0.0, 0.0, 1.0), epsilon=_SMALL_EPSILON), 0)


@lru_cache(1024)
def _small_curve(apart_m: float) -> LossCurve:
    return _small_lattice().loss_curve(apart_m)


@lru_cache(1024)
def _largest_epsilon(sure: float, apart_m: float, draws: int) -> float:
    """Return the largest ε of two digits with which a guess is right at most so often; below the smallest if none."""

    def keeps(epsilon: float) -> bool:
        return right(epsilon, apart_m=apart_m, draws=draws) <= sure - _UNLIKE

    # Φ(ε·d·√(n/8)) is nearly it, and at a known ε it tells by how much ε must change.
    wanted = _NORMAL.inv_cdf(sure)
    epsilon = made_epsilon(wanted / (apart_m / 1000 * math.sqrt(draws / 8)))
    found = right(epsilon, apart_m=apart_m, draws=draws)
    if found < 1 - 1e-9:
        epsilon = made_epsilon(epsilon * wanted / _NORMAL.inv_cdf(found))
    while epsilon > SMALLEST_EPSILON and not keeps(epsilon):
        epsilon = round_down(0.999 * epsilon)
    while epsilon < LARGEST_EPSILON and keeps(larger := round_up(1.001 * epsilon)):
        epsilon = larger
    return epsilon


def made_epsilon(epsilon: float) -> float:
    """Return an ε rounded down to two digits, among those that are made."""
    return max(round_down(epsilon), SMALLEST_EPSILON)


def metres_of(name: str, text: str, example: str = "a distance such as 100m or 0.5km") -> float:
    """Return a distance such as 350m or 0.5km in metres; `name` is that of the option."""
    return _quantity(name, text, _METRES, example)


def seconds_of(name: str, text: str) -> float:
    """Return a time such as 8h in seconds; `name` is that of the option."""
    return _quantity(name, text, _SECONDS, "a time such as 90s, 15min, 8h or 30d")


def _quantity(name: str, text: str, units: Mapping[str, float], example: str) -> float:
    """Return a number with a unit in the unit that is 1."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in units or not float(found[1]):
        # What was given is not repeated: somebody may have given the place of a home.
        raise ParameterError(f"--{name} must be {example}. Got a text that cannot be read so.")
    return float(found[1]) * units[found[2]]
