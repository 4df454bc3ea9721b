"""Where reports come from: what `Device` and `Fleet` need of a bundle, whichever kind it is.

`zone_source` has the sources of bundles with zones, `lattice_source` those of bundles with a lattice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from geoblanket._arrays import Ints
from geoblanket.mechanism.lattice.anchor import AnchorSpec
from geoblanket.release.budget import Account, Anchor

__all__ = ["Drawn", "DrawnMany", "FleetSource", "Kind", "Point", "ReportSource"]

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
    anchor: Anchor | None
    """The anchor that was drawn for this report, to be stored with it; None: there was one, or none is needed."""


class ReportSource(Protocol):
    """Reports of one vehicle."""

    kind: Kind
    interval_ms: int
    anchor: AnchorSpec | None

    def point(self, lat_e7: int, lon_e7: int) -> Point:
        """Return what a location counts as."""

    def costs(self, slot: int, account: Account) -> tuple[int, int]:
        """Return what a report in a slot costs, and the anchor to be drawn for it, in millionths per kilometre."""

    def draw(self, point: Point, slot: int, account: Account) -> Drawn:
        """Draw a report in a slot, and the anchor of its period if there is none yet."""

    def made(self, point: Point, slot: int) -> None:
        """Remember a report that was stored, as far as later ones depend on it."""

    def forget(self) -> None:
        """Forget where the vehicle was."""

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return what seems wrong with a location."""


class DrawnMany(NamedTuple):
    """What is reported of some vehicles."""

    outputs: Ints
    """Numbers of places or cells, shape (n,)."""
    anchors: Mapping[int, Anchor]
    """The anchors that were drawn, by the vehicle's number."""


class FleetSource(Protocol):
    """Reports of many vehicles, known by their numbers."""

    kind: Kind
    interval_ms: int

    def grow(self, vehicles: int) -> None:
        """Add so many vehicles, with the next numbers."""

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return what each of n locations counts as, shape (n, ...)."""

    def costs(self, which: Ints, slot: Ints) -> Ints:
        """Return what reports of vehicles in slots cost, in millionths per kilometre, shape (n,)."""

    def anchor_costs(self, which: Ints, slot: Ints, account: Callable[[int], Account] | None) -> Ints:
        """Return what the anchors cost that have to be drawn for reports, in millionths per kilometre, shape (n,).

        Parameters
        ----------
        account
            Returns the account of a vehicle, by its number; None: nothing is counted.
        """

    def draw(self, which: Ints, points: Ints, slot: Ints) -> DrawnMany:
        """Draw reports in slots, and the anchors of periods that have none, after `anchor_costs`."""

    def made(self, which: Ints, points: Ints, slot: Ints) -> None:
        """Remember reports that were stored, as far as later ones depend on them."""

    def coordinates_e7(self, outputs: Ints) -> Ints:
        """Return latitude and longitude of places or cells, 1e-7 degrees, shape (n, 2)."""

    def forget(self) -> None:
        """Forget where the vehicles were."""

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return what seems wrong with a location."""
