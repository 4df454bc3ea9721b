"""The header of a bundle, parsed strictly: only known keys, integers that are integers, bounded text.

A bundle has either mechanisms of zones (`ZoneHeader`) or one lattice (`LatticeHeader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import content_hash
from geoblanket._training import NOBODY, NOT_SAID, Training
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mechanism.exponential_bounds import MAX_EPSILON_MICRO
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mechanism.lattice.spec import LatticeSpec, octant_count
from geoblanket.mechanism.place_metric import GREAT_CIRCLE, MOST_PLACES, NAMES
from geoblanket.mechanism.problem import INFINITE_ETA_MM, NEVER_MM
from geoblanket.mechanism.promise import DISCLOSED, DISCLOSED_BY_HOLD, DISCLOSED_BY_LATTICE

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
_METRIC: Final = "metric"
_HOURS: Final = 24
_LARGEST_INTERVAL_MS: Final = 86_400_000
_ALL_DAY: Final = "all day"

_DTYPES: Mapping[str, tuple[str, ...]] = {
    "distances_mm": ("<u4", "<i8"), "weights": ("<i8",), "outputs": ("<i4",), "places_e7": ("<i4",),
    "histories": ("<i4",), "history_rows": ("<i4",), "output_places": ("<i4",),
}  # fmt: skip
"""The arrays of a bundle of zones, with the types that each may have."""
PLACE_DISTANCES: Final = "place_distances_mm"
"""The name of an array that only bundles in another metric than on the map have: like `distances_mm`, over places."""
MULTIPLIERS: Final = "multipliers"
"""The name of a lattice's array."""
_LATTICE_FORMAT: Final = 2
_LATTICE_NUMBERS: Final = ("epsilon_micro", "cell_units", "rate", "shift", "floor", "half_window")
_FORMAT_WITH_ANCHORS: Final = 1
_LARGEST: Final = 2**62


@dataclass(frozen=True)
class Clock:
    """What a device must know about time to choose a mechanism; all of it is public.

    Parameters
    ----------
    interval_ms
        Milliseconds from one place of a history to the next.
    time_zone
        IANA name of the time zone of the hours.
    regimes
        Name and hours (0 to 23, ascending) of each regime, in order of names; every hour in exactly one.
    start
        The regime of a report without history: the first of a trip, and the first after a gap.
    """

    interval_ms: int
    time_zone: str
    regimes: tuple[tuple[str, tuple[int, ...]], ...]
    start: str = "start"

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ParameterError(f"This is not a clock of a bundle: {problem}.")

    @property
    def names(self) -> frozenset[str]:
        """The names of all regimes, including that of reports without history."""
        return frozenset({self.start, *(name for name, _ in self.regimes)})

    @property
    def interval_s(self) -> float:
        """Seconds from one place of a history to the next."""
        return self.interval_ms / 1000

    def as_fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "regimes": [[name, list(hours)] for name, hours in self.regimes]}

    def regime(self, hour: int) -> str:
        """Return the regime of a report with history in an hour (0 to 23) of the clock's time zone."""
        for name, hours in self.regimes:
            if hour in hours:
                return name
        raise ParameterError("The hour must be a whole number from 0 to 23.")

    def _problem(self) -> str | None:
        if not 1 <= self.interval_ms <= _LARGEST_INTERVAL_MS:
            return f"the interval must be from 1 to {_LARGEST_INTERVAL_MS} ms"
        listed = [hour for _, hours in self.regimes for hour in hours]
        if sorted(listed) != list(range(_HOURS)):
            return "every hour from 0 to 23 must be in exactly one regime"
        if any(first >= second for _, hours in self.regimes for first, second in pairwise(hours)):
            return "the hours of a regime must ascend"
        if any(first >= second for first, second in pairwise(name for name, _ in self.regimes)):
            return "regimes must be in order of their names, without duplicates"
        if any(name == self.start or not hours for name, hours in self.regimes):
            return f"a regime must have hours, and another name than '{self.start}', that of reports without history"
        return None


