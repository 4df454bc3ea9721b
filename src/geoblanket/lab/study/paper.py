"""The paper's claims, one list for all reports: what it says and where, beside what was measured, judged by one rule.

The list is `paper.toml`. What was measured comes by key: from a study, from the training of a predictor, or from the
results of an evaluation. A claim without a range is shown and not judged, for the reason that it gives.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from scipy import stats

from geoblanket._display import UNKNOWN, Interval, city_name, interval_text, text
from geoblanket._page import Page
from geoblanket.lab.evaluate.methods import METHODS

CITIES = ("porto", "rome")
"""The cities of the paper …"""
COMPARED = (*CITIES, "sanfrancisco")
"""… and those of which our numbers are compared with its."""
CLAIMS_HEADING = "The paper's numbers and ours"
_EVERYWHERE = (-float("inf"), float("inf"))


class Verdict(StrEnum):
    """Whether a claim of the paper is confirmed."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "cannot be decided"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Measured:
    """What was measured about a claim."""

    value: float | None
    interval: Interval | None = None
    """The 95 % interval of `value`; None where it is not known."""
    spread: float | None = None
    """1.96 standard deviations, where the paper tells them."""
    words: str = ""
    """What else is told of it."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper about one city, and what was measured about it."""

    key: str
    topic: str
    paper: str
    """The paper's number."""
    low: float
    high: float
    """The claim is true of values from `low` to `high`."""
    where: str
    """In the paper."""
    city: str = ""
    form: str = ".1%"
    """How the measured value is written."""
    why: str = ""
    """Why it is not judged, or cannot be measured."""
    measured: Measured | None = None

    @property
    def verdict(self) -> Verdict:
        """It holds if the whole interval is in the claimed range, fails if no part is, and is undecided otherwise."""
        if (self.low, self.high) == _EVERYWHERE:
            return Verdict.NOT_JUDGED
        interval = None if self.measured is None else self.measured.interval
        if interval is None:
            return Verdict.UNDECIDED
        if interval.high < self.low or interval.low > self.high:
            return Verdict.FAILS
        inside = self.low <= interval.low and interval.high <= self.high
        return Verdict.HOLDS if inside else Verdict.UNDECIDED

    @property
    def ours(self) -> str:
        """What was measured, as a table shows it."""
        found = self.measured or Measured(None)
        spread = "" if found.spread is None else f" ±{text(found.spread, self.form)}"
        return f"{text(found.value, self.form)}{spread}{found.words}"

    @property
    def interval(self) -> str:
        """The 95 % interval, as a table shows it."""
        found = None if self.measured is None else self.measured.interval
        return UNKNOWN if found is None or found.low == found.high else interval_text(found, self.form)

    @property
    def judgement(self) -> str:
        """The verdict, or why there is none."""
        if self.verdict is Verdict.NOT_JUDGED:
            return f"{self.verdict}: {self.why}"
        if self.measured is None or self.measured.value is None:
            return f"{self.verdict}: not measured in this run"
        return self.verdict if self.measured.interval is not None else f"{self.verdict}: no interval is known"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found = self.measured or Measured(None)
        interval = [None, None] if found.interval is None else [found.interval.low, found.interval.high]
        about = {"key": self.key, "city": self.city, "topic": self.topic, "paper": self.paper, "where": self.where}
        known = {"measured": found.value, "interval": interval, "words": found.words}
        limits = None if self.verdict is Verdict.NOT_JUDGED else [self.low, self.high]
        return {**about, **known, "range": limits, "verdict": self.judgement}


@cache
def paper_claims() -> tuple[Claim, ...]:
    """Return every claim of the paper, in its order; of both cities where it says the same of both."""
    tables = tomllib.loads((files("geoblanket.lab.study") / "paper.toml").read_text("utf-8"))["claims"]
    return tuple(claim for table in tables for claim in _claims(table))


def _claims(table: Mapping[str, Any]) -> Iterator[Claim]:
    names = table.get("names", [""])
    for place, name in enumerate(names):
        shown = METHODS[name].label if name in METHODS else name.replace("_", " ")
        topic = table["topics"][place] if "topics" in table else table["topic"].format(shown)
        for city in ("both",) if "both" in table else CITIES:
            says = table[city][place]
            low, high = _range(table, place, city, says)
            about = {"form": table.get("form", ".1%"), "why": table.get("why", "")}
            where = "" if city == "both" else city
            yield Claim(table["key"].format(name), topic, says, low, high, table["where"], where, **about)


