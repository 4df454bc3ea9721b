"""Settings that the page tries: lattices made when they are asked for, and their consequences.

Figures and sentences are those of `Promise`, `AtRest` and `fenced_m`, as the command line prints them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from geoblanket.errors import GeoblanketError
from geoblanket.mechanism.bundle.storage import LatticeBundle, save_lattice
from geoblanket.mechanism.certainty import times_in_100
from geoblanket.mechanism.costs import LARGEST_EPSILON
from geoblanket.mechanism.lattice.lattice import Lattice, largest_hold_mm
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.lattice.spec import LatticeSpec
from geoblanket.mechanism.promise import AtRest, Promise, fenced_m, laplace_errors
from geoblanket.planning.schedules import Schedule, area_in_degrees, schedule_commands
from geoblanket.release.fence import fenced_right
from geoblanket.serve.limits import Refusal, Refused

SMALLEST_EPSILON: Final = 0.1
"""The smallest ε that the page offers, per kilometre: reports are then 20 km off, further than most cities reach."""
MOST_LATTICES: Final = 12
"""Lattices that are kept: each takes up to two seconds to make, and some megabytes."""
NO_LATTICE: Final = Refusal(
    422, "no_such_lattice", "No lattice has these numbers. Hold must be 0, or from a cell's grain to 2/ε km."
)
_APART_M: Final = 100.0
_Found = TypeVar("_Found")


class Setting(BaseModel):
    """How vehicles report, and the fence around a home."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    epsilon: Annotated[float, Field(ge=SMALLEST_EPSILON, le=LARGEST_EPSILON, strict=True)]
    """ε of a report, per kilometre."""
    interval_s: Annotated[int, Field(ge=10, le=3600, strict=True)]
    hold_m: Annotated[float, Field(ge=0, le=20_000, strict=True)]
    fence_km: Annotated[float, Field(ge=0.1, le=10, strict=True)] | None = None
    """Radius ρ of the fence; null: there is none."""

    @classmethod
    def of(cls, bundle: LatticeBundle, *, fence_km: float | None) -> Self | None:
        """Return the setting of a bundle; None if the page cannot offer it."""
        epsilon, interval_s = bundle.lattice.epsilon, bundle.needed_clock().interval_s
        if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON or not 10 <= interval_s <= 3600 or interval_s % 1:
            return None
        return cls(epsilon=epsilon, interval_s=int(interval_s), hold_m=bundle.lattice.hold_m, fence_km=fence_km)


class Made(NamedTuple):
    """A bundle that was made for the page, and its file."""

    bundle: LatticeBundle
    content: bytes


class MadeLattices:
    """Lattices over one area, verified, of which the latest few are kept."""

    def __init__(self, area: Area) -> None:
        self.area = area
        self._lock = threading.Lock()
        keep: Callable[..., Any] = lru_cache(MOST_LATTICES)
        self._spec: Callable[[float], LatticeSpec] = keep(lambda epsilon: spec_over(area, epsilon=epsilon))
        self._bundle: Callable[[float, int, int], Made] = keep(self._saved)
        self._promise: Callable[[float, int, int], Promise] = keep(self._promised)

    def bundle(self, setting: Setting) -> Made:
        """Return the bundle of a setting, verified exactly; raise Refused if there is none."""
        return self._of(self._bundle, setting)

    def promise(self, setting: Setting) -> Promise:
        """Return what the bundle of a setting promises, before it is verified; raise Refused if there is none."""
        return self._of(self._promise, setting)

    def consequences(self, setting: Setting) -> dict[str, Any]:
        """Return what a setting means, in metres and chances, as JSON values."""
        promise, radius_km = self.promise(setting), setting.fence_km
        report, at_rest = laplace_errors(setting.epsilon), AtRest(setting.epsilon, setting.interval_s, setting.hold_m)
        schedule = Schedule(setting.epsilon, setting.interval_s)
        south, west, north, east = self.area.south, self.area.west, self.area.north, self.area.east
        where = f"--area={area_in_degrees((south, west, north, east))}"
        return {
            "in_one_sentence": promise.in_one_sentence,
            "sections": promise.sections(),
            "certainty": {what: times_in_100(each.right) for what, each in promise.certainties.items()},
            "report_m": {"mean": 1000 * report.mean_km, "half": 1000 * report.median_km, "most": 1000 * report.most_km},
            "hour_cost": schedule.hour,
            "found_m": at_rest.found_m,
            "fence": None
            if radius_km is None
            else {"home_m": fenced_m(radius_km), "right": times_in_100(fenced_right(_APART_M, radius_km))},
            "commands": schedule_commands(schedule, where, radius_km=radius_km),
        }

    def _of(self, found: Callable[[float, int, int], _Found], setting: Setting) -> _Found:
        hold_mm = round(1000 * setting.hold_m)
        if hold_mm > largest_hold_mm(round(setting.epsilon * 10**6)):
            raise Refused(NO_LATTICE)
        try:
            with self._lock:  # so that nothing is made twice at once
                if 0 < hold_mm < self._spec(setting.epsilon).plane.unit_mm:
                    raise Refused(NO_LATTICE)
                return found(setting.epsilon, setting.interval_s, hold_mm)
        except GeoblanketError as error:
            raise Refused(NO_LATTICE) from error

    def _promised(self, epsilon: float, interval_s: int, hold_mm: int) -> Promise:
        promise = replace(Lattice.known(self._spec(epsilon), hold_mm).promise, interval_s=float(interval_s))
        promise.certainties  # noqa: B018 - computed here, once
        return promise

    def _saved(self, epsilon: float, interval_s: int, hold_mm: int) -> Made:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "made.bundle"
            bundle = save_lattice(path, self._spec(epsilon), hold_mm=hold_mm, version=1, interval_s=interval_s)
            return Made(bundle, path.read_bytes())
