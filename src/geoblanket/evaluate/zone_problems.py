"""Rows, losses and problems of a zone, each made once and shared by all methods and settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket.build.refinement import split_rows
from geoblanket.build.row_tree import Lengths, Reach
from geoblanket.build.rows import ZoneRows, make_problem, make_rows
from geoblanket.errors import ParameterError
from geoblanket.evaluate.city_data import ZoneData
from geoblanket.evaluate.methods import RowsKind
from geoblanket.evaluate.settings import Blanket, Setting
from geoblanket.loss.place_loss import KnownLoss
from geoblanket.mechanism.problem import Problem
from geoblanket.mobility.histories import LONGEST_PAST

__all__ = ["ZoneProblems", "first_stage_of"]

_FIRST_STAGES: dict[RowsKind, RowsKind] = {"markov:1, split": "markov:1", "predicted, split": "predicted"}


@dataclass(eq=False)
class ZoneProblems:
    """The problems of one zone, with one loss."""

    data: ZoneData
    _rows: dict[tuple[object, ...], ZoneRows] = field(default_factory=dict)
    _problems: dict[int, Problem] = field(default_factory=dict)

    @cached_property
    def loss(self) -> KnownLoss:
        """The loss, for all places where the zone's vehicles may be later."""
        data = self.data
        reach = Reach(data.places.coordinates_e7, data.reach_m)
        within = [reach.of(place) for place in data.members.tolist()]
        later = np.concatenate([*within, data.counts.next_place, data.steps.next_place])
        return KnownLoss.of(data.loss, later, data.members)

    def has(self, kind: RowsKind) -> bool:
        """Whether it is known what of the past decides."""
        return {"predicted": self.data.predicted, "found": self.data.found}.get(first_stage_of(kind), True) is not None

    def rows(self, kind: RowsKind, setting: Setting) -> ZoneRows:
        """Return the rows of a zone; those with equal lengths of blankets are the same ones."""
        key = ("none",) if kind == "none" else (kind, setting.history_weights, setting.max_rows, setting.blanket)
        if key not in self._rows:
            self._rows[key] = self._known(self._make_rows(kind, setting))
        return self._rows[key]

    def problem(self, rows: ZoneRows, *, epsilon: float, eta_km: float) -> Problem:
        """Return the problem of rows with this ε and η."""
        if id(rows) not in self._problems:
            self._problems[id(rows)] = make_problem(rows, self.loss, epsilon=epsilon, eta_km=eta_km)
        known = self._problems[id(rows)]
        return Problem.in_millimetres(
            loss=known.loss, prior=known.prior, distance_mm=known.distance_mm, epsilon=epsilon, eta_km=eta_km
        )

    def _known(self, rows: ZoneRows) -> ZoneRows:
        """Return rows that were made before, if they are the same."""
        for known in self._rows.values():
            if known.history_weights == rows.history_weights and np.array_equal(known.histories, rows.histories):
                return known
        return rows

    def _make_rows(self, kind: RowsKind, setting: Setting) -> ZoneRows:
        data = self.data
        if (first := first_stage_of(kind)) != kind:
            coarse = self.rows(first, setting)
            try:
                return split_rows(
                    coarse,
                    data.places,
                    data.counts,
                    further=1,
                    reach_m=data.reach_m,
                    history_weights=setting.history_weights,
                )
            except ParameterError:  # too many; the method says so
                return coarse
        context, lengths = {
            "none": ("none", None),
            "markov:1": ("markov:1", None),
            "predicted": ("blanket", data.predicted),
            "found": ("blanket", data.found),
        }[kind]
        if lengths is not None and setting.blanket != "as told":
            lengths = _WrongLengths(lengths, setting.blanket)
        return make_rows(
            data.places,
            data.members,
            data.counts,
            reach_m=data.reach_m,
            context=context,
            lengths=lengths,
            history_weights=setting.history_weights,
            max_rows=setting.max_rows,
        )


def first_stage_of(kind: RowsKind) -> RowsKind:
    """Return the rows that some were split from; themselves if they were not."""
    return _FIRST_STAGES.get(kind, kind)


@dataclass(frozen=True, eq=False)
class _WrongLengths:
    """Lengths of blankets made wrong."""

    lengths: Lengths
    how: Blanket

    def __call__(self, now: Indices, before: Indices) -> Ints:
        """Return the length for each pair of the place at t and the place at t − 1."""
        lengths = np.asarray(self.lengths(now, before), np.int64)
        if self.how == "shuffled":
            return np.random.default_rng(len(lengths)).permutation(lengths)
        off = {"too short": -1, "too long": 1}.get(self.how, 0)
        return np.clip(lengths + off, 1, LONGEST_PAST)
