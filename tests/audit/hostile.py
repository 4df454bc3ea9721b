"""Makers of hostile bundles: every hash is right, every stated distance is that of the listed histories.

The bytes are written here, without geoblanket, whose own writer would refuse some of them. Each maker returns the
bytes of a file. Nothing is wrong with their form: what is wrong is what a device would do with them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.audit.second_verifier import NEVER, ONE, Distances, History, complete_distances, domain_of, parse

INFINITE_ETA_MM: Final = NEVER - 1
ALL_DAY: Final = "all day"
START: Final = "start"
CLOCK: Final[Mapping[str, Any]] = {
    "interval_ms": 30_000,
    "time_zone": "UTC",
    "regimes": [[ALL_DAY, list(range(24))]],
    "start": START,
}
DISCLOSED: Final = "the zone, the regime, and when a report was made"

CITY: Final = [(411_500_000 + 30_000 * (i // 3), -86_200_000 + 40_000 * (i % 3) + 3_000 * i) for i in range(6)]
"""Six places, some 350 m from one to the next."""
FAR: Final = [
    (515_000_000, 0), (600_000_000, 300_000_000), (350_000_000, 1_390_000_000),
    (-338_000_000, 1_510_000_000), (-345_000_000, -584_000_000), (405_000_000, -740_000_000),
]  # fmt: skip
"""Six places, thousands of kilometres apart."""

EPSILON_MICRO: Final = 100_000
"""0.1 per kilometre."""

Place = tuple[int, int]
Weights = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Forged:
    """One mechanism of a hostile file."""

    zone: str
    regime: str
    histories: Sequence[History]
    weights: Weights
    output_places: Sequence[int]
    rows: Sequence[int] | None = None
    """By default, each history has a row of its own."""
    past_weights: Sequence[int] = ()
    epsilon_micro: int = EPSILON_MICRO
    eta_mm: int = INFINITE_ETA_MM
    stated_mm: Mapping[tuple[int, int], int] | None = None
    """By default, the smallest distances between listed histories, rounded down; else these, and 0 for the others."""

    @property
    def history_rows(self) -> Sequence[int]:
        return range(len(self.histories)) if self.rows is None else self.rows


def packed(
    places: Sequence[Place],
    mechanisms: Sequence[Forged],
    *,
    clock: Mapping[str, Any] | None = CLOCK,
    disclosed: str = DISCLOSED,
    snapping_radius_mm: int = 50_000,
    version: int = 1,
) -> bytes:
    """Return the bytes of a bundle, all of whose hashes are right."""
    ordered = sorted(mechanisms, key=lambda one: (one.zone, one.regime))
    distances = [_triangle(one, Distances(places)) for one in ordered]
    narrow = all(value < 2**32 - 1 or value == NEVER for values in distances for value in values)
    arrays: dict[str, tuple[str, str, list[int], list[int]]] = {
        name: (dtype, code, [len(values)], values)
        for name, dtype, code, values in (
            ("distances_mm", "<u4" if narrow else "<i8", "I" if narrow else "q",
             [min(value, 2**32 - 1) if narrow else value for values in distances for value in values]),
            ("weights", "<i8", "q", [weight for one in ordered for row in one.weights for weight in row]),
            ("outputs", "<i4", "i", [column for one in ordered for column in range(len(one.output_places))]),
            ("histories", "<i4", "i", [place for one in ordered for history in one.histories for place in history]),
            ("history_rows", "<i4", "i", [row for one in ordered for row in one.history_rows]),
            ("output_places", "<i4", "i", [place for one in ordered for place in one.output_places]),
        )
    }  # fmt: skip
    arrays["places_e7"] = ("<i4", "i", [len(places), 2], [value for place in places for value in place])
    octets = {name: struct.pack(f"<{len(values)}{code}", *values) for name, (_, code, _, values) in arrays.items()}
    entries = {
        name: {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(octets[name]).hexdigest()}
        for name, (dtype, _, shape, _) in arrays.items()
    }
    fields = {
        "version": version,
        "disclosed": disclosed,
        "snapping_radius_mm": snapping_radius_mm,
        "clock": clock,
        "mechanisms": [_described(one) for one in ordered],
    }
    fields["domain"] = domain_of(fields, entries)
    header = json.dumps({"fields": fields, "arrays": entries}, sort_keys=True).encode()
    data = b"GBBUNDL2" + struct.pack("<Q", len(header)) + hashlib.sha256(header).digest() + header
    for name in sorted(octets):
        data += bytes(-len(data) % 64) + octets[name]
    return data


def _described(one: Forged) -> dict[str, Any]:
    return {
        "zone": one.zone,
        "regime": one.regime,
        "rows": len(one.weights),
        "outputs": len(one.output_places),
        "columns": len(one.output_places),
        "epsilon_micro": one.epsilon_micro,
        "eta_mm": one.eta_mm,
        "history_weights_micro": list(one.past_weights),
        "histories": len(one.histories),
    }


def _triangle(one: Forged, distances: Distances) -> list[int]:
    pairs = itertools.combinations(range(len(one.weights)), 2)
    if one.stated_mm is not None:
        return [one.stated_mm.get(pair, 0) for pair in pairs]
    listed = listed_distances_mm(one.histories, one.history_rows, one.past_weights, distances)
    return [listed.get(pair, NEVER) for pair in pairs]


def listed_distances_mm(
    histories: Sequence[History], rows: Sequence[int], past_weights: Sequence[int], distances: Distances
) -> dict[tuple[int, int], int]:
    """Return the smallest distance between the *listed* histories of two rows, millimetres rounded down.

    That is what was once taken for the distance of rows: it forgets the histories that no one listed.
    """
    found: dict[tuple[int, int], int] = {}
    for (history, row), (other, other_row) in itertools.permutations(zip(histories, rows, strict=True), 2):
        apart = distances.of_histories_pm(history, other, past_weights)
        if row < other_row and apart is not None:
            # Distances are rounded up by some micrometres; what is stated must not be.
            below = max(0, (apart - 10**7 * len(history)) // 10**9)
            found[row, other_row] = min(found.get((row, other_row), NEVER), below)
    return found


def true_distances_mm(places: Sequence[Place], mechanisms: Sequence[Forged], number: int) -> dict[tuple[int, int], int]:
    """Return the smallest distance between *all* histories of two rows, millimetres rounded down; `NEVER` for none."""
    mechanism = mechanisms[number]
    contents = parse(packed(places, mechanisms, clock=None))
    found = complete_distances(contents, contents.table(mechanism.zone, mechanism.regime))
    below = 10**7 * (1 + len(mechanism.past_weights))
    return {
        pair: max(0, (found[pair][0] - below) // 10**9) if pair in found else NEVER
        for pair in itertools.combinations(range(len(mechanism.weights)), 2)
    }


# ----------------------------------------------------------------------------------------------------------- weights


def the_truth(count: int, outputs: int | None = None) -> list[list[int]]:
    """Rows that report their own place but for a few times in 2^62, so that no ratio is infinite."""
    outputs = count if outputs is None else outputs
    return [[ONE - outputs + 1 if column == row % outputs else 1 for column in range(outputs)] for row in range(count)]


def constant(count: int, outputs: int) -> list[list[int]]:
    """Rows that are all the same, and tell nothing."""
    row = [ONE // outputs] * outputs
    row[0] += ONE - sum(row)
    return [list(row) for _ in range(count)]


def gentle(places: Sequence[Place], present: Sequence[int], outputs: Sequence[int], *, share: float = 1 / 3) -> Weights:
    """Rows that keep e^(2·share·ε·d) between present places, whatever the past: e^(-share·ε·d) times a constant."""
    distances = Distances(places)
    rows = []
    for place in present:
        parts = [math.exp(-share * EPSILON_MICRO * distances.upper_um(place, output) / 1e15) for output in outputs]
        row = [int(part / sum(parts) * ONE) for part in parts]
        row[row.index(max(row))] += ONE - sum(row)
        rows.append(row)
    return rows


def honest(
    zone: str = "centre", regime: str = START, places: Sequence[Place] = CITY, present: Sequence[int] = range(6)
) -> Forged:
    """A table without a past, and with nothing wrong in it."""
    rows = gentle(places, present, present)
    return Forged(zone, regime, [(place,) for place in present], rows, list(present))


# ------------------------------------------------------------------------------------- the distance of rows, mistaken


def decoys(order: int = 1, *, lags: Sequence[int] = (1,), far: Sequence[Place] = FAR) -> bytes:
    """A device reports the truth: each present place lists one past, a decoy that is far from all other decoys.

    So rows are said to be thousands of kilometres apart, and may differ as they like. But any past whatever counts as
    the one that is listed, so that the true distance of two rows is that of their present places.

    Parameters
    ----------
    order
        How many earlier places there are.
    lags
        The lags of the decoy; at others any place will do.
    """
    at = range(1, 1 + order)
    listed: list[History] = [(place, *(6 + place if lag in lags else -1 for lag in at)) for place in range(6)]
    parts = [
        Forged("centre", regime, listed, the_truth(6), range(6), past_weights=[10**6 // lag for lag in at])
        for regime in (START, ALL_DAY)
    ]
    return packed([*CITY, *far], parts)


POLES: Final = [(900_000_000, 0), (-900_000_000, 0), (0, 1_800_000_000), (0, 0), (0, 900_000_000), (0, -900_000_000)]
ANTIMERIDIAN: Final = [
    (0, 1_800_000_000), (100_000_000, -1_800_000_000), (200_000_000, 1_799_999_999),
    (-100_000_000, -1_799_999_999), (-200_000_000, 1_800_000_000), (300_000_000, -1_800_000_000),
]  # fmt: skip
ANTIPODES: Final = [
    (-411_500_000, 1_713_800_000), (411_500_000, 1_713_800_000), (-411_500_000, -86_200_000),
    (0, 0), (0, 1_800_000_000), (900_000_000, 17),
]  # fmt: skip


def with_past(
    histories: Sequence[History],
    weights: Weights,
    *,
    places: Sequence[Place] = (*CITY, *FAR),
    past_weights: Sequence[int] = (10**6,),
    **options: Any,
) -> bytes:
    """A file of one zone, whose table with a past is the one given; that of the start is honest."""
    table = Forged("centre", ALL_DAY, histories, weights, range(6), past_weights=past_weights, **options)
    return packed(places, [honest(), table])


def known_pasts() -> bytes:
    """Each present place lists a past of its own, and pasts are known: no two rows are compared, says the list."""
    identity = [[ONE if column == row else 0 for column in range(6)] for row in range(6)]
    return with_past([(place, place) for place in range(6)], identity, places=CITY, past_weights=[NEVER])


def own_past(order: int = 1) -> bytes:
    """Vehicles that stand still, says the list, differ by their past as well: 1 + Γ times as far as by the present."""
    listed: list[History] = [(place,) * (1 + order) for place in range(6)]
    rows = gentle(CITY, range(6), range(6), share=(1 + order) / 2 * 0.999)
    return with_past(listed, rows, places=CITY, past_weights=[10**6] * order)


def unlisted_on_both_sides() -> bytes:
    """Two places 22 mm apart, one on each side of the middle between the two pasts that a place lists."""
    places = [*CITY, (0, 0), (200_000_000, 0), (99_999_999, 0), (100_000_001, 0)]
    listed = [(place, 6 + side) for place in range(6) for side in range(2)]
    rows = gentle([*CITY, *FAR], range(6), range(6))
    tilted = [[ONE - 5, 1, 1, 1, 1, 1] if side else row for row in rows for side in range(2)]
    return with_past(listed, tilted, places=places)


def unlisted_in_the_middle(*, stated_rightly: bool) -> bytes:
    """A place as far from one listed past as from the other: all machines must agree that it counts as the first.

    Then the pasts of two rows are 111 km apart, from the middle to the second; else it would be nothing.
    """
    places = [*CITY, (0, 0), (20_000_000, 0), (10_000_000, 0)]
    rows = gentle(CITY, range(6), range(6))
    other = [[weight // 8 for weight in row] for row in rows]
    for row in other:
        row[0] += ONE - sum(row)
    listed: list[History] = [(place, 6 + side) for place in range(6) for side in range(2)]
    both = [row for pair in zip(rows, other, strict=True) for row in pair]
    table = Forged("centre", ALL_DAY, listed, both, range(6), past_weights=[10**6])
    if stated_rightly:
        table = replace(table, stated_mm=true_distances_mm(places, [table], 0))
    return packed(places, [honest(), table])


def ignored_past_with_decoys() -> bytes:
    """Decoys at a lag that counts nothing: the list itself says how near the rows are."""
    return with_past([(place, 6 + place) for place in range(6)], the_truth(6), past_weights=[0])


def twins_told_apart() -> bytes:
    """Two numbers for one place, and another row for each."""
    twins = [*CITY, *FAR, *CITY]
    listed = [(place, past) for place in range(6) for past in (0, 12)]
    rows = gentle(CITY, range(6), range(6))
    return with_past(listed, [row for place in range(6) for row in (rows[place], rows[(place + 1) % 6])], places=twins)


# ------------------------------------------------------------------------------------------- rules that are not rules


def listed_twice() -> bytes:
    """A history with two rows, which the file says to be far apart by their other histories."""
    listed = [(place, 6 + place) for place in range(6)]
    listed.append(listed[0])
    rows = gentle(CITY, range(6), range(6))
    stated = dict.fromkeys(itertools.combinations(range(7), 2), 0)
    return with_past(listed, [*constant(6, 6), rows[0]], stated_mm=stated)


def shifted_by_a_repetition() -> bytes:
    """A history that is listed twice, with the same row, lest a reader that counts entries be out by one after it.

    Place 1 is far from all others. A device that is out by one gives its row to place 2, and that of 2 to 3, near by.
    """
    places = [CITY[0], FAR[2], *CITY[1:5]]
    listed: list[History] = [(0,), (0,), (1,), (2,), (3,), (4,), (5,)]
    rows = constant(6, 6)
    rows[1] = [1, ONE - 5, 1, 1, 1, 1]
    start = Forged("centre", START, listed[1:], constant(6, 6), range(6))
    return packed(places, [start, Forged("centre", ALL_DAY, listed, rows, range(6), rows=[0, 0, 1, 2, 3, 4, 5])])


def any_beside_decoys(*, truth: bool) -> bytes:
    """Any past will do, says one entry, and another lists a decoy; what they tell apart is everything, or nothing."""
    listed = [(place, -1) for place in range(6)] + [(place, 6 + place) for place in range(6)]
    return with_past(listed, the_truth(12, 6)) if truth else with_past(listed, constant(12, 6), stated_mm={})


def any_at_present() -> bytes:
    """A table whose present place may be any."""
    return with_past([(-1, 6), *((place, 6 + place) for place in range(1, 6))], constant(6, 6))


def present_place_that_does_not_exist() -> bytes:
    listed: list[History] = [(place, 6 + place) for place in range(5)]
    return with_past([*listed, (17, 6)], constant(6, 6), stated_mm={})


def past_place_that_does_not_exist() -> bytes:
    listed: list[History] = [(place, 6 + place) for place in range(5)]
    return with_past([*listed, (5, -2)], constant(6, 6), stated_mm={})


def row_that_no_history_has() -> bytes:
    return with_past([(place, -1) for place in range(6)], constant(7, 6), rows=[0, 1, 2, 3, 4, 4], stated_mm={})


def zones_that_share_places() -> bytes:
    """Two zones with the same places: which one is used could tell the place."""
    zones = [("east", range(3)), ("west", range(2, 6))]
    return packed(
        CITY, [honest(zone, regime, present=present) for zone, present in zones for regime in (START, ALL_DAY)]
    )


# --------------------------------------------------------------------------------------------------------- as it should


def nothing_wrong() -> bytes:
    return packed(CITY, [honest(), honest(regime=ALL_DAY)])


def zones_that_change_with_the_regime() -> bytes:
    """A zone has other places by day than at the start. Both are disclosed, and within them the promise holds."""
    first, last = range(3), range(3, 6)
    parts = [("east", START, first), ("east", ALL_DAY, last), ("west", START, last), ("west", ALL_DAY, first)]
    return packed(CITY, [honest(zone, regime, present=present) for zone, regime, present in parts])


def nearer_than_they_are() -> bytes:
    """Stated distances that are half of what they are."""
    table = honest(regime=ALL_DAY)
    halves = listed_distances_mm(table.histories, table.history_rows, (), Distances(CITY))
    return packed(
        CITY,
        [
            honest(),
            Forged(
                "centre", ALL_DAY, table.histories, gentle(CITY, range(6), range(6), share=0.24), range(6),
                stated_mm={pair: apart // 2 for pair, apart in halves.items()},
            ),
        ],
    )  # fmt: skip


def twins_alike() -> bytes:
    """Two numbers for one place, with the same row."""
    twins = [*CITY, *FAR, *CITY]
    listed = [(place, past) for place in range(6) for past in (0, 12)]
    rows = gentle(CITY, range(6), range(6))
    return with_past(listed, [row for row in rows for _ in range(2)], places=twins)


def millimetres_apart() -> bytes:
    """Places two millimetres apart, at 85 degrees north: their distances are whole millimetres, rounded down."""
    places = [(850_000_000, 2 * number) for number in range(6)]
    rows = gentle(places, range(6), range(6), share=0.2)
    tables = [Forged("centre", regime, [(place,) for place in range(6)], rows, range(6)) for regime in (START, ALL_DAY)]
    return packed(places, tables)


# -------------------------------------------------------------------------------------- promises that are worth nothing


def one_place_a_zone() -> bytes:
    """The zone is disclosed by design, and is the place."""
    return packed(
        CITY, [honest(f"zone {place}", regime, present=[place]) for place in range(6) for regime in (START, ALL_DAY)]
    )


def promise_without_reach() -> bytes:
    """η = 0: no two places are compared."""
    return _untold(eta_mm=0)


def promise_at_no_cost() -> bytes:
    """ε = 0 and η = 0: the truth, as often as one likes, as nothing is ever charged."""
    return _untold(eta_mm=0, epsilon_micro=0)


def nothing_for_nothing() -> bytes:
    """ε = 0 in earnest: all rows are the same."""
    parts = [
        Forged("centre", regime, [(place,) for place in range(6)], constant(6, 6), range(6), epsilon_micro=0)
        for regime in (START, ALL_DAY)
    ]
    return packed(CITY, parts)


def _untold(**promise: Any) -> bytes:
    parts = [
        Forged("centre", regime, [(place,) for place in range(6)], the_truth(6), range(6), **promise)
        for regime in (START, ALL_DAY)
    ]
    return packed(CITY, parts)


def own_words() -> bytes:
    """What is disclosed, in the author's own words."""
    return packed(CITY, [honest(), honest(regime=ALL_DAY)], disclosed="nothing is disclosed")


