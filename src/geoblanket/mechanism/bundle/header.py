"""The header of a bundle, parsed strictly: only known keys, integers that are integers, bounded text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

from geoblanket._arrays import Indices
from geoblanket._training import NOBODY, NOT_SAID, Training
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.clock import HOURS, LARGEST_INTERVAL_MS, Clock
from geoblanket.mechanism.bundle.lattice_section import LatticeHeader, lattice_clock
from geoblanket.mechanism.bundle.parsing import check_keys, integer, text
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mechanism.costs import Costs
from geoblanket.mechanism.exponential_bounds import MAX_EPSILON_MICRO
from geoblanket.mechanism.problem import INFINITE_ETA_MM, NEVER_MM

__all__ = [
    "DISCLOSED",
    "DISCLOSED_BY_LATTICE",
    "LARGEST_HISTORIES",
    "LARGEST_ROWS",
    "BundleHeader",
    "MechanismHeader",
    "ReadBundle",
]

DISCLOSED: Final = "the zone, the regime, and when a report was made"
"""What a report from a zone tells besides its output."""
DISCLOSED_BY_LATTICE: Final = "when a report was made"
"""What a report from a lattice tells besides its output."""
DISCLOSED_BY_HOLD: Final = "when a report was made, and when the vehicle rests"
"""The same, if reports are held."""
_DISCLOSED_BEFORE: Final = "the zone and the regime of each report"
"""The same in older files."""

LARGEST_ROWS: Final = 5000
"""Rows of a mechanism: their distances take 200 MB of memory."""
LARGEST_HISTORIES: Final = 1 << 14
"""Histories of a mechanism: row distances are computed from all pairs of them, in seconds."""

_LARGEST_OUTPUTS: Final = 1 << 24
_LARGEST_COLUMNS: Final = 1 << 16
_LONGEST_NAME: Final = 200
_LONGEST_HISTORY: Final = 8
_LARGEST_VERSION: Final = 1 << 53
_LARGEST_RADIUS_MM: Final = 10**9
_TRAINING: Final = "training"


@dataclass(frozen=True)
class MechanismHeader:
    """What the header says of one mechanism."""

    zone: str
    regime: str
    rows: int
    outputs: int
    """Outputs of the problem, used or not."""
    columns: int
    """Outputs that some row may give."""
    epsilon_micro: int
    eta_mm: int
    history_weights_micro: tuple[int, ...]
    histories: int
    """Histories whose places are in the file; 0 without coordinates."""

    @property
    def where(self) -> str:
        """Which mechanism it is, for messages."""
        return f"{zone_in_words(self.zone)}, regime '{self.regime}'"

    @classmethod
    def parsed(cls, values: Any) -> MechanismHeader:
        """Return the header of one mechanism; raise ValueError unless all of it is in order."""
        check_keys(values, {field.name for field in fields(cls)})
        weights = values["history_weights_micro"]
        if type(weights) is not list or len(weights) > _LONGEST_HISTORY:
            raise ValueError(f"'history_weights_micro' must be a list of at most {_LONGEST_HISTORY} values")
        outputs = integer(values, "outputs", 1, _LARGEST_OUTPUTS)
        return cls(
            zone=text(values, "zone", _LONGEST_NAME),
            regime=text(values, "regime", _LONGEST_NAME),
            rows=integer(values, "rows", 1, LARGEST_ROWS),
            outputs=outputs,
            columns=integer(values, "columns", 1, min(outputs, _LARGEST_COLUMNS)),
            epsilon_micro=integer(values, "epsilon_micro", 0, MAX_EPSILON_MICRO),
            eta_mm=integer(values, "eta_mm", 0, INFINITE_ETA_MM),
            history_weights_micro=tuple(
                integer({"history_weights_micro": weight}, "history_weights_micro", 0, NEVER_MM) for weight in weights
            ),
            histories=integer(values, "histories", 0, LARGEST_HISTORIES),
        )


@dataclass(frozen=True)
class BundleHeader:
    """What the header says of the whole bundle."""

    version: int
    """The publisher's own number, which only grows: a device refuses to go back."""
    domain: str
    """Hash of the domain: places, histories, zones and regimes (hexadecimal)."""
    disclosed: str
    """What a report tells besides its output, in words."""
    snapping_radius_mm: int
    """How far a point of the roads can lie from the place that stands for it, millimetres, as the builder says."""
    clock: Clock | None
    """When which regime is used; None: whoever uses the bundle says which."""
    mechanisms: tuple[MechanismHeader, ...]
    """In order of zone and regime; none beside a lattice."""
    lattice: LatticeHeader | None = None
    """The lattice, if the bundle has one instead of zones."""
    training: Training = NOT_SAID
    """What the mechanisms were learned from; a lattice is learned from nobody."""

    @classmethod
    def parsed(cls, values: Any) -> BundleHeader:
        """Return the header; raise ValueError unless all of it is in order."""
        if type(values) is dict and "lattice" in values:
            return cls._parsed_lattice(values)
        stated = type(values) is dict and _TRAINING in values
        check_keys(values, {field.name for field in fields(cls)} - {"lattice"} - (set() if stated else {_TRAINING}))
        mechanisms = values["mechanisms"]
        if type(mechanisms) is not list or not mechanisms:
            raise ValueError("there must be at least one mechanism")
        domain = text(values, "domain", 64)
        if len(domain) != 64 or not set(domain) <= set("0123456789abcdef"):
            raise ValueError("'domain' must be a SHA-256 in hexadecimal")
        header = cls(
            version=integer(values, "version", 0, _LARGEST_VERSION),
            domain=domain,
            disclosed=_disclosed(values["disclosed"]),
            snapping_radius_mm=integer(values, "snapping_radius_mm", 0, _LARGEST_RADIUS_MM),
            clock=None if values["clock"] is None else _clock(values["clock"]),
            mechanisms=tuple(MechanismHeader.parsed(mechanism) for mechanism in mechanisms),
            training=_training(values[_TRAINING]) if stated else NOT_SAID,
        )
        names = [(mechanism.zone, mechanism.regime) for mechanism in header.mechanisms]
        if any(first >= second for first, second in pairwise(names)):
            raise ValueError("no two mechanisms may have the same zone and regime, and they must be in order")
        if header.clock is not None:
            _check_regimes(header.clock, names)
        return header

    @classmethod
    def of_lattice(cls, lattice: LatticeHeader, *, version: int, interval_ms: int) -> BundleHeader:
        """Return the header of a bundle with a lattice: all but its version and interval follows from it."""
        return cls(
            version=version,
            domain=lattice.domain,
            disclosed=DISCLOSED_BY_HOLD if lattice.hold_mm else DISCLOSED_BY_LATTICE,
            snapping_radius_mm=lattice.rounding_mm,
            clock=lattice_clock(interval_ms),
            mechanisms=(),
            lattice=lattice,
            training=NOBODY,
        )

    @classmethod
    def _parsed_lattice(cls, values: dict[str, Any]) -> BundleHeader:
        check_keys(values, {field.name for field in fields(cls)} - {_TRAINING})
        lattice = LatticeHeader.parsed(values["lattice"])
        try:
            lattice.plane.check()
        except ParameterError as error:
            raise ValueError(str(error).rstrip(".")) from error
        clock = _clock(values["clock"])
        version = integer(values, "version", 0, _LARGEST_VERSION)
        integer(values, "snapping_radius_mm", 0, _LARGEST_RADIUS_MM)  # to Python, 716.0 is 716
        header = cls.of_lattice(lattice, version=version, interval_ms=clock.interval_ms)
        if header.as_fields() != values:
            raise ValueError("what it says beside its lattice does not follow from it")
        return header

    def as_fields(self) -> dict[str, Any]:
        """Return it as JSON values; what a file of its kind says without words is left out, as older ones do."""
        result = asdict(self)
        if self.lattice is None:
            del result["lattice"]
        if self.training == (NOT_SAID if self.lattice is None else NOBODY):
            del result[_TRAINING]
        else:
            result[_TRAINING] = self.training.as_json()
        if self.clock is not None:
            result["clock"]["regimes"] = [[name, list(hours)] for name, hours in self.clock.regimes]
        result["mechanisms"] = list(result["mechanisms"])
        for mechanism in result["mechanisms"]:
            mechanism["history_weights_micro"] = list(mechanism["history_weights_micro"])
        return result


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadBundle:
    """A bundle as a whole, once its file was read: what `BundleFile`, `Bundle` and `ReleaseTables` share."""

    header: BundleHeader
    places_e7: Indices
    """Latitude and longitude of each place in 1e-7 degrees, shape (P, 2); empty without coordinates."""
    sha256: str
    """Hash of the file."""
    signed: bool
    """Whether a signature was asked for, and is valid."""

    @property
    def version(self) -> int:
        """The publisher's own number, which only grows."""
        return self.header.version

    @property
    def domain(self) -> str:
        """Hash of the domain (hexadecimal)."""
        return self.header.domain

    @property
    def disclosed(self) -> str:
        """What a report tells besides its output, in words."""
        return self.header.disclosed

    @property
    def snapping_radius_mm(self) -> int:
        """How far a point of the roads can lie from its place, millimetres, as the builder says."""
        return self.header.snapping_radius_mm

    @property
    def clock(self) -> Clock | None:
        """When which regime is used; None: whoever uses the bundle says which."""
        return self.header.clock

    @property
    def training(self) -> Training:
        """What the mechanisms were learned from, and what that promises to those who drove, as the builder says."""
        return self.header.training

    def needed_clock(self) -> Clock:
        """Return the clock; raise MismatchError if there is none."""
        if self.clock is None:
            raise MismatchError("The bundle has no clock: it does not say which regime is used when. Build it again.")
        return self.clock

    @property
    def located(self) -> bool:
        """Whether the file has coordinates, from which the distances were computed again."""
        return len(self.places_e7) > 0

    @property
    def costs(self) -> Costs:
        """What a report costs the location that it protects, in millionths per kilometre."""
        if self.header.lattice is not None:
            return Costs(start=self.header.lattice.epsilon_micro, other=self.header.lattice.epsilon_micro)
        return Costs.of(self.header.mechanisms, "" if self.clock is None else self.clock.start)


