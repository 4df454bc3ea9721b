"""What a file was learned from, and what that promises to the drivers: a statement that files carry.

Learning is private if its result is nearly as probable without any one *unit*, a vehicle with all its trips or a single
trip: (ε, δ)-differential privacy of whole units. Each part of a model that was counted costs some ρ, in
zero-concentrated differential privacy; parts add up. Who reads a statement can check that its ε follows from the noise
that it names. That this noise was added, only who learned can know.

Learning from released reports adds no noise. The vehicles that reported keep the promise of their reports: an ε per km
for each report. The statement names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from string import hexdigits
from typing import Any, Final, Literal, get_args

Unit = Literal["vehicle", "trip"]
UnitsCounted = Literal["declared", "noisy", "exact"]
Source = Literal["nobody", "walks", "private", "released", "not said"]
PART_COLUMNS: Final = ("part", "numbers", "noise", "ρ")
UNITS: Final = "units"
"""The name of the part that counts the units themselves."""
_ROUNDING: Final = 1e-9
_MOST_PARTS: Final = 100
_MOST_TABLES: Final = 1000
_LONGEST_WORDS: Final = 200
_LARGEST_NUMBER: Final = 1 << 53
_LEAST_RHO: Final = 1e-200
"""Less is counted as this, so that no order is infinite."""


def epsilon_of(rho: float, delta: float) -> float:
    """Return the ε that ρ-zero-concentrated differential privacy means for a given δ.

    The bound of Canonne, Kamath and Steinke (2020): δ = min over α > 1 of
    e^((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α, solved for ε and minimised over α.
    """
    if not (rho >= 0 and 0 < delta < 1):
        return math.inf
    if rho == 0:
        return 0.0
    rho = max(rho, _LEAST_RHO)

    def epsilon(order: float) -> float:
        bound = -math.log(delta) - math.log(order - 1) + order * math.log1p(-1 / order)
        return order * rho + bound / (order - 1)

    low, high = 1e-9, 2 + 4 * math.sqrt(-math.log(delta) / rho)
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):  # golden section: each turn keeps the minimum between them
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if epsilon(1 + left) < epsilon(1 + right) else (left, high)
    return max(0.0, epsilon(1 + high))


@dataclass(frozen=True)
class PrivatePart:
    """Numbers that were counted together, and the noise that was added to each."""

    name: str
    """What was counted."""
    cells: int
    """How many numbers."""
    bound: int
    """No unit changes them by more than this, as a Euclidean length."""
    scale: float
    """σ of the discrete Gaussian noise on each, in the same measure."""

    @property
    def rho(self) -> float:
        """The cost ρ, in zero-concentrated differential privacy."""
        ratio = self.bound / self.scale
        return ratio * ratio / 2


@dataclass(frozen=True)
class TrainingPromise:
    """What was promised to the vehicles or trips that were learned from."""

    unit: Unit
    """Whose presence is hidden: that of a vehicle with all its trips, or that of a trip."""
    units: int
    """How many there were, as `units_are` says."""
    epsilon: float
    delta: float
    parts: tuple[PrivatePart, ...]
    rule: str
    """How it was decided how many past places matter, as words."""
    rho_before: float = 0.0
    """What was learned before from the same walks cost."""
    noise_id: str = ""
    """Names the noise that was drawn, at random: two learnings with the same numbers are not one."""
    units_are: UnitsCounted = "exact"
    """Where the number of units comes from: declared by the caller; counted with noise, as the part `UNITS`; or counted
    exactly. Earlier versions did the last, and chose the unit by a look at the walks: their files do not say."""

    @property
    def rho(self) -> float:
        """What all parts cost together."""
        return sum(part.rho for part in self.parts)

    @property
    def total_epsilon(self) -> float:
        """ε with what was learned before from the same walks, for the same δ."""
        return (
            max(self.epsilon, epsilon_of(self.rho + self.rho_before, self.delta)) if self.rho_before else self.epsilon
        )

    def in_words(self) -> str:
        """Return the promise as part of a sentence."""
        words = f"learned with ε = {self.epsilon:g}, δ = {self.delta:g} for each {self.unit}"
        if self.rho_before:
            words += f" (ε = {self.total_epsilon:.3g} with what was learned from the same walks before)"
        return words

    def rows(self) -> list[tuple[str, ...]]:
        """Return the parts as lines of a table, with `PART_COLUMNS`."""
        return [
            (part.name, f"{part.cells:,}", f"{part.scale / part.bound:.4g}", f"{part.rho:.4g}") for part in self.parts
        ]

    def proof(self) -> str:
        """Return why its ε follows from its parts, in sentences."""
        number = {
            "declared": f"{self.units:,} as declared",
            "noisy": f"about {self.units:,}, counted with noise",
        }.get(self.units_are, f"{self.units:,}, counted exactly")
        return (
            f"The counts of each {self.unit} ({number}) were scaled to length 1 in each part, and every "
            "number of the part got discrete Gaussian noise with this standard deviation: that costs "
            "ρ = 1 / (2 noise²). "
            f"Together they cost ρ = {self.rho:.4g}, and for δ = {self.delta:g} that means "
            f"ε = {epsilon_of(self.rho, self.delta):.6g}, no more than the {self.epsilon:g} that is promised. That "
            "this noise was added, only who learned can know."
        )

    def problem(self) -> str | None:
        """Return why this cannot be a promise that was kept, or None."""
        is_counted = self.units_are != "noisy" or UNITS in {part.name for part in self.parts}
        if self.unit not in get_args(Unit) or self.units < 2 or self.units_are not in get_args(UnitsCounted):
            return "it names no units"
        if not (0 < self.epsilon < math.inf and 0 < self.delta < 1 / self.units and 0 <= self.rho_before < math.inf):
            return "ε or δ promise nothing"
        # What is not printable could steer a terminal.
        if (
            not (1 <= len(self.parts) <= _MOST_PARTS and is_counted)
            or not all(1 <= len(words) <= _LONGEST_WORDS and words.isprintable() for words in self._words())
            or not set(self.noise_id) <= set(hexdigits)
        ):
            return "it names no parts, or too many, or not in words"
        if not all(part.cells >= 1 and part.bound >= 1 and 0 < part.scale < math.inf for part in self.parts):
            return "a part has no bound or no noise"
        if epsilon_of(self.rho, self.delta) > self.epsilon * (1 + _ROUNDING) + _ROUNDING:
            return "the noise of its parts is too small for its ε"
        return None

    def _words(self) -> list[str]:
        return [self.rule, self.noise_id or "none", *(part.name for part in self.parts)]

    def as_json(self) -> dict[str, Any]:
        """Return the promise as JSON values; those of earlier versions do not say how units were counted."""
        fields = asdict(self) | {"parts": [asdict(part) for part in self.parts]}
        if self.units_are == "exact":
            del fields["units_are"]
        return fields

    def caveat(self) -> str:
        """Return the caveats, in sentences."""
        noise = "That the noise of learning was added, only who learned can know: the file can only name it."
        if self.units_are != "exact":
            return noise
        return (
            f"{noise} An earlier version chose the unit by a look at the walks and counted the {self.unit}s exactly: "
            "the ε covers neither."
        )

    @classmethod
    def parsed(cls, value: object) -> TrainingPromise:
        """Read a promise from JSON values.

        Raises
        ------
        ValueError
            If it is none, or if its ε does not follow from its parts.
        """
        types = _PROMISE_TYPES | ({"units_are": (str,)} if type(value) is dict and "units_are" in value else {})
        fields = _typed(value, types)
        parts = tuple(PrivatePart(**_typed(part, _PART_TYPES)) for part in fields["parts"])
        promise = cls(**{**fields, "parts": parts})
        problem = promise.problem()
        if problem is not None:
            raise ValueError(f"the statement of what it was learned from cannot be true: {problem}")
        return promise


_NUMBER: Final = (int, float)
_PART_TYPES: Final[dict[str, tuple[type, ...]]] = {"name": (str,), "cells": (int,), "bound": (int,), "scale": _NUMBER}
_PROMISE_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "unit": (str,),
    "units": (int,),
    "epsilon": _NUMBER,
    "delta": _NUMBER,
    "parts": (list,),
    "rule": (str,),
    "rho_before": _NUMBER,
    "noise_id": (str,),
}


def _typed(value: object, types: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    if type(value) is not dict or set(value) != set(types):
        raise ValueError("the statement of what it was learned from has other fields")
    if any(type(value[name]) not in allowed for name, allowed in types.items()):
        raise ValueError("the statement of what it was learned from has values of other types")
    if any(type(number) in _NUMBER and not abs(number) <= _LARGEST_NUMBER for number in value.values()):
        raise ValueError("the statement of what it was learned from has numbers that are too large")
    return dict(value)


@dataclass(frozen=True)
class ReleasedReports:
    """A table of released reports that something was learned from."""

    table: str = ""
    """SHA-256 of the table; empty where it is not known."""
    epsilon: float | None = None
    """What a report costs a location at most, per km; None where the table does not say what made it."""
    most_reports: int | None = None
    """How many reports one vehicle has at most; None where it is not known."""

    @classmethod
    def parsed(cls, value: object) -> ReleasedReports:
        """Read it from JSON values; raise ValueError if it is none."""
        none = type(None)
        reports = cls(**_typed(value, {"table": (str,), "epsilon": (*_NUMBER, none), "most_reports": (int, none)}))
        if not (
            len(reports.table) <= 64
            and set(reports.table) <= set(hexdigits)
            and (reports.epsilon is None or 0 <= reports.epsilon < math.inf)
            and (reports.most_reports is None or reports.most_reports >= 1)
        ):
            raise ValueError("the statement of what it was learned from has reports that cannot be")
        return reports


@dataclass(frozen=True)
class Training:
    """What something was learned from: nobody, walks without privacy, walks with a promise, released reports."""

    source: Source
    promise: TrainingPromise | None = None
    released: tuple[ReleasedReports, ...] = ()
    """Released reports that were learned from, besides the source or as the source."""

    @property
    def report_epsilon(self) -> float | None:
        """What each of the released reports costs a location at most, per km; None where one does not say."""
        costs = [reports.epsilon for reports in self.released]
        return None if None in costs else max((cost for cost in costs if cost is not None), default=None)

    def in_words(self) -> str:
        """Return what the drivers have been promised, as part of a sentence."""
        if self.source == "released":
            return f"learned from {self._reports_in_words()}"
        words = {
            "nobody": "learned from nobody's trips",
            "walks": "learned without privacy for those in the traces",
        }.get(self.source, "learned from what its file does not say")
        if self.promise is not None:
            words = self.promise.in_words()
        return f"{words}, and from {self._reports_in_words()}" if self.released else words

    def _reports_in_words(self) -> str:
        if self.report_epsilon is None:
            return "released reports, ε unknown"
        words = f"released reports, ε = {self.report_epsilon:.9g} per km for each"
        most = [reports.most_reports for reports in self.released]
        together = sum(count for count in most if count is not None)
        return words if None in most else f"{words} and at most {together:,} of one vehicle"

    def caveat(self) -> str | None:
        """Return the caveats, in sentences; None if there are none."""
        told = {
            "walks": "Those whose trips were learned from are promised nothing: treat the file as their trips.",
            "not said": "The file does not say what it was learned from: count on no privacy for the drivers.",
        }.get(self.source)
        notes = [told if self.promise is None else self.promise.caveat()]
        if self.released and self.report_epsilon is None:
            notes.append("The ε of the reports that were learned from is unknown: count on no privacy for them.")
        elif self.released:
            notes.append(
                "Learning gives the reports no further protection: their ε is for one report, and adds up over all "
                "reports of a vehicle."
            )
        return " ".join(filter(None, notes)) or None

    def together(self, other: Training) -> Training:
        """Return the statement of a result made from both: no more than the weaker of the two promises.

        Two promises that are not of the same noise are about other walks, or add up: then no privacy is claimed.
        Released reports of both are named, whatever else was learned from.
        """
        source = self._without_reports()._weaker(other._without_reports())
        released = {*self.released, *other.released}
        if not released:
            return source
        if len(released) > _MOST_TABLES:
            released = {ReleasedReports()}
        ordered = tuple(sorted(released, key=lambda reports: (reports.table, str(reports))))
        return Training("released" if source.source == "nobody" else source.source, source.promise, ordered)

    def _without_reports(self) -> Training:
        return NOBODY if self.source == "released" else Training(self.source, self.promise)

    def _weaker(self, other: Training) -> Training:
        if other.source == "nobody" or (self == other and (self.promise is None or self.promise.noise_id)):
            return self
        if self.source == "nobody":
            return other
        return NOT_SAID if "walks" not in {self.source, other.source} and NOT_SAID in (self, other) else WALKS

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        fields: dict[str, Any] = {"source": self.source}
        if self.promise is not None:
            fields["promise"] = self.promise.as_json()
        if self.released:
            fields["released"] = [asdict(reports) for reports in self.released]
        return fields

    @classmethod
    def parsed(cls, value: object) -> Training:
        """Read it from JSON values; raise ValueError if it is none."""
        if type(value) is not dict or value.get("source") not in get_args(Source):
            raise ValueError("it does not say what it was learned from")
        source, reports = value["source"], value.get("released", [])
        needed = {"source", *(["promise"] if source == "private" else []), *(["released"] if reports else [])}
        if set(value) != needed or type(reports) is not list or len(reports) > _MOST_TABLES:
            raise ValueError("the statement of what it was learned from has other fields")
        if (source == "released" and not reports) or (source == "nobody" and reports):
            raise ValueError("the statement of what it was learned from contradicts itself about released reports")
        promise = TrainingPromise.parsed(value["promise"]) if source == "private" else None
        return cls(source, promise, tuple(ReleasedReports.parsed(one) for one in reports))


NOBODY: Final = Training("nobody")
WALKS: Final = Training("walks")
NOT_SAID: Final = Training("not said")


def training_of(about: Mapping[str, Any]) -> Training:
    """Return what walks, or what was computed from them, were learned from, as their description says.

    Those that say nothing are trips of people, or were computed from some. Raise ValueError if what they say cannot be
    true.
    """
    return Training.parsed(about["training"]) if "training" in about else WALKS
