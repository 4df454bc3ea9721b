"""A real device, driven through histories, with the row that it draws from caught in the act."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism import ZoneBundle, sampling
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.release import Budget, Device
from geoblanket.release.rule import ReleaseRule
from tests.audit.second_verifier import Contents, History, Rule, parse

_START_S: Final = 1_719_792_000
_SLOT_S: Final = 30
_BUDGET: Final = Budget(1e9, 60.0)


class Draw(NamedTuple):
    """What a report was drawn from, and what came of it."""

    cumulative: bytes
    """The cumulative weights of the outputs."""
    column: int
    """The output that was drawn, by the test's own choice."""
    place: int
    """The place that was reported."""


class DrivenDevice:
    """A device of a bundle's file that tells which distribution each report was drawn from."""

    def __init__(self, path: Path) -> None:
        self.contents: Contents = parse(path.read_bytes())
        self._device = Device.open(path, ledger=None, budget=_BUDGET, policy=ANYTHING, replay=True)
        self._slot = 0

    @property
    def past(self) -> int:
        return max(len(table.past_weights) for table in self.contents.tables)

    def walk(self, places: Sequence[int]) -> list[Draw]:
        """Report places in slot after slot, after a gap."""
        self._slot += 1
        return [self._next(place) for place in places]

    def _next(self, place: int) -> Draw:
        self._slot += 1
        lat, lon = self.contents.places[place]
        caught: list[Ints] = []

        def catch(cumulative: Ints) -> int:
            caught.append(np.array(cumulative))
            return self._slot % len(cumulative)  # every output in its turn

        with mock.patch.object(sampling, "draw_cumulative", catch):
            report = self._device.report(lat / 1e7, lon / 1e7, _START_S + _SLOT_S * self._slot)
        assert not report.stored
        (cumulative,) = caught
        return Draw(cumulative.tobytes(), self._slot % len(cumulative), report.place)


def every_window(symbols: int, length: int) -> list[int]:
    """Return a walk in which each sequence of so many of the symbols occurs once: a de Bruijn sequence, unrolled."""
    walk: list[int] = []
    word = [0] * (symbols * length)

    def extend(position: int, period: int) -> None:
        if position > length:
            if length % period == 0:
                walk.extend(word[1 : period + 1])
            return
        word[position] = word[position - period]
        extend(position + 1, period)
        for symbol in range(word[position - period] + 1, symbols):
            word[position] = symbol
            extend(position + 1, position)

    extend(1, 1)
    return [*walk, *walk[: length - 1]]


def drawn_in_bulk(rule: ReleaseRule, histories: Indices, regime: str) -> list[bytes]:
    """Return the cumulative weights by which the rule of many vehicles draws for histories of one zone."""
    caught: list[bytes] = []

    def catch(weights: Ints, rows: Ints) -> Ints:
        caught.extend(weights[row].cumsum().tobytes() for row in rows.tolist())
        return np.zeros(len(rows), np.int64)

    with mock.patch.object(sampling, "draw_many", catch):
        rule.draw(histories, regime)
    return caught


def drawn_one_by_one(rule: ReleaseRule, histories: Sequence[History], regime: str) -> list[bytes]:
    """Return the cumulative weights by which the rule of one vehicle draws."""
    caught: list[bytes] = []

    def catch(cumulative: Ints) -> int:
        caught.append(cumulative.tobytes())
        return 0

    with mock.patch.object(sampling, "draw_cumulative", catch):
        for history in histories:
            rule.draw_one(history, regime)
    return caught


def check_rule(bundle: ZoneBundle, contents: Contents, regime: str) -> None:
    """Assert that devices, one vehicle or many, choose the rows that the second verifier says, for every history."""
    of_devices = ReleaseRule(bundle)
    tables = [table for table in contents.tables if table.regime == regime]
    rules = [Rule(contents, table) for table in tables]
    for table, rule in zip(tables, rules, strict=True):
        cumulative = [np.cumsum(row).tobytes() for row in table.weights]
        # Of a place that is as near to one zone as to another, floats decide for which it counts.
        histories = [history for history in rule.histories() if sum(history[0] in one.stand_ins for one in rules) == 1]
        many = drawn_in_bulk(of_devices, np.array(histories, np.int32), regime)
        each = drawn_one_by_one(of_devices, histories, regime)
        for history, in_bulk, alone in zip(histories, many, each, strict=True):
            allowed = {cumulative[row] for row in rule.rows_of(history)}
            assert in_bulk in allowed, history
            assert alone in allowed, history


def weights_of(drawn: bytes) -> list[int]:
    """Return the weights of a distribution that was caught."""
    cumulative: list[int] = np.frombuffer(drawn, np.int64).tolist()
    return [after - before for before, after in zip([0, *cumulative], cumulative, strict=False)]
