"""The public rule of a bundle: which mechanism and which row a history uses.

The regime and the zone are public. A present place outside all zones of the regime counts as the nearest place in one;
earlier places may be anywhere, and the mechanism's table says what they count as. Nothing here depends on more than the
history itself, so the rule reveals nothing that the report does not.

`Regimes` finds the regime of a time, by the hours of a bundle's clock in its time zone. `NearestPlace` finds the place
of a location: the nearest one, by the rule of `mechanism.history_table`. All places are compared, so that
the time it takes does not reveal the location.

`PlaceRaster` finds the nearest places of many locations at once, by the same rule. A raster lists, for each cell, the
places that can be nearest to a location in it: one for most cells, several near the borders between places. Locations
in crowded cells or outside the raster are compared with all places.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket.errors import MismatchError
from geoblanket.mechanism import sampling
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.storage import BundledMechanism, ZoneBundle
from geoblanket.mechanism.history_table import (
    COSINE_UNIT,
    HALF_TURN_E7,
    HistoryTable,
    cosine,
    squared_distance,
)

_QUARTER_MS: Final = 900_000
"""All time zones of this century are whole quarter-hours from UTC, and change on a quarter-hour."""
_SWAPPED_E7: Final = 100_000_000
"""Ten degrees: a location that far from all places, but among them with its coordinates exchanged, is a mistake."""
_AMONG_E7: Final = 1_000_000
"""A tenth of a degree from the outermost places still counts as among them."""
_LISTED: Final = 4
_CELLS_PER_PLACE: Final = 256
_BLOCK: Final = 16
"""Cells of a block in each direction: places far from a block are far from all its cells."""
_MOST_CELLS: Final = 1 << 20
_RIM: Final = 0.1
_ROUNDING: Final = 1 + 1e-9
"""Makes up for the rounding of distances."""
_WIDEST_E7: Final = 20_000_000
_LARGEST_LAT_E7: Final = 600_000_000
_MARGIN: Final = 1.07
"""The raster is made with one cosine for all latitudes: within two degrees of latitude, up to 60 degrees from the
equator, it is off by less than 3.1 % either way. Wider areas get no raster."""


class Regimes:
    """Gives the regime of a time.

    Parameters
    ----------
    clock
        The clock of a bundle.

    Raises
    ------
    MismatchError
        If this machine does not know the clock's time zone.
    """

    def __init__(self, clock: Clock) -> None:
        try:
            self._zone = ZoneInfo(clock.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise MismatchError(
                f"This machine does not know the time zone '{clock.time_zone}' of the bundle. "
                "Install its data, for example the package tzdata."
            ) from error
        self.interval_ms = clock.interval_ms
        self.start = clock.start
        self.names = tuple(name for name, _ in clock.regimes)
        self._by_hour = [clock.regime(hour) for hour in range(24)]
        self._last = (-1, "")

    def at(self, time_ms: int) -> str:
        """Return the regime of a report with history at a time, milliseconds since 1970 in UTC."""
        quarter = time_ms // _QUARTER_MS
        if quarter != self._last[0]:
            local = datetime.fromtimestamp(quarter * _QUARTER_MS // 1000, self._zone)
            self._last = (quarter, self._by_hour[local.hour])
        return self._last[1]

    def numbers_at(self, times_ms: Ints) -> Ints:
        """Return the regimes of many times, as indices into `names`."""
        quarters, which = np.unique(times_ms // _QUARTER_MS, return_inverse=True)
        numbers = [self.names.index(self.at(quarter * _QUARTER_MS)) for quarter in quarters.tolist()]
        return np.array(numbers, np.int64)[which]


class NearestPlace:
    """Finds the nearest of some places.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        lat, lon = places_e7.astype(np.float64).T
        self._lat, self._lon = np.ascontiguousarray(lat), np.ascontiguousarray(lon)
        self._box = (float(lat.min()), float(lat.max()), float(lon.min()), float(lon.max()))

    def seems_exchanged(self, lat_e7: int, lon_e7: int) -> bool:
        """Return whether latitude and longitude are clearly exchanged: no vehicle can be there."""
        return not self._within(lat_e7, lon_e7, _SWAPPED_E7) and self._within(lon_e7, lat_e7, _AMONG_E7)

    def of(self, lat_e7: int, lon_e7: int) -> int:
        """Return the place nearest to a location in 1e-7 degrees, wherever on Earth it is."""
        # NumPy subtracts floats from an array twice as fast as whole numbers, with the same result.
        around = self._box[3] - lon_e7 > HALF_TURN_E7 or lon_e7 - self._box[2] > HALF_TURN_E7
        scale = round(math.cos(math.radians(lat_e7 * 1e-7)) / COSINE_UNIT) * COSINE_UNIT
        north, east = self._lat - float(lat_e7), self._lon - float(lon_e7)
        return int(squared_distance(north, east, scale, around=around).argmin())

    def _within(self, lat_e7: float, lon_e7: float, margin_e7: int) -> bool:
        south, north, west, east = self._box
        return south - margin_e7 <= lat_e7 <= north + margin_e7 and west - margin_e7 <= lon_e7 <= east + margin_e7