def _disclosed(text: Any) -> str:
    """Return what is disclosed; raise ValueError if a file uses other words, which nobody has checked."""
    if text not in (DISCLOSED, _DISCLOSED_BEFORE):
        raise ValueError(f"'disclosed' must be '{DISCLOSED}'")
    return DISCLOSED


def _training(values: Any) -> Training:
    """Return what a file says it was learned from; raise ValueError if it cannot be true, or says nothing."""
    training = Training.parsed(values)
    if training == NOT_SAID:
        raise ValueError(f"'{_TRAINING}' must say something, or be left out")
    return training


def _clock(values: Any) -> Clock:
    check_keys(values, {field.name for field in fields(Clock)})
    regimes = values["regimes"]
    if type(regimes) is not list or not all(type(regime) is list and len(regime) == 2 for regime in regimes):
        raise ValueError("'regimes' must be a list of names with their hours")
    if not all(type(hours) is list and len(hours) <= HOURS for _, hours in regimes):
        raise ValueError(f"the hours of a regime must be a list of at most {HOURS}")
    try:
        return Clock(
            interval_ms=integer(values, "interval_ms", 1, LARGEST_INTERVAL_MS),
            time_zone=text(values, "time_zone", _LONGEST_NAME),
            regimes=tuple(
                (
                    text({"regime": name}, "regime", _LONGEST_NAME),
                    tuple(integer({"hour": hour}, "hour", 0, HOURS - 1) for hour in hours),
                )
                for name, hours in regimes
            ),
            start=text(values, "start", _LONGEST_NAME),
        )
    except ParameterError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _check_regimes(clock: Clock, names: list[tuple[str, str]]) -> None:
    """Raise ValueError unless each zone has one mechanism for each regime of the clock."""
    wanted = {(zone, regime) for zone in {zone for zone, _ in names} for regime in clock.names}
    if wanted != set(names):
        raise ValueError("each zone must have one mechanism for each regime of the clock, and no others")
