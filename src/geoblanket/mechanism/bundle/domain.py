"""What the rows of a bundle stand for: histories of places, from which row distances are recomputed.

A file whose distances are too large would pass every other check and protect nothing. So a device recomputes them
itself, between all histories that it could ever be asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import content_hash
from geoblanket._arrays import Indices, Ints
from geoblanket._display import counted
from geoblanket.mechanism.bundle.header import PLACE_DISTANCES, MechanismHeader
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mechanism.history_verifier import PlacesOfCity, RuleTree, first_too_far
from geoblanket.mechanism.problem import NEVER_MM

_NEVER_32 = 2**32 - 1
_LARGEST_E7 = np.array([900_000_000, 1_800_000_000])
_LARGEST_WORK = 5 * 10**10
"""Elementary steps of verification, by estimate: about two minutes."""
_STEPS_PER_PAIR = 20
"""What a pair of rows costs besides its outputs."""


def fits_32_bits(distance_mm: Ints) -> bool:
    """Whether all distances but "never" are below 2^32 − 1 millimetres (4,295 km)."""
    return bool(((distance_mm < _NEVER_32) | (distance_mm == NEVER_MM)).all())


def pack(distance_mm: Ints, *, bits: int) -> npt.NDArray[np.uint32] | Ints:
    """Return the distances above the diagonal, row by row; the rest is redundant."""
    packed: Ints = distance_mm[~np.tri(len(distance_mm), dtype=bool)]
    if bits == 64:
        return packed
    return np.where(packed == NEVER_MM, _NEVER_32, packed).astype(np.uint32)


def unpack(packed: npt.NDArray[Any], rows: int) -> Ints:
    """Return the whole symmetric matrix of distances, zero on its diagonal, read-only."""
    memory = bytearray(8 * rows * rows)
    result = np.frombuffer(memory, np.int64).reshape(rows, rows)
    start = 0
    for row in range(rows - 1):
        values = packed[start : start + rows - 1 - row].astype(np.int64)
        if packed.dtype == np.uint32:
            values[values == _NEVER_32] = NEVER_MM
        result[row, row + 1 :] = result[row + 1 :, row] = values
        start += len(values)
    return np.frombuffer(memoryview(memory).toreadonly(), np.int64).reshape(rows, rows)


def place_table(arrays: Mapping[str, npt.NDArray[Any]]) -> Ints | None:
    """Return the distances of places of a file, millimetres, shape (P, P); None if they are those on the map."""
    packed = arrays.get(PLACE_DISTANCES)
    return None if packed is None else unpack(packed, len(arrays["places_e7"]))


def domain_hash(headers: Sequence[MechanismHeader], arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the identity of what rows stand for, from the file's parts; a new ε or new weights do not change it."""
    described = [
        [header.zone, header.regime, header.rows, header.histories, len(header.history_weights_micro)]
        for header in headers
    ]
    names = ("places_e7", "histories", "history_rows", *([PLACE_DISTANCES] if PLACE_DISTANCES in arrays else []))
    parts = {name: arrays[name] for name in names}
    return content_hash({"mechanisms": described}, parts)