class PlaceRaster:
    """Finds the nearest of some places for many locations.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        self._single_place = NearestPlace(places_e7)
        self._places = places_e7.astype(np.float64)
        rim = _RIM * (np.ptp(self._places, axis=0) + 1)
        self._south, self._west = self._places.min(axis=0) - rim
        height, width = np.ptp(self._places, axis=0) + 2 * rim
        self._step = max(math.sqrt(height * width / min(_MOST_CELLS, _CELLS_PER_PLACE * len(places_e7))), 1.0)
        self._rows, self._columns = int(height / self._step) + 1, int(width / self._step) + 1
        wide = max(height, width) > _WIDEST_E7 or np.abs(self._places[:, 0]).max() > _LARGEST_LAT_E7
        if wide:
            self._rows = self._columns = 0
        self._listed = self._make()
        self._single = self._listed[:, 1] < 0

    def of(self, lat_e7: Ints, lon_e7: Ints) -> Indices:
        """Return the place nearest to each location in 1e-7 degrees, shape (n,)."""
        cell = self._cell(lat_e7, lon_e7)
        result: Indices = self._listed[cell, 0]
        several = np.flatnonzero(~self._single[cell])
        if len(several):
            result[several] = self._compared(lat_e7[several], lon_e7[several], self._listed[cell[several]])
        for index in np.flatnonzero(result < 0).tolist():
            result[index] = self._single_place.of(int(lat_e7[index]), int(lon_e7[index]))
        return result

    def _cell(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return the number of the cell of each location; the last cell stands for everything outside the raster."""
        row = np.floor((lat_e7 - self._south) / self._step).astype(np.int64)
        column = np.floor((lon_e7 - self._west) / self._step).astype(np.int64)
        within = (row >= 0) & (row < self._rows) & (column >= 0) & (column < self._columns)
        return np.where(within, row * self._columns + column, len(self._listed) - 1)

    def _compared(self, lat_e7: Ints, lon_e7: Ints, listed: Indices) -> Indices:
        """Return the nearest of the places listed for each location, by the same arithmetic as `NearestPlace`."""
        east = (self._places[listed, 1] - lon_e7[:, None]) * cosine(lat_e7.astype(np.float64))[:, None]
        north = self._places[listed, 0] - lat_e7[:, None]
        squared = np.where(listed >= 0, east * east + north * north, np.inf)
        nearest: Indices = listed[np.arange(len(listed)), squared.argmin(axis=1)]
        return nearest

    def _make(self) -> Indices:
        """Return the places listed for each cell, ascending, padded with −1; the last row is for the outside."""
        flat = float(cosine(np.array([self._places[:, 0].mean()]))[0])
        scale = np.array([1.0, flat])
        places = self._places * scale
        diagonal = self._step * math.hypot(1.0, flat)
        listed = np.full((self._rows * self._columns + 1, _LISTED), -1, np.int32)
        by_cell = listed[:-1].reshape(self._rows, self._columns, _LISTED)
        starts = itertools.product(range(0, self._rows, _BLOCK), range(0, self._columns, _BLOCK))
        for south, west in starts:
            block = by_cell[south : south + _BLOCK, west : west + _BLOCK]
            lat = self._south + (south + np.arange(block.shape[0]) + 0.5) * self._step
            lon = self._west + (west + np.arange(block.shape[1]) + 0.5) * self._step
            middles = np.stack(np.meshgrid(lat, lon, indexing="ij"), axis=-1) * scale
            block[:] = _listed(middles.reshape(-1, 2), places, diagonal).reshape(block.shape)
        return listed


