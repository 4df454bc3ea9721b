"""Reports of a method from steps of walks, drawn with a seed, and what anyone knows of how they come about.

A recipient knows the mechanism, the rule from histories to rows, and which zone a report is of. That is a *sight* for
the filter of `geoblanket.tracking`: in each zone, the states of the motion model use rows, and rows send reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import counted, short_repr
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import Reports

__all__ = ["RowSight", "ZoneReports", "draw_reports", "only_the_zone"]

_RowsOfStates = csr_array[Any, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ZoneReports:
    """Reports from the steps in one zone; made by `draw_reports`.

    Examples
    --------
    With the `drawn` in the example of `draw_reports`:

    >>> drawn.chances.shape[1] > int(drawn.sent.max())
    True
    """

    states: Ints
    """The states of the motion model whose present place is in the zone, shape (n,)."""
    rows: _RowsOfStates
    """How probably each of them uses each row of the mechanism, shape (n, S)."""
    chances: Singles
    """How probably each row sends each report, of those that were sent, shape (S, U)."""
    sent: Ints
    """The report of each step in the zone, from 0 to U − 1."""

    def as_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the arrays by name, after a prefix, for a file of several."""
        arrays = {
            "states": self.states,
            "rows": self.rows.data,
            "columns": self.rows.indices.astype(np.int64),
            "offsets": self.rows.indptr.astype(np.int64),
            "chances": self.chances,
            "sent": self.sent,
        }
        return {f"{prefix}{name}": array for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Any, prefix: str) -> ZoneReports:
        """Return what `as_arrays` gave away."""
        states, values, columns, offsets, chances, sent = (
            arrays[f"{prefix}{name}"] for name in ("states", "rows", "columns", "offsets", "chances", "sent")
        )
        return cls(states, csr_array((values, columns, offsets), shape=(len(states), len(chances))), chances, sent)

    def __repr__(self) -> str:
        rows, kinds = self.chances.shape
        of_kinds = f"{counted(len(self.sent), 'report')} of {counted(kinds, 'kind')}"
        return short_repr(self, of_kinds, counted(rows, "row"), counted(len(self.states), "state"))


@checked
def draw_reports(
    probabilities: npt.ArrayLike,
    rows: ZoneRows,
    steps: Steps,
    motion: MotionModel,
    counts: HistoryCounts,
    *,
    seed: int | Sequence[int] = 0,
) -> ZoneReports:
    """Draw a report for each step in a zone.

    Parameters
    ----------
    probabilities
        Probability that each row sends each report, shape (S, any).
    rows
        The rows, and the rule from histories to them.
    steps
        Steps of held-out walks; those outside the zone are ignored.
    motion
        How vehicles move: its states are what a recipient thinks of.
    counts
        Histories of training walks. Where rows look further back than states, those seen in a state stand for it.
    seed
        The same seed and probabilities give the same reports.

    Raises
    ------
    MismatchError
        If the probabilities are not those of the rows.

    Examples
    --------
    With the `rows` and `counts` in the example of `make_rows`, and reports that are true:

    >>> from geoblanket.evaluate import draw_reports
    >>> from geoblanket.mobility.histories import collect_steps
    >>> from geoblanket.tracking.motion_model import MotionModel
    >>> motion = MotionModel.by_distance(places.coordinates_e7, interval_s=30.0)
    >>> steps = collect_steps("walks.parquet", places, largest=1)
    >>> truth = (rows.histories[:, :1] == rows.zone).astype(float)
    >>> drawn = draw_reports(truth, rows, steps, motion, counts)
    >>> len(drawn.sent) == sum(place in rows.zone for place in steps.histories[:, 0])
    True
    """
    table = np.asarray(probabilities, np.float64)
    if table.ndim != 2 or len(table) != len(rows):
        raise MismatchError(f"Probabilities of the shape {table.shape} do not belong to {len(rows)} rows.")
    here = steps.where(np.isin(steps.histories[:, 0], rows.zone))
    used, sent = np.unique(_drawn(table, rows.row_of(here.histories), seed), return_inverse=True)
    states = np.flatnonzero(np.isin(motion.present, rows.zone)).astype(np.int64)
    return ZoneReports(
        states, _rows_of_states(states, rows, motion, counts), table[:, used].astype(np.float32), sent.astype(np.int64)
    )