def no_snapping() -> bytes:
    """Coordinates are said to be the places themselves."""
    return packed(CITY, [honest(), honest(regime=ALL_DAY)], snapping_radius_mm=0)


BREACHES: Final[Mapping[str, Callable[[], bytes]]] = {
    "decoys": decoys,
    "decoys, order 2": lambda: decoys(2),
    "decoys at t - 2": lambda: decoys(2, lags=[2]),
    "decoys at t - 1 and t - 2": lambda: decoys(2, lags=[1, 2]),
    "decoys at t - 3": lambda: decoys(3, lags=[3]),
    "decoys at the poles": lambda: decoys(far=POLES),
    "decoys on the antimeridian": lambda: decoys(far=ANTIMERIDIAN),
    "decoys at antipodes": lambda: decoys(far=ANTIPODES),
    "known pasts": known_pasts,
    "own past": own_past,
    "own past, order 3": lambda: own_past(3),
    "unlisted on both sides": unlisted_on_both_sides,
    "ignored past with decoys": ignored_past_with_decoys,
}
"""The promise is broken for some histories."""

NO_RULES: Final[Mapping[str, Callable[[], bytes]]] = {
    "listed twice": listed_twice,
    "shifted by a repetition": shifted_by_a_repetition,
    "any at present": any_at_present,
    "any beside decoys": lambda: any_beside_decoys(truth=False),
    "any beside decoys, the truth": lambda: any_beside_decoys(truth=True),
    "present place that does not exist": present_place_that_does_not_exist,
    "past place that does not exist": past_place_that_does_not_exist,
    "row that no history has": row_that_no_history_has,
}
"""The table does not say which row a history uses, or says what cannot be."""

OPEN: Final[Mapping[str, Callable[[], bytes]]] = {
    "unlisted in the middle": lambda: unlisted_in_the_middle(stated_rightly=False),
    "twins told apart": twins_told_apart,
}
"""The promise holds if all machines agree which of two equally near places is the nearest; else it does not."""

SOUND: Final[Mapping[str, Callable[[], bytes]]] = {
    "nothing wrong": nothing_wrong,
    "zones that change with the regime": zones_that_change_with_the_regime,
    "nearer than they are": nearer_than_they_are,
    "twins alike": twins_alike,
    "millimetres apart": millimetres_apart,
    "unlisted in the middle, stated rightly": lambda: unlisted_in_the_middle(stated_rightly=True),
}
"""Odd, but the promise holds."""

WORTHLESS: Final[Mapping[str, Callable[[], bytes]]] = {
    "one place a zone": one_place_a_zone,
    "promise without reach": promise_without_reach,
    "promise at no cost": promise_at_no_cost,
    "nothing for nothing": nothing_for_nothing,
    "own words": own_words,
}
"""The promise that the file states holds, and is not one that a device should release anything by."""