def _listed(middles: Floats, places: Floats, diagonal: float) -> Indices:
    """Return the places that can be nearest in cells of a rectangle, by the middles and the diagonal of the cells."""
    centre, half = (middles[0] + middles[-1]) / 2, math.dist(middles[0], middles[-1]) / 2
    from_centre = np.hypot(*(places - centre).T)
    # From a middle, a place is up to half the rectangle's diagonal nearer than from the centre, and the nearest one
    # up to as much further away: no other place fulfils the condition below for any middle.
    some = np.flatnonzero(from_centre <= ((from_centre.min() + half + diagonal) * _MARGIN + half) * _ROUNDING)
    distance = np.hypot(*(middles[:, None] - places[some]).transpose(2, 0, 1))
    # Whatever the location in the cell, its nearest place is at most half a diagonal further than the middle's.
    candidate = distance <= (distance.min(axis=1, keepdims=True) + diagonal) * _MARGIN
    candidate &= candidate.sum(axis=1, keepdims=True) <= _LISTED  # in a crowded cell none is listed
    cell, column = np.nonzero(candidate)
    listed = np.full((len(middles), _LISTED), -1, np.int32)
    listed[cell, candidate.cumsum(axis=1)[cell, column] - 1] = some[column]
    return listed


class ReleaseRule:
    """Maps histories to rows of a bundle's mechanisms, and draws what they report.

    Parameters
    ----------
    bundle
        A bundle with coordinates and histories; without them its rows have no meaning.

    Examples
    --------
    >>> from geoblanket import load_bundle
    >>> from geoblanket.release import ReleaseRule
    >>> bundle = load_bundle("city.bundle")
    >>> rule = ReleaseRule(bundle)
    >>> 0 <= rule.draw_one([3], "start") < len(bundle.places_e7)
    True
    """

    @checked
    def __init__(self, bundle: ZoneBundle) -> None:
        if not bundle.located:
            raise MismatchError("The bundle has no places, so it does not say which row a history uses.")
        self._bundle = bundle
        self._regimes: dict[str, _Regime] = {}

    @property
    def past(self) -> int:
        """Γ: how many earlier places the mechanisms look at, at most."""
        return max(len(table.history_weights_micro) for table in self._bundle)

    def draw(self, histories: Indices, regime: str) -> Indices:
        """Draw the place to report for each of many histories, exactly, with the operating system's randomness.

        Parameters
        ----------
        histories
            Places at t, t − 1, ..., shape (n, 1 + Γ); earlier ones that are not known are −1.
        regime
            The name of their regime.

        Raises
        ------
        MismatchError
            If the bundle has no mechanism for the regime.
        """
        return self._regime(regime).draw(histories)

    def draw_one(self, history: Sequence[int], regime: str) -> int:
        """Draw the place to report for one history: the present place, and as many earlier ones as are known.

        The whole row is scanned, whatever is drawn.
        """
        return self._regime(regime).draw_one(history)

    def distributions(self, histories: Indices, regime: str) -> Iterator[tuple[Positions, Indices, Floats]]:
        """Yield for each zone the histories that it serves, its outputs, and the probability of each from each.

        Parameters
        ----------
        histories, regime
            As for `draw`.

        Yields
        ------
        some, places, probabilities
            Positions among the histories, shape (n,); places that may be reported, shape (K,); shape (n, K).
        """
        yield from self._regime(regime).distributions(histories)

    def outside(self, places: Indices, regime: str) -> Bools:
        """Return which present places are outside all zones of the regime, and so count as another place."""
        result: Bools = self._regime(regime).stand_in[places] != places
        return result

    def of_places(self, values: Mapping[tuple[str, str], Sequence[int]], regime: str) -> Ints:
        """Return the values of the zone (with its regime) that serves each place in a regime, shape (P, values)."""
        return self._regime(regime).of_places(values)

    def prepare(self, regimes: Sequence[str]) -> None:
        """Build the tables of regimes now, so that no report is slower than the others."""
        for name in regimes:
            self._regime(name).prepare()

    def _regime(self, name: str) -> _Regime:
        if name not in self._regimes:
            tables = tuple(table for table in self._bundle if table.regime == name)
            if not tables:
                raise MismatchError(f"The bundle has no mechanism for the regime '{name}'.")
            self._regimes[name] = _Regime(tables, self._bundle.places_e7)
        return self._regimes[name]

    def __repr__(self) -> str:
        sizes = counted(len(self._bundle), "mechanism"), counted(len(self._bundle.places_e7), "place")
        return short_repr(self, *sizes, f"{self.past} earlier places")