@dataclass(frozen=True)
class MechanismHeader:
    """The part of the header about one mechanism."""

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

    @property
    def sizes(self) -> dict[str, int]:
        """How many values of each array belong to the mechanism."""
        return {
            "distances_mm": self.rows * (self.rows - 1) // 2,
            "weights": self.rows * self.columns,
            "outputs": self.columns,
            "histories": self.histories * (1 + len(self.history_weights_micro)),
            "history_rows": self.histories,
            "output_places": self.columns if self.histories else 0,
        }

    @classmethod
    def parsed(cls, values: Any) -> MechanismHeader:
        """Return the header of one mechanism; raise ValueError unless everything in it is valid."""
        _check_keys(values, {field.name for field in fields(cls)})
        weights = values["history_weights_micro"]
        if type(weights) is not list or len(weights) > _LONGEST_HISTORY:
            raise ValueError(f"'history_weights_micro' must be a list of at most {_LONGEST_HISTORY} values")
        outputs = _integer(values, "outputs", 1, _LARGEST_OUTPUTS)
        return cls(
            zone=_text(values, "zone", _LONGEST_NAME),
            regime=_text(values, "regime", _LONGEST_NAME),
            rows=_integer(values, "rows", 1, LARGEST_ROWS),
            outputs=outputs,
            columns=_integer(values, "columns", 1, min(outputs, _LARGEST_COLUMNS)),
            epsilon_micro=_integer(values, "epsilon_micro", 0, MAX_EPSILON_MICRO),
            eta_mm=_integer(values, "eta_mm", 0, INFINITE_ETA_MM),
            history_weights_micro=tuple(
                _integer({"history_weights_micro": weight}, "history_weights_micro", 0, NEVER_MM) for weight in weights
            ),
            histories=_integer(values, "histories", 0, LARGEST_HISTORIES),
        )


