"""The fence: one place stays hidden, for any number of reports, nights and years.

Once per place h, a centre c is drawn uniformly from the whole metres within the reach ρ of h. From then on every
position within R = ρ + margin of c is replaced by c before anything else happens: g(x) = c if |x − c| ≤ R, else x. The
fence keeps c and R and forgets h: it holds nothing that the reports do not tell sooner or later.

The promise
-----------
*For all* lives x, x' (all positions over any time) and *all* centres c with g(x) = g(x'): the reports have equal
probability. What follows the fence sees g(x) alone. ∎

*Over the draw of c*: let x, x' have homes h, h' at distance d, and differ within the margin of their homes only. Then

    Pr[S | x] ≤ Pr[S | x'] + δ        for every set S of reports, of any length,

    δ ≤ 2d/(πρ) + |Δlatitude| + |Δlongitude|  (the last two in degrees, about d/111 km each),

so 6.6 % for 100 m at ρ = 1 km, once, for life.

*Proof.* Distances are those of the fence's frame, a plane of whole metres that stretches none (`plane`). Frames are
squares of a degree, in a grid whose offset is drawn first, without looking at h. So the chance that an edge separates
h from h' is at most |Δlatitude| + |Δlongitude|. Otherwise both have the same frame. In it the disc of radius ρ has
the same number of points around h as around h', so every c in both discs has the same probability under both. For
such a c all positions within the margin of h lie within R, those within the margin of h' too, so g(x) = g(x'), and
the reports have equal probability. The rest of the disc around h is 1 − (2/π)·(arccos t − t·√(1 − t²)) of it, t =
d/2ρ (but for the grid's grain), which is at most 2d/(πρ). ∎

Lives that differ outside as well: add ε·Σ d(g(x_t), g(x'_t)) by the promise of the mechanism that follows. Several
places: their δ add up. A position in two discs belongs to the fence that was made first.

A second draw for the same place would intersect with the first, and tell. So a fence that is taken away leaves its
centre behind, and a place inside it gets the same fence back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from geoblanket._arguments import checked, forgetting
from geoblanket._arrays import Bools, Ints
from geoblanket._display import short_repr
from geoblanket._untrusted import read_object
from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mechanism.sampling import random_below
from geoblanket.release.inputs import checked_location_e7

MARGIN_M: Final = 300.0
"""Metres around a place that belong to it: its streets, its parking."""
MOST_FENCES: Final = 20
"""Fences of one vehicle, those that were taken away included: each report looks at all of them."""

_UNIT_MM: Final = 1000
_DEGREE_E7: Final = 10**7
_FULL_CIRCLE_E7: Final = 360 * _DEGREE_E7
_FRAME_MARGIN_M: Final = 25_000
"""More than ρ + R of the largest fence: no disc reaches the edge of its frame."""
_METRES_PER_DEGREE: Final = 111_195
_SIDE: Final = _METRES_PER_DEGREE + 1 + 2 * _FRAME_MARGIN_M
_LEAST_REACH_M: Final = 100
_LARGEST_REACH_M: Final = 10_000
_LARGEST_MARGIN_M: Final = 2_000
_ROUNDING_M: Final = 2
"""Both positions are rounded to whole metres of the frame, each by less than a metre."""
LARGEST_LATITUDE: Final = 83
"""Degrees; no fence lies nearer to a pole."""
_LONGEST_NAME: Final = 60
_LARGEST_FILE: Final = 1 << 16
_FORMAT: Final = 1


@dataclass(frozen=True)
class Fence:
    """A disc whose positions all count as its centre. Make one with `Fence.draw`.

    Examples
    --------
    >>> from geoblanket import Fence
    >>> fence = Fence.draw(45.001, -30.002, radius_km=1, name="home")
    >>> fence.holds(45.001, -30.002)
    True
    >>> fence.radius_m
    1302
    """

    name: str
    lat_e7: int
    """Latitude of the centre, 1e-7 degrees."""
    lon_e7: int
    reach_m: int
    """ρ: the protected place lies within this distance of the centre, metres."""
    radius_m: int
    """R: positions within this distance of the centre count as the centre, metres."""
    south_e7: int
    """Latitude of the southern edge of the frame in which it was drawn, 1e-7 degrees."""
    west_e7: int
    active: bool = True
    """Whether it is in use; a fence that was taken away keeps its centre."""

    def __post_init__(self) -> None:
        types = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        if types != dict.fromkeys(types, int) | {"name": str, "active": bool} or not _is_name(self.name):
            raise ParameterError("A fence has a name of 1 to 60 printable characters, and whole numbers.")
        largest_radius = _LARGEST_REACH_M + _LARGEST_MARGIN_M + _ROUNDING_M
        if (
            not _LEAST_REACH_M <= self.reach_m <= _LARGEST_REACH_M
            or not self.reach_m <= self.radius_m <= largest_radius
        ):
            raise ParameterError("The radius of a fence is out of range.")
        if not -_FULL_CIRCLE_E7 // 2 <= self.lon_e7 < _FULL_CIRCLE_E7 // 2 or abs(self.lat_e7) > 90 * _DEGREE_E7:
            raise ParameterError("The centre of a fence is not on Earth.")
        x, y = self._center
        room = min(x, y, _SIDE - 1 - x, _SIDE - 1 - y)
        if room <= self.radius_m:
            raise ParameterError("The disc of a fence leaves its frame.")

    @classmethod
    @forgetting
    @checked
    def draw(cls, lat: float, lon: float, *, radius_km: float, margin_m: float = MARGIN_M, name: str = "home") -> Fence:
        """Draw a fence around a place, with the operating system's randomness. Do this once per place.

        Parameters
        ----------
        lat, lon
            The protected place, degrees (WGS 84). It is not kept.
        radius_km
            ρ: how far the centre may lie from the place, kilometres, .1 to 10.
        margin_m
            What belongs to the place, metres around it, 0 to 2,000.
        name
            What people call it.

        Raises
        ------
        ParameterError
            If this is not a place, a radius, a margin or a name.
        """
        lat_e7, lon_e7 = checked_location_e7(lat, lon)
        reach, margin = _metres(radius_km, margin_m)
        if not _is_name(name):
            raise ParameterError(f"The name of a fence must have 1 to {_LONGEST_NAME} printable characters.")
        if abs(lat_e7) > LARGEST_LATITUDE * _DEGREE_E7:
            raise ParameterError("A fence cannot lie beyond 83° of latitude.")
        plane = _random_frame(lat_e7, lon_e7)
        x, y = plane.unit_of_e7(lat_e7, lon_e7)
        east, north = point_in_disc(reach)
        center_lat_e7, center_lon_e7 = plane.e7_of_unit(x + east, y + north)
        radius = reach + margin + _ROUNDING_M
        return cls(name, center_lat_e7, center_lon_e7, reach, radius, plane.south_e7, plane.west_e7)

    @property
    def _plane(self) -> Plane:
        return _frame(self.south_e7, self.west_e7)

    @cached_property
    def _center(self) -> tuple[int, int]:
        return self._plane.unit_of_e7(self.lat_e7, self.lon_e7)

    @cached_property
    def span_e7(self) -> int:
        """No position within the radius differs more from the centre in latitude, 1e-7 degrees."""
        return (self.radius_m + _ROUNDING_M) * _DEGREE_E7 // _METRES_PER_DEGREE + 1

    @forgetting
    def holds(self, lat: float, lon: float) -> bool:
        """Return whether a position, degrees, lies within the radius of the centre."""
        return self.holds_e7(*checked_location_e7(lat, lon))

    def holds_e7(self, lat_e7: int, lon_e7: int) -> bool:
        """Return whether a position in 1e-7 degrees lies within the radius of the centre."""
        (x, y), (center_x, center_y) = self._plane.unit_of_e7(lat_e7, lon_e7), self._center
        return (x - center_x) ** 2 + (y - center_y) ** 2 <= self.radius_m**2

    def holds_many_e7(self, lat_e7: Ints, lon_e7: Ints) -> Bools:
        """Return which of some positions in 1e-7 degrees lie within the radius of the centre."""
        (x, y), (center_x, center_y) = self._plane.units_e7(lat_e7, lon_e7), self._center
        inside: Bools = (x - center_x) ** 2 + (y - center_y) ** 2 <= self.radius_m**2
        return inside

    def may_hide_place_of(self, other: Fence) -> bool:
        """Return whether both may have been drawn for one place: it lies within the reach of either centre."""
        # In the frame that shrinks distances more, both reaches and the triangle inequality hold.
        nearest = min(
            math.dist(plane.unit_of_e7(self.lat_e7, self.lon_e7), plane.unit_of_e7(other.lat_e7, other.lon_e7))
            for plane in (self._plane, other._plane)
        )
        return nearest <= self.reach_m + other.reach_m + _ROUNDING_M

    def delta(self, distance_km: float) -> float:
        """Return the δ of two homes at this distance: see the module. Degrees are taken at this fence's latitude."""
        return fence_delta(self.reach_m, distance_km, lat=self.lat_e7 / _DEGREE_E7)

    def __repr__(self) -> str:
        state = "" if self.active else "taken away"
        return short_repr(self, self.name, f"radius {self.radius_m:,} m", state)


