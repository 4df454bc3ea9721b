"""The lattice of a bundle: its section of the header, its table, and the file as a whole.

A bundle has either mechanisms of zones or one lattice. That of a lattice holds the numbers of `LatticeSpec` and
the distance within which reports are held in its header, and the multipliers as its only array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import content_hash
from geoblanket.mechanism.bundle.clock import HOURS, Clock
from geoblanket.mechanism.bundle.parsing import check_keys, integer
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mechanism.lattice.spec import LatticeSpec, octant_count

__all__ = ["ALL_DAY", "MULTIPLIERS", "LatticeHeader", "lattice_clock"]

MULTIPLIERS: Final = "multipliers"
"""The name of the array."""
ALL_DAY: Final = "all day"
_FORMAT: Final = 2
_FORMAT_WITH_ANCHORS: Final = 1
_LARGEST: Final = 2**62


@dataclass(frozen=True)
class LatticeHeader:
    """What the header says of a lattice; nothing is promised of it before it was verified."""

    format: int
    """The version of this section: 2."""
    south_e7: int
    west_e7: int
    unit_mm: int
    side: int
    epsilon_micro: int
    cell_units: int
    rate: int
    shift: int
    floor: int
    half_window: int
    hold_mm: int
    """Within this distance of the last draw, its report is repeated."""

    @classmethod
    def of(cls, spec: LatticeSpec, hold_mm: int) -> LatticeHeader:
        """Return the section of a lattice."""
        return cls(
            format=_FORMAT, **asdict(spec.plane), epsilon_micro=spec.epsilon_micro, cell_units=spec.cell_units,
            rate=spec.rate, shift=spec.shift, floor=spec.floor, half_window=spec.half_window, hold_mm=hold_mm,
        )  # fmt: skip

    @classmethod
    def parsed(cls, values: Any) -> LatticeHeader:
        """Return the section; raise ValueError unless all of it are whole numbers, in order."""
        if type(values) is dict and values.get("format") == _FORMAT_WITH_ANCHORS:
            raise ValueError(
                "its lattice is of version 0.2, whose anchors average out over nights; make it again with "
                "`geoblanket lattice`, in seconds"
            )
        names = [field.name for field in fields(cls)]
        check_keys(values, set(names))
        if values["format"] != _FORMAT:
            raise ValueError(f"its lattice has the format {_FORMAT + 1} or later, which only newer software can read")
        return cls(**{name: integer(values, name, -_LARGEST, _LARGEST) for name in names})

    @property
    def domain(self) -> str:
        """Hash of the frame and its cells (hexadecimal)."""
        plane = {name: getattr(self, name) for name in ("south_e7", "west_e7", "unit_mm", "side", "cell_units")}
        return content_hash({"lattice": plane}, {})

    @property
    def rounding_mm(self) -> int:
        """How far a coordinate can lie from the point of the frame that stands for it, millimetres."""
        return self.plane.rounding_mm

    @property
    def plane(self) -> Plane:
        """The frame."""
        return Plane(self.south_e7, self.west_e7, self.unit_mm, self.side)

    def spec(self, multipliers: npt.NDArray[Any]) -> LatticeSpec:
        """Return the lattice with its table, a copy that nothing can change."""
        table = np.frombuffer(multipliers.tobytes(), np.int32)
        return LatticeSpec(
            self.plane, self.epsilon_micro, self.cell_units, self.rate, self.shift, self.floor, self.half_window, table
        )

    def check_array(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise ValueError unless the file holds the table of multipliers and nothing else."""
        if set(arrays) != {MULTIPLIERS}:
            raise ValueError("its parts are not those of a lattice")
        table = arrays[MULTIPLIERS]
        if table.dtype.str != "<i4" or table.shape != (octant_count(max(self.cell_units, 0)),):
            raise ValueError("its table of multipliers has another type or size")


def lattice_clock(interval_ms: int) -> Clock:
    """Return the clock of a lattice: an interval, and one regime for all hours."""
    return Clock(interval_ms=interval_ms, time_zone="UTC", regimes=((ALL_DAY, tuple(range(HOURS))),))
