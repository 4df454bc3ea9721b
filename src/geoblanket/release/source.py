"""Where reports come from: what `Device` and `Fleet` need of a bundle, whichever kind it is.

`zone_source` has the sources of bundles with zones, `lattice_source` those of bundles with a lattice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from geoblanket._arrays import Bools, Ints
from geoblanket.release.hold import DrawnAt

__all__ = ["Drawn", "FleetSource", "Kind", "Point", "ReportSource"]

Kind = Literal["place", "cell"]
"""What is reported: a place of a zone, or a cell of a lattice."""
Point = tuple[int, ...]
"""A location as a source knows it: a place, or a point of the frame."""


class Drawn(NamedTuple):
    """What is reported."""

    output: int
    """Number of the place or cell."""
    lat_e7: int
    """Where that is, 1e-7 degrees."""
    lon_e7: int


class ReportSource(Protocol):
    """Reports of one vehicle."""

    kind: Kind
    interval_ms: int

    def point(self, lat_e7: int, lon_e7: int) -> Point:
        """Return what a location counts as."""

    def cost(self, slot: int) -> int:
        """Return what a report that is drawn in a slot costs, in millionths per kilometre."""

    def is_held(self, point: Point, last: DrawnAt | None) -> bool:
        """Return whether the last report is repeated, given where it was drawn."""

    def drawn_at(self, point: Point, slot: int) -> DrawnAt | None:
        """Return what has to be remembered of a draw so that its report can be held; None: nothing."""

    def draw(self, point: Point, slot: int) -> Drawn:
        """Draw a report in a slot."""

    def made(self, point: Point, slot: int) -> None:
        """Remember a report that was stored, as far as later ones depend on it."""

    def forget(self) -> None:
        """Forget where the vehicle was."""

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return what seems wrong with a location."""


class FleetSource(Protocol):
    """Reports of many vehicles, known by their numbers."""

    kind: Kind
    interval_ms: int

    def grow(self, last: list[DrawnAt | None]) -> None:
        """Add vehicles, with the next numbers, given where the last report of each was drawn."""

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return what each of n locations counts as, shape (n, ...)."""

    def costs(self, which: Ints, slot: Ints) -> Ints:
        """Return what reports that are drawn in slots cost, in millionths per kilometre, shape (n,)."""

    def are_held(self, which: Ints, points: Ints) -> Bools:
        """Return whose last report is repeated, shape (n,)."""

    def draw(self, which: Ints, points: Ints, slot: Ints) -> Ints:
        """Draw reports in slots; return the numbers of places or cells, shape (n,)."""

    def drawn_at(self, which: Ints, points: Ints, slot: Ints) -> Mapping[int, DrawnAt]:
        """Return what has to be remembered of draws so that their reports can be held, by the vehicle's number."""

    def made(self, which: Ints, points: Ints, slot: Ints, held: Bools) -> None:
        """Remember reports that were stored, as far as later ones depend on them."""

    def coordinates_e7(self, outputs: Ints) -> Ints:
        """Return latitude and longitude of places or cells, 1e-7 degrees, shape (n, 2)."""

    def forget(self) -> None:
        """Forget where the vehicles were."""

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return what seems wrong with a location."""