def only_the_zone(members: Indices, steps: int, motion: MotionModel) -> ZoneReports:
    """Return reports that tell nothing but the zone."""
    states = np.flatnonzero(np.isin(motion.present, members)).astype(np.int64)
    alike = csr_array(np.ones((len(states), 1)))
    return ZoneReports(states, alike, np.ones((1, 1), np.float32), np.zeros(steps, np.int64))


class RowSight:
    """How probable reports are from each state, in any of several zones.

    Parameters
    ----------
    zones
        Reports are numbered through all of them: those of a zone start at its number in `first`.

    Examples
    --------
    With the `motion` and `drawn` in the example of `draw_reports`:

    >>> from geoblanket.evaluate import RowSight
    >>> sight = RowSight(motion, [drawn])
    >>> sight.outputs == drawn.chances.shape[1]
    True
    """

    @checked
    def __init__(self, motion: MotionModel, zones: Sequence[ZoneReports]) -> None:
        self.interval_s = motion.interval_s
        self._states, self._zones = len(motion), zones
        counts = [zone.chances.shape[1] for zone in zones]
        self.first: Ints = np.cumsum([0, *counts])[:-1].astype(np.int64)
        self.outputs = sum(counts)

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state, shape (N, B)."""
        result = np.zeros((self._states, len(reports.output)), np.float32)
        number = np.searchsorted(self.first, reports.output, side="right") - 1
        for zone, some in _by_value(number):
            known = self._zones[zone]
            chances = known.chances[:, reports.output[some] - self.first[zone]]
            result[np.ix_(known.states, some)] = known.rows @ chances
        return result

    def __repr__(self) -> str:
        zones, states = counted(len(self._zones), "zone"), counted(self._states, "state")
        return short_repr(self, zones, counted(self.outputs, "output"), states, f"every {self.interval_s:g} s")


def _drawn(probabilities: Floats, rows: npt.NDArray[np.integer], seed: int | Sequence[int]) -> Ints:
    """Draw a report for each row: the number of cumulated probabilities at most as large as a random number."""
    # Not exact, as releases are: this is an estimate, and the seed makes it the same every time.
    chance = np.random.default_rng(seed).random(len(rows))
    result = np.empty(len(rows), np.int64)
    for row, some in _by_value(rows):
        cumulated = np.cumsum(probabilities[row])
        result[some] = np.searchsorted(cumulated / cumulated[-1], chance[some], side="right")
    return result


def _by_value(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, Ints]]:
    """Yield each value and the positions that have it."""
    order = np.argsort(values, kind="stable").astype(np.int64)
    for some in np.split(order, np.flatnonzero(np.diff(values[order])) + 1):
        if len(some):
            yield int(values[some[0]]), some


def _rows_of_states(states: Ints, rows: ZoneRows, motion: MotionModel, counts: HistoryCounts) -> _RowsOfStates:
    """Return how probably each state uses each row, shape (n, S).

    A state decides the row if the mechanism looks no further back. Otherwise the histories that were seen in the state
    do, as often as they were.
    """
    histories = motion.states[states]
    shape = len(states), len(rows)
    plain = csr_array((np.ones(len(states)), (np.arange(len(states)), rows.row_of(histories))), shape=shape)
    known = histories.shape[1]
    if rows.histories.shape[1] <= known or counts.largest < known:
        return plain
    seen = counts.where(np.isin(counts.histories[:, 0], rows.zone))
    places, of_place = np.unique(np.concatenate([histories, seen.histories[:, :known]]), axis=0, return_inverse=True)
    state_of = np.full(len(places), -1, np.int64)
    state_of[of_place.ravel()[: len(states)]] = np.arange(len(states))
    of_seen = state_of[of_place.ravel()[len(states) :]]
    has_state = of_seen >= 0
    counted = csr_array(
        (
            seen.count[has_state].astype(np.float64),
            (of_seen[has_state], rows.row_of(seen.histories[has_state])),
        ),
        shape=shape,
    )
    counted.sum_duplicates()
    total: Floats = np.asarray(counted.sum(axis=1)).ravel()
    scale = np.where(total > 0, 1 / np.maximum(total, 1), 0.0)
    return csr_array(counted.multiply(scale[:, None]) + plain.multiply((total == 0)[:, None]))