@dataclass(frozen=True)
class ZoneHeader:
    """The header of a bundle with mechanisms of zones."""

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
    """In order of zone and regime."""
    training: Training = NOT_SAID
    """What the mechanisms were learned from."""
    metric: str = GREAT_CIRCLE
    """What distances are measured in; see `mechanism.place_metric`."""

    @classmethod
    def parsed(cls, values: Any) -> ZoneHeader:
        """Return the header; raise ValueError unless everything in it is valid."""
        left_out = {_TRAINING, _METRIC} - (set(values) if type(values) is dict else set())
        _check_keys(values, {field.name for field in fields(cls)} - left_out)
        mechanisms = values["mechanisms"]
        if type(mechanisms) is not list or not mechanisms:
            raise ValueError("there must be at least one mechanism")
        domain = _text(values, "domain", 64)
        if len(domain) != 64 or not set(domain) <= set("0123456789abcdef"):
            raise ValueError("'domain' must be a SHA-256 in hexadecimal")
        header = cls(
            version=_integer(values, "version", 0, _LARGEST_VERSION),
            domain=domain,
            disclosed=_disclosed(values["disclosed"]),
            snapping_radius_mm=_integer(values, "snapping_radius_mm", 0, _LARGEST_RADIUS_MM),
            clock=None if values["clock"] is None else _clock(values["clock"]),
            mechanisms=tuple(MechanismHeader.parsed(mechanism) for mechanism in mechanisms),
            training=NOT_SAID if _TRAINING in left_out else _training(values[_TRAINING]),
            metric=GREAT_CIRCLE if _METRIC in left_out else _metric(values[_METRIC]),
        )
        names = [(mechanism.zone, mechanism.regime) for mechanism in header.mechanisms]
        if any(first >= second for first, second in pairwise(names)):
            raise ValueError("no two mechanisms may have the same zone and regime, and they must be in order")
        if header.clock is not None:
            _check_regimes(header.clock, names)
        return header

    def as_fields(self) -> dict[str, Any]:
        """Return the header as JSON values; what is not said of training and metric is left out, as in older files."""
        result = {name: getattr(self, name) for name in ("version", "domain", "disclosed", "snapping_radius_mm")}
        result["clock"] = None if self.clock is None else self.clock.as_fields()
        result["mechanisms"] = [
            {**asdict(mechanism), "history_weights_micro": list(mechanism.history_weights_micro)}
            for mechanism in self.mechanisms
        ]
        training = {} if self.training == NOT_SAID else {_TRAINING: self.training.as_json()}
        return {**result, **training, **({} if self.metric == GREAT_CIRCLE else {_METRIC: self.metric})}

    def check_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise ValueError unless the arrays of the file have the types and sizes that follow from the header."""
        types = _DTYPES if self.metric == GREAT_CIRCLE else {**_DTYPES, PLACE_DISTANCES: ("<u4",)}
        if set(arrays) != set(types):
            raise ValueError("its parts are not those of a bundle")
        for name, array in arrays.items():
            if array.dtype.str not in types[name] or array.ndim != (2 if name == "places_e7" else 1):
                raise ValueError(f"its part '{name}' has another type")
        sizes = [mechanism.sizes for mechanism in self.mechanisms]
        for name in sizes[0]:
            if len(arrays[name]) != sum(size[name] for size in sizes):
                raise ValueError(f"the size of its part '{name}' does not follow from its header")
        places = len(arrays["places_e7"])
        located = places > 0
        pairs = len(arrays.get(PLACE_DISTANCES, ()))
        if self.metric != GREAT_CIRCLE and (places > MOST_PLACES or pairs != places * (places - 1) // 2):
            raise ValueError("the distances of its places are too many, or not one for each pair")
        if any((mechanism.histories > 0) != located for mechanism in self.mechanisms):
            raise ValueError("histories need coordinates, and coordinates histories")


@dataclass(frozen=True, eq=False)
class LatticeHeader:
    """The header of a bundle with a lattice: all but its version and interval follows from the lattice.

    Headers are compared by identity, as their lattices are; compare `as_fields()` for what they say.
    """

    version: int
    """The publisher's own number, which only grows: a device refuses to go back."""
    interval_ms: int
    """Milliseconds from one report to the next."""
    hold_mm: int
    """Within this distance of the last draw, its report is repeated, millimetres; 0: never."""
    spec: LatticeSpec
    """The lattice, of which nothing is promised before it was verified. Its multipliers are an array of the file."""

    training: ClassVar = NOBODY

    @cached_property
    def domain(self) -> str:
        """Hash of the frame and its cells (hexadecimal)."""
        return content_hash({"lattice": {**asdict(self.spec.plane), "cell_units": self.spec.cell_units}}, {})

    @property
    def disclosed(self) -> str:
        """What a report tells besides its output, in words."""
        return DISCLOSED_BY_HOLD if self.hold_mm else DISCLOSED_BY_LATTICE

    @cached_property
    def clock(self) -> Clock:
        """An interval, and one regime for all hours."""
        return Clock(interval_ms=self.interval_ms, time_zone="UTC", regimes=((_ALL_DAY, tuple(range(_HOURS))),))

    @classmethod
    def parsed(cls, values: dict[str, Any]) -> LatticeHeader:
        """Return the header; raise ValueError unless everything in it is valid."""
        _check_keys(values, {*(field.name for field in fields(ZoneHeader)), "lattice"} - {_TRAINING, _METRIC})
        spec, hold_mm = parsed_lattice(values["lattice"])
        try:
            spec.plane.check()
        except ParameterError as error:
            raise ValueError(str(error).rstrip(".")) from error
        _integer(values, "snapping_radius_mm", 0, _LARGEST_RADIUS_MM)  # to Python, 716.0 is 716
        header = cls(
            version=_integer(values, "version", 0, _LARGEST_VERSION),
            interval_ms=_clock(values["clock"]).interval_ms,
            hold_mm=hold_mm,
            spec=spec,
        )
        if header.as_fields() != values:
            raise ValueError("what it says beside its lattice does not follow from it")
        return header

    def as_fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        numbers = {name: getattr(self.spec, name) for name in _LATTICE_NUMBERS}
        return {
            "version": self.version,
            "domain": self.domain,
            "disclosed": self.disclosed,
            "snapping_radius_mm": self.spec.plane.rounding_mm,
            "clock": self.clock.as_fields(),
            "mechanisms": [],
            "lattice": {"format": _LATTICE_FORMAT, **asdict(self.spec.plane), **numbers, "hold_mm": self.hold_mm},
        }

    def check_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise ValueError unless the file holds the table of multipliers and nothing else."""
        if set(arrays) != {MULTIPLIERS}:
            raise ValueError("its parts are not those of a lattice")
        table = arrays[MULTIPLIERS]
        if table.dtype.str != "<i4" or table.shape != (octant_count(max(self.spec.cell_units, 0)),):
            raise ValueError("its table of multipliers has another type or size")


def parsed_lattice(values: Any) -> tuple[LatticeSpec, int]:
    """Return a lattice without its multipliers, and `hold_mm`; raise ValueError unless these are whole numbers."""
    if type(values) is dict and values.get("format") == _FORMAT_WITH_ANCHORS:
        raise ValueError(
            "its lattice is of version 0.2, whose anchors average out over nights; make it again with "
            "`geoblanket lattice`, in seconds"
        )
    frame = [field.name for field in fields(Plane)]
    names = ["format", *frame, *_LATTICE_NUMBERS, "hold_mm"]
    _check_keys(values, set(names))
    if values["format"] != _LATTICE_FORMAT:
        raise ValueError("its lattice has a later format, which only newer software can read")
    whole = {name: _integer(values, name, -_LARGEST, _LARGEST) for name in names}
    plane, numbers = Plane(*(whole[name] for name in frame)), {name: whole[name] for name in _LATTICE_NUMBERS}
    return LatticeSpec(plane, **numbers, multipliers=np.empty(0, np.int32)), whole["hold_mm"]


BundleHeader = ZoneHeader | LatticeHeader


def parsed_header(values: Any) -> BundleHeader:
    """Return the header of a bundle of either kind; raise ValueError unless everything in it is valid."""
    kind = LatticeHeader if type(values) is dict and "lattice" in values else ZoneHeader
    return kind.parsed(values)


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


def _metric(name: Any) -> str:
    """Return the metric of a file; raise ValueError if it is unknown, or need not be said."""
    if type(name) is not str or name == GREAT_CIRCLE or not NAMES.fullmatch(name):
        raise ValueError("'metric' must be 'road', 'norm:P' or left out (newer software may know more)")
    return name


def _clock(values: Any) -> Clock:
    _check_keys(values, {field.name for field in fields(Clock)})
    regimes = values["regimes"]
    if type(regimes) is not list or not all(type(regime) is list and len(regime) == 2 for regime in regimes):
        raise ValueError("'regimes' must be a list of names with their hours")
    if not all(type(hours) is list and len(hours) <= _HOURS for _, hours in regimes):
        raise ValueError(f"the hours of a regime must be a list of at most {_HOURS}")
    try:
        return Clock(
            interval_ms=_integer(values, "interval_ms", 1, _LARGEST_INTERVAL_MS),
            time_zone=_text(values, "time_zone", _LONGEST_NAME),
            regimes=tuple(
                (
                    _text({"regime": name}, "regime", _LONGEST_NAME),
                    tuple(_integer({"hour": hour}, "hour", 0, _HOURS - 1) for hour in hours),
                )
                for name, hours in regimes
            ),
            start=_text(values, "start", _LONGEST_NAME),
        )
    except ParameterError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _check_regimes(clock: Clock, names: list[tuple[str, str]]) -> None:
    """Raise ValueError unless each zone has one mechanism for each regime of the clock."""
    wanted = {(zone, regime) for zone in {zone for zone, _ in names} for regime in clock.names}
    if wanted != set(names):
        raise ValueError("each zone must have one mechanism for each regime of the clock, and no others")


def _check_keys(values: Any, names: set[str]) -> None:
    """Raise ValueError unless it is an object with these keys and no others."""
    if type(values) is not dict or set(values) != names:
        raise ValueError(f"there must be the keys {', '.join(sorted(names))}, and no others")


def _integer(values: dict[str, Any], name: str, least: int, most: int) -> int:
    """Return a whole number in a range; raise ValueError for anything else."""
    value = values[name]
    # Neither True nor 1.0 is a whole number here.
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"'{name}' must be a whole number from {least} to {most}")
    return value


def _text(values: dict[str, Any], name: str, longest: int) -> str:
    """Return printable text; raise ValueError for anything else."""
    value = values[name]
    # What is not printable could steer a terminal.
    if type(value) is not str or not 1 <= len(value) <= longest or not value.isprintable():
        raise ValueError(f"'{name}' must be printable text of 1 to {longest} characters")
    return value