@dataclass(frozen=True, eq=False)
class _Regime:
    """The tables of one regime, one for each zone."""

    tables: tuple[BundledMechanism, ...]
    places_e7: Indices

    def draw(self, histories: Indices) -> Indices:
        histories = histories.copy()
        histories[:, 0] = self.stand_in[histories[:, 0]]
        # NumPy sorts 16 bits ten times as fast, by their digits.
        zone = self._zone[histories[:, 0]].astype(np.int16)
        order = np.argsort(zone, kind="stable")
        ends = np.searchsorted(zone[order], np.arange(len(self.tables) + 1))
        result = np.empty(len(histories), np.int32)
        for number, (table, rows) in enumerate(zip(self.tables, self._rows, strict=True)):
            some = order[ends[number] : ends[number + 1]]
            drawn = sampling.draw_many(table.mechanism.weights, rows.row_of(histories[some]).astype(np.int64))
            result[some] = table.output_places[drawn]
        return result

    def distributions(self, histories: Indices) -> Iterator[tuple[Positions, Indices, Floats]]:
        histories = histories.copy()
        histories[:, 0] = self.stand_in[histories[:, 0]]
        zone = self._zone[histories[:, 0]]
        for number, (table, rows) in enumerate(zip(self.tables, self._rows, strict=True)):
            some = np.flatnonzero(zone == number)
            if len(some):
                weights = table.mechanism.weights.astype(np.float64)
                shares = weights / weights.sum(axis=1, keepdims=True)
                yield some, table.output_places, shares[rows.row_of(histories[some])]

    def draw_one(self, history: Sequence[int]) -> int:
        now = self._stand_ins[history[0]]
        zone = self._zones[now]
        row = self._rows[zone].row_of_one((now, *history[1:]))
        return int(self.tables[zone].output_places[sampling.draw_cumulative(self._cumulative[zone][row])])

    def of_places(self, values: Mapping[tuple[str, str], Sequence[int]]) -> Ints:
        return np.array([values[table.zone, table.regime] for table in self.tables])[self._zone[self.stand_in]]

    def prepare(self) -> None:
        for table, rows, _ in zip(self.tables, self._rows, self._cumulative, strict=True):
            present = self._stand_ins[int(table.histories[0, 0])]
            rows.row_of_one((present,))
        self._zones  # noqa: B018  # the first look builds it

    @cached_property
    def stand_in(self) -> Indices:
        """The place that each place counts as, shape (P,): itself, or the nearest in a zone (the first of equals)."""
        result = np.arange(len(self.places_e7), dtype=np.int32)
        inside, outside = np.flatnonzero(self._zone >= 0), np.flatnonzero(self._zone < 0)
        lat, lon = self.places_e7.astype(np.float64).T
        scale = cosine(lat)
        for place in outside.tolist():
            squared = squared_distance(lat[inside] - lat[place], lon[inside] - lon[place], scale[place])
            result[place] = inside[squared.argmin()]
        return result

    @cached_property
    def _stand_ins(self) -> list[int]:
        """The same as a list, which is faster for one place at a time."""
        return [int(place) for place in self.stand_in]

    @cached_property
    def _zone(self) -> Indices:
        """The number of the table with each place as a present place, −1 for none, shape (P,)."""
        result = np.full(len(self.places_e7), -1, np.int32)
        for number, table in enumerate(self.tables):
            result[table.histories[:, 0]] = number
        return result

    @cached_property
    def _zones(self) -> list[int]:
        """The same as a list, which is faster for one place at a time."""
        return [int(zone) for zone in self._zone]

    @cached_property
    def _cumulative(self) -> list[Ints]:
        return [table.mechanism.weights.cumsum(axis=1) for table in self.tables]

    @cached_property
    def _rows(self) -> list[HistoryTable]:
        return [HistoryTable(self.places_e7, table.histories, table.history_rows) for table in self.tables]