class Fences(Sequence[Fence]):
    """The fences of one vehicle, the first made first. It cannot be changed: `with_…` and `without` return others.

    Examples
    --------
    >>> from geoblanket.release.fence import Fences
    >>> fences, home = Fences().with_place(45.001, -30.002, radius_km=1)
    >>> fences.names, Fences.parsed(fences.as_json()) == fences
    (('home',), True)
    """

    def __init__(self, fences: Iterable[Fence] = ()) -> None:
        try:
            self._all = tuple(fences)
        except TypeError:
            self._all = (None,)  # type: ignore[assignment]  # refused below, as everything else that is no fence
        if not all(type(fence) is Fence for fence in self._all):
            raise ParameterError("Fences are made of fences, as `Fence.draw` returns them.")
        self._active = tuple(fence for fence in self._all if fence.active)
        # Most positions are far from all fences, and every report looks at them.
        self._bands = [(fence.lat_e7 - fence.span_e7, fence.lat_e7 + fence.span_e7, fence) for fence in self._active]
        if len(self._all) > MOST_FENCES:
            raise ParameterError(
                f"A vehicle can have {MOST_FENCES} fences, those that were taken away included. Use larger ones."
            )
        if len(set(self.names)) < len(self._all):
            raise ParameterError("Two fences have the same name. Give each a name of its own.")

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(fence.name for fence in self._all)

    def apply_e7(self, lat_e7: int, lon_e7: int) -> tuple[int, int]:
        """Return what a position in 1e-7 degrees counts as: itself, or the centre of the first fence that holds it."""
        for south_e7, north_e7, fence in self._bands:
            if south_e7 <= lat_e7 <= north_e7 and fence.holds_e7(lat_e7, lon_e7):
                return fence.lat_e7, fence.lon_e7
        return lat_e7, lon_e7

    def apply_many_e7(self, lat_e7: Ints, lon_e7: Ints) -> tuple[Ints, Ints]:
        """Return what each of some positions in 1e-7 degrees counts as."""
        lat, lon = lat_e7, lon_e7
        for fence in reversed(self._active):  # the first fence has the last word
            inside = fence.holds_many_e7(lat_e7, lon_e7)
            lat, lon = np.where(inside, fence.lat_e7, lat), np.where(inside, fence.lon_e7, lon)
        return lat, lon

    @forgetting
    @checked
    def with_place(
        self, lat: float, lon: float, *, radius_km: float, margin_m: float = MARGIN_M, name: str = "home"
    ) -> tuple[Fences, Fence]:
        """Return these and a fence around one more place, and that fence; see `Fence.draw`.

        A place inside a fence that was taken away gets that one back, with its own centre and radius.

        Raises
        ------
        ParameterError
            If a fence in use holds the place already, or its name is taken.
        """
        lat_e7, lon_e7 = checked_location_e7(lat, lon)
        _metres(radius_km, margin_m)
        if any(fence.holds_e7(lat_e7, lon_e7) for fence in self._active):
            raise ParameterError(
                "A fence holds this place already. A second one would show where the two overlap, so none was made."
            )
        for fence in self._all:
            if fence.holds_e7(lat_e7, lon_e7):
                back = replace(fence, active=True)
                return Fences(back if known is fence else known for known in self._all), back
        self._refuse_taken(name)
        drawn = Fence.draw(lat, lon, radius_km=radius_km, margin_m=margin_m, name=name)
        return Fences((*self._all, drawn)), drawn

    def without(self, name: str) -> Fences:
        """Return these with one of them out of use. Its centre stays: a later fence for the place must be the same."""
        if name not in {fence.name for fence in self._active}:
            raise ParameterError(f"No fence in use has this name. There are: {', '.join(self.names) or 'none'}.")
        return Fences(replace(fence, active=fence.active and fence.name != name) for fence in self._all)

    def with_all(self, others: Iterable[Fence]) -> Fences:
        """Return these and others, as imported from another device. A fence of both is in use if either uses it.

        Raises
        ------
        ParameterError
            If a new fence may be for the same place as one that the others lack: two draws for one place tell where it
            is. Or if its name is taken. The others are not compared with each other: that was done where they were
            made.
        """
        given = {replace(other, active=True): other.active for other in others}
        known = {replace(fence, active=True): fence.active for fence in self._all}
        new = [replace(other, active=active) for other, active in given.items() if other not in known]
        for other in new:
            self._refuse_taken(other.name)
            for fence in known.keys() - given.keys():
                if fence.may_hide_place_of(other):
                    raise ParameterError(
                        f"The fences '{fence.name}' and '{other.name}' may be for one place, and together they would "
                        "show where it is. Keep the older one on every device."
                    )
        kept = [replace(fence, active=active or given.get(fence, False)) for fence, active in known.items()]
        return Fences((*kept, *new))

    def replaced_by(self, others: Fences) -> Fences:
        """Return others; raise ParameterError if they lack one of these: its centre would be lost."""
        if {replace(fence, active=True) for fence in self} - {replace(fence, active=True) for fence in others}:
            raise ParameterError(
                "Fences are never forgotten, as a second draw would tell where the place is. Take them away by name."
            )
        return others

    def _refuse_taken(self, name: str) -> None:
        if name in self.names:
            raise ParameterError("There is, or was, a fence of this name. Choose another name.")

    def as_json(self) -> str:
        """Return all of them as a JSON text: what is kept, backed up, and taken to another device."""
        return json.dumps({"format": _FORMAT, "fences": [asdict(fence) for fence in self._all]}, indent=1) + "\n"

    @classmethod
    @checked
    def parsed(cls, text: str | bytes) -> Self:
        """Return the fences in a JSON text.

        Raises
        ------
        ParameterError
            If it is anything else. The message repeats nothing of the text.
        """
        names = {field.name for field in fields(Fence)}
        try:
            values = read_object(text.encode() if isinstance(text, str) else text)
            listed = values["fences"]
            if values.keys() != {"format", "fences"} or type(listed) is not list:
                raise ValueError
            if type(values["format"]) is not int or values["format"] != _FORMAT:
                raise ValueError
            if not all(type(fence) is dict and fence.keys() == names for fence in listed):
                raise ValueError
        except (ValueError, KeyError):
            raise ParameterError("This is not a list of fences as `geoblanket fence export` writes it.") from None
        return cls(Fence(**fence) for fence in listed)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Fence]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fences) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return short_repr(self, f"{len(self._active)} in use", f"{len(self._all) - len(self._active)} taken away")


