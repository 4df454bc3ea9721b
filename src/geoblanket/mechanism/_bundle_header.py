"""The header of a bundle, read strictly: known keys only, whole numbers that are whole numbers, bounded text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

from geoblanket.mechanism.exponential import MAX_EPSILON_MICRO
from geoblanket.mechanism.problem import INFINITE_ETA_MM, NEVER_MM

__all__ = ["LARGEST_ROWS", "BundleHeader", "MechanismHeader"]

LARGEST_ROWS: Final = 1 << 13
"""Rows of a mechanism, and histories of known places: their distances take half a gigabyte."""

_LARGEST_OUTPUTS: Final = 1 << 24
_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 2000
_LONGEST_HISTORY: Final = 64
_LARGEST_VERSION: Final = 1 << 53
_LARGEST_RADIUS_MM: Final = 10**9


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

    @classmethod
    def parsed(cls, values: Any) -> MechanismHeader:
        """Return the header of one mechanism; raise ValueError unless all of it is in order."""
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
            columns=_integer(values, "columns", 1, outputs),
            epsilon_micro=_integer(values, "epsilon_micro", 0, MAX_EPSILON_MICRO),
            eta_mm=_integer(values, "eta_mm", 0, INFINITE_ETA_MM),
            history_weights_micro=tuple(
                _integer({"history_weights_micro": weight}, "history_weights_micro", 0, NEVER_MM) for weight in weights
            ),
            histories=_integer(values, "histories", 0, LARGEST_ROWS),
        )


@dataclass(frozen=True)
class BundleHeader:
    """What the header says of the whole bundle."""

    version: int
    domain: str
    disclosed: str
    snapping_radius_mm: int
    mechanisms: tuple[MechanismHeader, ...]

    @classmethod
    def parsed(cls, values: Any) -> BundleHeader:
        """Return the header; raise ValueError unless all of it is in order."""
        _check_keys(values, {field.name for field in fields(cls)})
        mechanisms = values["mechanisms"]
        if type(mechanisms) is not list or not mechanisms:
            raise ValueError("there must be at least one mechanism")
        domain = _text(values, "domain", 64)
        if len(domain) != 64 or not set(domain) <= set("0123456789abcdef"):
            raise ValueError("'domain' must be a SHA-256 in hexadecimal")
        header = cls(
            version=_integer(values, "version", 0, _LARGEST_VERSION),
            domain=domain,
            disclosed=_text(values, "disclosed", _LONGEST_TEXT),
            snapping_radius_mm=_integer(values, "snapping_radius_mm", 0, _LARGEST_RADIUS_MM),
            mechanisms=tuple(MechanismHeader.parsed(mechanism) for mechanism in mechanisms),
        )
        names = [(mechanism.zone, mechanism.regime) for mechanism in header.mechanisms]
        if any(first >= second for first, second in pairwise(names)):
            raise ValueError("no two mechanisms may have the same zone and regime, and they must be in order")
        return header

    def as_fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        result = asdict(self)
        result["mechanisms"] = list(result["mechanisms"])
        for mechanism in result["mechanisms"]:
            mechanism["history_weights_micro"] = list(mechanism["history_weights_micro"])
        return result


def _check_keys(values: Any, names: set[str]) -> None:
    if type(values) is not dict or set(values) != names:
        raise ValueError(f"there must be the keys {', '.join(sorted(names))}, and no others")


def _integer(values: dict[str, Any], name: str, least: int, most: int) -> int:
    value = values[name]
    # Neither True nor 1.0 is a whole number here.
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"'{name}' must be a whole number from {least} to {most}")
    return value


def _text(values: dict[str, Any], name: str, longest: int) -> str:
    value = values[name]
    # What is not printable could steer a terminal.
    if type(value) is not str or not 1 <= len(value) <= longest or not value.isprintable():
        raise ValueError(f"'{name}' must be printable text of 1 to {longest} characters")
    return value
