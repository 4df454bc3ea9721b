"""Random bundles, sound and not, on awkward parts of the Earth: both verifiers must come to the same verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from geoblanket.errors import GuaranteeViolation, InputError
from geoblanket.mechanism import load_bundle
from tests.audit.driven_device import check_rule
from tests.audit.hostile import (
    ALL_DAY,
    INFINITE_ETA_MM,
    Forged,
    Weights,
    constant,
    listed_distances_mm,
    packed,
    true_distances_mm,
)
from tests.audit.second_verifier import (
    NEVER,
    ONE,
    Contents,
    History,
    Rule,
    as_stated,
    check,
    parse,
    violations_of,
)
from tests.mechanism.bundles import load_zones

CENTRES = [(411_500_000, -86_200_000), (899_999_900, 0), (0, 1_799_999_990), (0, -1_799_999_990), (600_000_000, 10)]
STEPS_E7 = [0, 1, 10, 40_000, 90_000, 5_000_000]


@st.composite
def places(draw: st.DrawFn) -> list[tuple[int, int]]:
    found = []
    for _ in range(draw(st.integers(2, 6))):
        lat, lon = draw(st.sampled_from(CENTRES[: draw(st.sampled_from([1, 1, 1, 5]))]))
        north, east = (draw(st.sampled_from(STEPS_E7)) * draw(st.sampled_from([-1, 1])) for _ in range(2))
        found.append((min(900_000_000, lat + north), (lon + east + 1_800_000_000) % 3_600_000_000 - 1_800_000_000))
    return found


@st.composite
def listed(draw: st.DrawFn, present: Sequence[int], place_count: int, past: int) -> list[History]:
    """Histories of a table: below each beginning either any place, or some."""
    found: list[History] = [(place,) for place in present]
    for _ in range(past):
        longer: list[History] = []
        for prefix in found:
            some = st.lists(st.integers(0, place_count - 1), min_size=1, max_size=3, unique=True)
            longer += [(*prefix, place) for place in draw(st.one_of(st.just([-1]), some))]
        found = longer
    return found


@st.composite
def tables(draw: st.DrawFn, zone: str, present: Sequence[int], city: list[tuple[int, int]]) -> Forged:
    past = draw(st.integers(0, 2))
    histories = draw(listed(present, len(city), past))
    count = draw(st.integers(min(2, len(histories)), len(histories)))
    rows = [*range(count), *(draw(st.integers(0, count - 1)) for _ in histories[count:])]
    return Forged(
        zone,
        ALL_DAY,
        histories,
        constant(count, 2),
        [present[0], present[-1]],
        rows=draw(st.permutations(rows)),
        past_weights=[draw(st.sampled_from([0, 250_000, 10**6, 3_700_000, NEVER])) for _ in range(past)],
        epsilon_micro=draw(st.sampled_from([100_000, 2_000_000, 10**9])),
        eta_mm=draw(st.sampled_from([10**6, INFINITE_ETA_MM, INFINITE_ETA_MM])),
    )


def tilted(count: int, apart_mm: dict[tuple[int, int], int], epsilon_micro: int, share: float) -> Weights:
    """Two outputs, the odds of which change by up to share·ε·d with the distance d from the first row."""
    rows = []
    for row in range(count):
        exponent = share * epsilon_micro * min(apart_mm[0, row], 10**12) / 1e12 if row else 0.0
        first = round(ONE / (1 + math.exp(min(exponent, 40.0))))
        rows.append([first, ONE - first])
    return rows


@st.composite
def files(draw: st.DrawFn) -> bytes:
    city = draw(places())
    inside = draw(st.permutations(range(len(city))))[: draw(st.integers(1, len(city)))]
    cut = draw(st.integers(0, len(inside) - 1))
    zones = {name: part for name, part in (("a", inside[cut:]), ("b", inside[:cut])) if part}
    forged = [draw(tables(zone, sorted(present), city)) for zone, present in zones.items()]
    made = []
    for number, table in enumerate(forged):
        true_mm = true_distances_mm(city, forged, number)
        stated = dict(true_mm)
        how = draw(st.sampled_from(["true", "true", "smaller", "larger", "of listed histories"]))
        if how == "of listed histories":
            contents = parse(packed(city, forged, clock=None))
            stated.update(
                listed_distances_mm(table.histories, table.history_rows, table.past_weights, contents.distances)
            )
        elif stated and how != "true":
            pair = draw(st.sampled_from(sorted(stated)))
            by = draw(st.sampled_from([2, 50, 10**6])) * (1 if how == "larger" else -1)
            stated[pair] = min(max(0, stated[pair] + by), NEVER)
        share = draw(st.sampled_from([0.5, 0.999, 1.0, 1.001, 3.0]))
        weights = tilted(len(table.weights), true_mm, table.epsilon_micro, share)
        made.append(replace(table, weights=weights, stated_mm=stated))
    return packed(city, made, clock=None)


def keeps_what_it_states(contents: Contents) -> bool:
    return not any(True for table in contents.tables for _ in violations_of(table, as_stated(table), slack_mm=0))


def every_listed_history_is_used(contents: Contents) -> bool:
    """Whether no listed place is hidden by another at the same coordinates; how far a hidden one is, is no one's."""
    return all(len(Rule(contents, table).reached()) == len(table.histories) for table in contents.tables)


def accepted(path: Path) -> bool:
    try:
        load_bundle(path)
    except (GuaranteeViolation, InputError):
        return False
    return True


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "a.bundle"


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=files())
def test_both_verifiers_agree(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    findings = check(data, slack_mm=0)
    taken = accepted(path)
    event(f"taken: {taken}")
    if taken:
        assert findings.holds, findings
    elif every_listed_history_is_used(contents := parse(data)):
        # A file that keeps its promise at the distances it states, none of them too large, is not refused.
        assert not (findings.holds and keeps_what_it_states(contents))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=files())
def test_both_read_the_same_rule(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    if not accepted(path):
        return
    check_rule(load_zones(path), parse(data), ALL_DAY)