class DomainCheck:
    """Checks that the rows of a bundle stand for what the file says, before anything is computed from them.

    Parameters
    ----------
    headers
        Of all mechanisms.
    histories
        Of each mechanism: the places of its histories, shape (N, 1 + Γ), and the row of each, shape (N,).
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2); empty without coordinates.
    table_mm
        Distances of places in another metric than on the map, millimetres, shape (P, P); None: on the map.

    Raises
    ------
    ValueError
        If places, histories or zones are wrong, or verification would take too much work.
    """

    def __init__(
        self,
        headers: Sequence[MechanismHeader],
        histories: Sequence[tuple[Indices, Indices]],
        places_e7: Indices,
        table_mm: Ints | None = None,
    ) -> None:
        self._headers = headers
        work = sum(header.rows * header.rows * (header.columns + _STEPS_PER_PAIR) for header in headers)
        _check_work(work)
        if not len(places_e7):
            return
        if places_e7.shape[1:] != (2,) or (np.abs(places_e7.astype(np.int64)) > _LARGEST_E7).any():
            raise ValueError("places must be latitudes and longitudes in 1e-7 degrees")
        self._city = PlacesOfCity(places_e7, table_mm)
        self._trees = [
            _tree(header, *listed, place_count=len(places_e7))
            for header, listed in zip(headers, histories, strict=True)
        ]
        zones = list(zip(headers, self._trees, strict=True))
        self._stand_in = {
            regime: self._stand_ins([(header, tree) for header, tree in zones if header.regime == regime])
            for regime in sorted({header.regime for header in headers})
        }
        for header, tree in zones:
            work += tree.work(int(np.isin(self._stand_in[header.regime], tree.present).sum()))
            _check_work(work)
        if any(header.history_weights_micro for header in headers):
            work += len(places_e7) ** 2
        _check_work(work)

    def _stand_ins(self, zones: list[tuple[MechanismHeader, RuleTree]]) -> Indices:
        """Return the place that each place counts as at present: itself, or the nearest in a zone of the regime."""
        zone_of = np.full(self._city.count, -1)
        for number, (header, tree) in enumerate(zones):
            if (shared := tree.present[zone_of[tree.present] >= 0]).size:
                other = zones[zone_of[shared[0]]][0].zone
                raise ValueError(
                    f"{zone_in_words(other)} and {zone_in_words(header.zone)} share {counted(shared.size, 'place')} "
                    f"in the regime '{header.regime}', so that it does not say which to use"
                )
            zone_of[tree.present] = number
        inside, outside = np.flatnonzero(zone_of >= 0), np.flatnonzero(zone_of < 0)
        result = np.arange(self._city.count, dtype=np.int32)
        if len(outside):
            result[outside] = inside[self._city.nearest_of(inside, outside)]
        return result

    def check(self, number: int, distance_mm: Ints, output_places: Indices) -> None:
        """Raise ValueError if a stated distance of two rows exceeds that of some two histories that use them.

        Parameters
        ----------
        number
            The mechanism's place in the file.
        distance_mm
            The stated distances of its rows, shape (S, S).
        output_places
            The place of each of its columns, shape (C,).
        """
        header = self._headers[number]
        if not header.histories:
            return
        if not _is_within(output_places, 0, self._city.count):
            raise ValueError(f"{header.where}: the places of its outputs are wrong")
        too_far = first_too_far(
            self._trees[number],
            self._city,
            weights_micro=header.history_weights_micro,
            stated_mm=distance_mm,
            stand_in=self._stand_in[header.regime],
        )
        if too_far is not None:
            raise ValueError(
                f"{header.where}: rows {too_far[0]} and {too_far[1]} are said to be further apart than some two "
                "histories that use them, so that these would be protected less than promised (what versions before "
                "0.2 built with a past must be built again)"
            )


def _tree(header: MechanismHeader, histories: Indices, rows: Indices, *, place_count: int) -> RuleTree:
    if not _is_within(histories, -1, place_count):
        raise ValueError(f"{header.where}: the places of its histories are wrong")
    if len(rows) != len(histories) or not np.array_equal(np.unique(rows), np.arange(header.rows)):
        raise ValueError(f"{header.where}: the rows of its histories are wrong")
    try:
        return RuleTree(histories, rows, place_count)
    except ValueError as error:
        raise ValueError(f"{header.where}: {error}") from error


def _check_work(work: int) -> None:
    if work > _LARGEST_WORK:
        raise ValueError(
            f"to verify it would take about {work:.1e} steps, more than the {_LARGEST_WORK:.1e} that are allowed"
        )


def _is_within(indices: Indices, least: int, end: int) -> bool:
    return bool(indices.size and indices.min() >= least and indices.max() < end)