NO_FENCES: Final = Fences()


def fence_delta(reach_m: float, distance_km: float, *, lat: float) -> float:
    """Return the δ of two homes at a distance, kilometres, for fences of the reach ρ at a latitude: see the module."""
    t = min(1000 * distance_km / (2 * reach_m), 1.0)
    apart = 1 - 2 / math.pi * (math.acos(t) - t * math.sqrt(1 - t * t))
    degrees = distance_km * 1000 / _METRES_PER_DEGREE
    return min(1.0, apart + degrees * (1 + 1 / math.cos(math.radians(lat))))


def fenced_right(apart_m: float, radius_km: float) -> float:
    """Return how often the best guess between two fenced places is right, at most, by the reports from inside.

    Parameters
    ----------
    apart_m
        How far apart both places are, metres.
    radius_km
        ρ of the fence, kilometres.
    """
    # Both places are rounded to whole metres, and a disc has a grain: 2 m and .01 % are more than both.
    delta = fence_delta(1000 * radius_km, apart_m / 1000 + 0.002, lat=LARGEST_LATITUDE) + 1e-4
    return (1 + min(delta, 1.0)) / 2


def point_in_disc(reach: int, below: Callable[[int], int] = random_below) -> tuple[int, int]:
    """Return one of the whole points within a distance of the origin, each with the same probability.

    Parameters
    ----------
    reach
        The distance, a whole number.
    below
        Draws a whole number below its argument, evenly.
    """
    while True:
        east, north = below(2 * reach + 1) - reach, below(2 * reach + 1) - reach
        if east * east + north * north <= reach * reach:
            return east, north