def _range(table: Mapping[str, Any], place: int, city: str, says: str) -> tuple[float, float]:
    """Return the values of which a claim is true."""
    if "range" in table:
        limits = table["range"]
        chosen = limits[city] if isinstance(limits, Mapping) else limits
        low, high = chosen[place] if isinstance(chosen[0], list) else chosen
        return low, high
    if "close" in table:
        return _number(says) - table["close"], _number(says) + table["close"]
    if "at_least" in table:
        return _number(says) - table["at_least"], 1.0
    return _EVERYWHERE


def _number(says: str) -> float:
    """Return the number that the paper prints first."""
    printed = says.split(maxsplit=1)[0].replace(",", "")
    return float(printed) / 100 if "%" in says else float(printed)


def paper_number(city: str | None, key: str) -> float | None:
    """Return the paper's number by its key; None for other cities."""
    return next((_number(claim.paper) for claim in paper_claims() if (claim.city, claim.key) == (city, key)), None)


def judge(measured: Mapping[str, Measured], city: str | None, *, every: bool = False) -> list[Claim]:
    """Return the claims about a city with what was measured.

    Parameters
    ----------
    measured
        By key.
    city
        One of `COMPARED`. In a city that the paper does not study, a claim holds if it is true as in one of the
        paper's cities. None for any other city: then only claims about both of the paper's cities count.
    every
        Return claims about which nothing was measured, too.
    """
    claims = paper_claims() if city in (None, *CITIES) else _elsewhere()
    return [
        replace(claim, city=city or "", measured=measured.get(claim.key))
        for claim in claims
        if claim.city in ("", city) and (every or claim.key in measured)
    ]


@cache
def _elsewhere() -> tuple[Claim, ...]:
    """Return the claims about a city that the paper does not study: what is true of one of its cities, or of both.

    They are not judged where the ranges of its cities do not meet: there it says nothing of cities in general.
    """
    groups: dict[tuple[str, str], list[Claim]] = {}
    for claim in paper_claims():
        groups.setdefault((claim.where, claim.key), []).append(claim)
    claims = []
    for first, *others in groups.values():
        low, high = first.low, first.high
        for other in others:
            apart = other.low > high or low > other.high
            low, high = _EVERYWHERE if apart else (min(low, other.low), max(high, other.high))
        why = first.why or "the paper's cities differ, and it does not study this one"
        says = _both({claim.city: claim.paper for claim in (first, *others)})
        claims.append(replace(first, city="", paper=says, low=low, high=high, why=why))
    return tuple(claims)


def add_claims(page: Page, claims: Sequence[Claim]) -> None:
    """Add a table of claims to a page."""
    header, *rows = claims_table(claims)
    page.table(header, rows, words=range(len(header)))


def claims_table(claims: Sequence[Claim]) -> list[tuple[str, ...]]:
    """Return a header and a row for each claim, with cities side by side."""
    cities = [city for city in ("", *COMPARED) if any(claim.city == city for claim in claims)]
    ours = [f"ours ({city_name(city)})" if city else "ours" for city in cities]
    rows = [("claim", "where in the paper", "paper", *ours, "95 % interval", "verdict or why not")]
    for where, topic in dict.fromkeys((claim.where, claim.topic) for claim in claims):
        of_city = {claim.city: claim for claim in claims if (claim.where, claim.topic) == (where, topic)}
        numbers = [of_city[city].ours if city in of_city else UNKNOWN for city in cities]
        studied = {city: claim for city, claim in of_city.items() if city in CITIES}
        paper = _both({city: claim.paper for city, claim in (studied or of_city).items()})
        interval, verdict = (
            _both({city: getattr(claim, name) for city, claim in of_city.items()}) for name in ("interval", "judgement")
        )
        rows.append((topic, where, paper, *numbers, interval, verdict))
    return rows


def _both(values: Mapping[str, str]) -> str:
    """Return the texts of cities as one, once if they are the same."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return "; ".join(f"{city_name(city)}: {value}" for city, value in values.items())


def share_interval(part: int, whole: int) -> Interval | None:
    """Return Wilson's 95 % interval of a share; None of nothing."""
    if not whole:
        return None
    found = stats.binomtest(part, whole).proportion_ci(method="wilson")
    return Interval(float(found.low), float(found.high))


def short_blankets(lengths: Mapping[int, int]) -> Measured:
    """Return the share of blankets of at most two locations, from the number of blankets of each length."""
    small, total = sum(count for length, count in lengths.items() if length <= 2), sum(lengths.values())
    each = ", ".join(f"{length}: {count / total:.0%}" for length, count in sorted(lengths.items()))
    return Measured(small / total, share_interval(small, total), words=f" ({each})")
