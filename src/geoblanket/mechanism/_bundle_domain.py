"""What the rows of a bundle stand for: histories of places, from whose coordinates row distances are computed again.

A file whose distances are too large passes every other check and protects nothing, so a device computes them itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import content_hash
from geoblanket.mechanism._bundle_header import MechanismHeader
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mechanism.row_distances import row_distance_mm

__all__ = [
    "Rows",
    "check_places",
    "domain_hash",
    "fits_32_bits",
    "pack",
    "triangle_breaks",
    "triangle_size",
    "unpack",
]

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_NEVER_32 = 2**32 - 1
_LARGEST_E7 = np.array([900_000_000, 1_800_000_000])
_ROUNDING_MM = 1


def triangle_size(rows: int) -> int:
    """Return how many pairs there are of so many rows."""
    return rows * (rows - 1) // 2


def fits_32_bits(distance_mm: Ints) -> bool:
    """Whether all distances but "never" are below 2^32 − 1 millimetres (4,295 km)."""
    return bool(((distance_mm < _NEVER_32) | (distance_mm == NEVER_MM)).all())


def pack(distance_mm: Ints, *, bits: int) -> npt.NDArray[np.uint32] | Ints:
    """Return the distances above the diagonal, row by row: the rest says nothing new."""
    packed = distance_mm[_above_diagonal(len(distance_mm))]
    if bits == 64:
        return packed
    return np.where(packed == NEVER_MM, _NEVER_32, packed).astype(np.uint32)


def unpack(packed: npt.NDArray[Any], rows: int) -> Ints:
    """Return the whole symmetric matrix of distances, zero on its diagonal."""
    values = packed.astype(np.int64)
    if packed.dtype == np.uint32:
        values[values == _NEVER_32] = NEVER_MM
    result = np.zeros((rows, rows), np.int64)
    result[_above_diagonal(rows)] = values
    result += result.T
    return result


def triangle_breaks(distance_mm: Ints) -> int:
    """Return how many pairs of rows are further apart than by way of a third (by more than rounding), in S³ steps.

    The promise holds pair by pair and needs no triangle inequality; but a metric has it.
    """
    distance = distance_mm.astype(np.float64)
    broken = sum(int(np.count_nonzero(row > (row[:, None] + distance).min(axis=0) + 2)) for row in distance)
    return broken // 2


def _above_diagonal(rows: int) -> npt.NDArray[np.bool_]:
    return ~np.tri(rows, dtype=bool)


@dataclass(frozen=True, eq=False)
class Rows:
    """What the rows and columns of one mechanism stand for, and how far apart the rows are said to be."""

    zone: str
    regime: str
    distance_mm: Ints
    """Shape (S, S)."""
    history_weights_micro: tuple[int, ...]
    histories: Indices
    history_rows: Indices
    output_places: Indices


def domain_hash(header: Sequence[MechanismHeader], arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the identity of what rows stand for, from the file's parts; a new ε or new weights do not change it."""
    described = [[one.zone, one.regime, one.rows, one.histories, len(one.history_weights_micro)] for one in header]
    parts = {name: arrays[name] for name in ("places_e7", "histories", "history_rows")}
    return content_hash({"mechanisms": described}, parts)


def check_places(rows: Rows, places_e7: Indices) -> None:
    """Raise ValueError unless indices of places fit, and no row distance is larger than on the map."""
    if not len(places_e7) and not len(rows.histories):
        return
    problem = _problem_of(rows, places_e7)
    if problem is not None:
        raise ValueError(f"zone '{rows.zone}', regime '{rows.regime}': {problem}")


def _problem_of(rows: Rows, places_e7: Indices) -> str | None:
    if places_e7.shape[1:] != (2,) or (np.abs(places_e7.astype(np.int64)) > _LARGEST_E7).any():
        return "places must be latitudes and longitudes in 1e-7 degrees"
    if not _is_within(rows.output_places, 0, len(places_e7)):
        return "the places of its outputs are wrong"
    histories_fit = rows.histories.shape[1] == 1 + len(rows.history_weights_micro)
    if not histories_fit or not _is_within(rows.histories, -1, len(places_e7)):
        return "the places of its histories are wrong"
    used = np.unique(rows.history_rows)
    if len(rows.history_rows) != len(rows.histories) or not np.array_equal(used, np.arange(len(rows.distance_mm))):
        return "the rows of its histories are wrong"
    on_map = row_distance_mm(places_e7, rows.histories, rows.history_rows, rows.history_weights_micro)
    stated = np.where(rows.distance_mm == NEVER_MM, np.inf, rows.distance_mm.astype(np.float64))
    too_large = stated > on_map + _ROUNDING_MM
    if not too_large.any():
        return None
    row, other = np.argwhere(too_large)[0]
    return (
        f"rows {row} and {other} are said to be further apart than their places are, so that they would be protected "
        "less than promised"
    )


def _is_within(indices: Indices, least: int, end: int) -> bool:
    return bool(indices.size and indices.min() >= least and indices.max() < end)
