"""The promise for every history there is, by the very row that a device draws from.

A device is driven through all sequences of places of a small city, and all shorter ones after a gap. What it would draw
from is caught; any two histories of a zone are then compared in integers, as far apart as the second verifier says they
are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from geoblanket.release.rule import ReleaseRule
from tests.audit.cities import ALL_DAY, CITIES, CLOCK
from tests.audit.driven_device import Draw, DrivenDevice, drawn_in_bulk, every_window, weights_of
from tests.audit.second_verifier import (
    NEVER,
    Contents,
    History,
    Rule,
    Table,
    complete_distances,
    exceeds,
    factor,
    upper_exponential,
)
from tests.mechanism.bundles import load_zones

INFINITE = 2**60
"""Picometres: a million kilometres, more than any two histories of a small city are apart."""


@dataclass(frozen=True, eq=False, repr=False)
class Seen:
    """What a device drew from for each history."""

    path: Path
    contents: Contents
    past: int
    full: Mapping[History, Draw]
    """For all places at t, t − 1, ..., t − Γ."""
    short: Mapping[History, Draw]
    """After a gap: fewer places than Γ + 1."""

    def rule(self, table: Table) -> Rule:
        return Rule(self.contents, table)

    def tables(self, regime: str) -> list[Table]:
        return [table for table in self.contents.tables if table.regime == regime]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cities")


@cache
def seen_in(name: str, folder: Path) -> Seen:
    path = CITIES[name].save(folder / f"{len(list(folder.iterdir()))}.bundle")
    device = DrivenDevice(path)
    count, length = len(device.contents.places), device.past + 1
    walk = every_window(count, length)
    draws = device.walk(walk)
    full = {
        tuple(walk[end - length + 1 : end + 1][::-1]): draws[end] for end in range(length - 1, len(walk)) if length > 1
    }
    assert len(full) == (count**length if length > 1 else 0)
    short = {}
    for known in range(1, max(2, length)):
        for places in itertools.product(range(count), repeat=known):
            short[places[::-1]] = device.walk(places)[-1]
    return Seen(path, device.contents, device.past, full, short)


@pytest.fixture(params=CITIES)
def seen(request: pytest.FixtureRequest, folder: Path) -> Seen:
    return seen_in(request.param, folder)


def drawn(seen: Seen, regime: str, table: Table) -> dict[History, bytes]:
    """The distribution of each history of a zone, as long as the table looks back."""
    if regime == CLOCK.start:
        return {(place,): seen.short[place,].cumulative for place in seen.rule(table).stand_ins}
    present = seen.rule(table).stand_ins
    result: dict[History, bytes] = {}
    for history, draw in seen.full.items():
        if history[0] in present:
            # Older places than the table looks at change nothing.
            assert result.setdefault(history[: 1 + len(table.past_weights)], draw.cumulative) == draw.cumulative
    assert len(result) in {0, len(present) * len(seen.contents.places) ** len(table.past_weights)}
    return result


def smallest_distances(contents: Contents, table: Table, groups: list[list[History]]) -> dict[tuple[int, int], int]:
    """The smallest distance between a history of one group and a history of another, picometres, one by one."""
    distances = contents.distances
    count = range(len(contents.places))
    between = np.array([[distances.upper_um(one, other) for other in count] for one in count])
    scaled = [
        np.where(between > 0, INFINITE, 0) if weight == NEVER else between * weight
        for weight in (10**6, *table.past_weights)
    ]
    everything = np.array([history for group in groups for history in group])
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    found = {}
    for number, group in enumerate(groups):
        nearest = np.full(len(groups), INFINITE)
        for some in np.array_split(np.array(group), -(-len(group) // 256)):
            total = sum(
                part[np.ix_(column, other)] for part, column, other in zip(scaled, some.T, everything.T, strict=True)
            )
            nearest = np.minimum(nearest, np.minimum.reduceat(np.asarray(total).min(axis=0), starts))
        for other, apart in enumerate(nearest.tolist()):
            if apart < INFINITE:
                found[number, other] = apart
    return found


@pytest.mark.parametrize("regime", [ALL_DAY, CLOCK.start])
def test_no_two_histories_are_told_apart_by_more_than_promised(seen: Seen, regime: str) -> None:
    broken: list[tuple[float, str, History, History]] = []
    pairs = 0
    for table in seen.tables(regime):
        groups: dict[bytes, list[History]] = {}
        for history, cumulative in drawn(seen, regime, table).items():
            groups.setdefault(cumulative, []).append(history)
        if not groups:
            assert regime == ALL_DAY
            assert seen.past == 0
            continue
        weights = [weights_of(cumulative) for cumulative in groups]
        assert {sum(row) for row in weights} == {2**62}
        histories = list(groups.values())
        for (one, other), apart in smallest_distances(seen.contents, table, histories).items():
            if one == other or apart > table.eta_mm * 10**9:
                continue
            pairs += 1
            bound = upper_exponential(table.epsilon_micro, apart)
            outputs = list(zip(weights[one], weights[other], strict=True))
            if any(exceeds(*output, bound) for output in outputs):
                worst = max(factor(*output, epsilon_micro=table.epsilon_micro, distance_pm=apart) for output in outputs)
                broken.append((worst, table.name, histories[one][0], histories[other][0]))
    assert not broken, f"{len(broken)} of {pairs} pairs of rows; the worst: {max(broken)}"


def test_what_is_reported_is_the_output_that_was_drawn(seen: Seen) -> None:
    starts = {history: draw for history, draw in seen.short.items() if len(history) == 1}
    for regime, draws in ((ALL_DAY, seen.full), (CLOCK.start, starts)):
        for table in seen.tables(regime):
            present = seen.rule(table).stand_ins
            reported = [draw for history, draw in draws.items() if history[0] in present]
            assert reported or not seen.past
            assert all(table.output_places[draw.column] == draw.place for draw in reported)


def test_a_history_uses_a_row_that_the_second_verifier_allows(seen: Seen) -> None:
    for regime in (ALL_DAY, CLOCK.start):
        for table in seen.tables(regime):
            rule = seen.rule(table)
            rows: dict[bytes, set[int]] = {}
            for row, weights in enumerate(table.weights):
                rows.setdefault(np.cumsum(weights).tobytes(), set()).add(row)
            every = list(drawn(seen, regime, table).items())
            # A linear scan takes its time: every seventh of many.
            for history, cumulative in every[:: 7 if len(every) > 2000 else 1]:
                assert rows[cumulative] & rule.rows_of(history)


def test_a_short_history_counts_as_one_whose_first_place_was_always_there(seen: Seen) -> None:
    for history, draw in seen.short.items():
        if len(history) > 1:
            filled = history + history[-1:] * (seen.past + 1 - len(history))
            assert draw.cumulative == seen.full[filled].cumulative


def test_a_present_place_in_no_zone_counts_as_the_nearest_in_one(seen: Seen) -> None:
    distances = seen.contents.distances
    inside = {history[0] for table in seen.tables(ALL_DAY) for history in table.histories}
    outside = set(range(len(seen.contents.places))) - inside
    assert outside
    for place in outside:
        nearest = sorted(inside, key=lambda other: distances.upper_um(place, other))
        # Equally near ones are left to the device, which takes the first.
        apart = [distances.upper_um(place, other) for other in nearest]
        candidates = [other for other, far in zip(nearest, apart, strict=True) if far < apart[0] + 10**6]
        for earlier in itertools.product(range(len(seen.contents.places)), repeat=seen.past):
            draws = seen.full if seen.past else seen.short
            expected = {draws[candidate, *earlier].cumulative for candidate in candidates}
            assert draws[place, *earlier].cumulative in expected


def test_many_vehicles_at_once_use_the_same_rows(seen: Seen) -> None:
    if not seen.past:
        pytest.skip("there is no history")
    rule = ReleaseRule(load_zones(seen.path))
    for table in seen.tables(ALL_DAY):
        present = seen.rule(table).stand_ins
        histories = [history for history in seen.full if history[0] in present]
        in_bulk = drawn_in_bulk(rule, np.array(histories, np.int32), ALL_DAY)
        assert in_bulk == [seen.full[history].cumulative for history in histories]


def test_rows_are_stated_to_be_no_further_apart_than_any_two_of_their_histories(seen: Seen) -> None:
    for table in seen.contents.tables:
        for (row, other), (apart, _, _) in complete_distances(seen.contents, table).items():
            assert table.stated_mm[row][other] <= apart / 1e9


def test_rows_are_stated_to_be_no_nearer_than_they_are(seen: Seen) -> None:
    """What is nearer than it need be is safe, and costs quality for nothing."""
    for table in seen.contents.tables:
        nearest = complete_distances(seen.contents, table)
        # Whole millimetres at each lag, rounded down, and its product with the weight once more.
        rounded = 1.01 + sum(1.01 * weight / 1e6 + 1 for weight in table.past_weights if weight != NEVER)
        for row, other in itertools.combinations(range(len(table.weights)), 2):
            stated = table.stated_mm[row][other]
            assert stated == NEVER if (row, other) not in nearest else stated >= nearest[row, other][0] / 1e9 - rounded