def _metres(radius_km: float, margin_m: float) -> tuple[int, int]:
    """Return reach and margin in whole metres, rounded up; raise ParameterError if they are out of range."""
    # NaN compares as false.
    if not _LEAST_REACH_M <= 1000 * radius_km <= _LARGEST_REACH_M:
        raise ParameterError(f"The radius of a fence must be .1 to 10 km. Got {radius_km:g} km instead.")
    if not 0 <= margin_m <= _LARGEST_MARGIN_M:
        raise ParameterError(f"The margin of a fence must be 0 to 2,000 m. Got {margin_m:g} m instead.")
    return math.ceil(1000 * radius_km), math.ceil(margin_m)


@lru_cache(maxsize=256)
def _frame(south_e7: int, west_e7: int) -> Plane:
    plane = Plane(south_e7, west_e7, _UNIT_MM, _SIDE)
    plane.check()
    return plane


def _random_frame(lat_e7: int, lon_e7: int) -> Plane:
    """Return the frame of a position, in a grid of degrees whose offset is drawn first."""
    offset = random_below(_DEGREE_E7), random_below(_DEGREE_E7)
    south = (lat_e7 - offset[0]) // _DEGREE_E7 * _DEGREE_E7 + offset[0]
    west = (lon_e7 - offset[1]) // _DEGREE_E7 * _DEGREE_E7 + offset[1]
    plane = _frame(south - _FRAME_MARGIN_M * _DEGREE_E7 // _METRES_PER_DEGREE, 0)
    west_e7 = west + (_DEGREE_E7 - plane.width_e7) // 2
    return replace(plane, west_e7=(west_e7 + _FULL_CIRCLE_E7 // 2) % _FULL_CIRCLE_E7 - _FULL_CIRCLE_E7 // 2)


def _is_name(name: str) -> bool:
    return 1 <= len(name) <= _LONGEST_NAME and name.isprintable()


def read_fences(path: str | Path) -> Fences:
    """Return the fences in a file that `geoblanket fence export` wrote.

    Raises
    ------
    InputError
        If the file cannot be read, or holds something else.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise ParameterError("It is too long for a list of fences.")
        return Fences.parsed(content)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from None
    except ParameterError as error:
        raise InputError(str(error).rstrip("."), path=path) from None
