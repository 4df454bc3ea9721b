"""Rows: above all, that no two histories are nearer to each other than their rows are said to be."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._geodesy import haversine_m
from geoblanket.build.row_tree import FixedLengths, Lengths, reach_radius_m
from geoblanket.build.rows import Aim, Context, ZoneRows, make_problem, make_rows
from geoblanket.errors import ParameterError
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism import BundledMechanism, optimise, save_bundle
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.roads.places import Places
from tests.build.worlds import counted, grid, no_steps, places_at, straight_on
from tests.mechanism.bundles import load_zones

TOWN = grid(5, 4)
ZONE = np.array([5, 6, 7, 8, 10, 11, 12, 13], np.int32)
COUNTS = counted(straight_on(TOWN, 4000))
CONTEXTS = ("none", "order:1", "order:2", "blanket", "full")


def lengths(now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Blankets of 1, 2 or 3, whatever the places."""
    return np.asarray(1 + (now + before) % 3)


def told(context: str) -> str | Lengths:
    """The context, with these lengths for blankets."""
    return lengths if context == "blanket" else context


def every_history(places: Places, zone: np.ndarray, past: int) -> np.ndarray:
    """Every history that the rule can be asked about: any place of the zone now, any place of the town before."""
    axes = np.meshgrid(zone, *[np.arange(len(places))] * past, indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


def apart_mm(places: Places, one: np.ndarray, other: np.ndarray, weights: tuple[float, ...]) -> np.ndarray:
    """d(x_t, x'_t) + Σ w d(x_{t-τ}, x'_{t-τ}) in millimetres, lag by lag; histories broadcast."""
    lat, lon = places.coordinates_e7.T / 1e7
    between = 1000 * haversine_m(lat[:, None], lon[:, None], lat, lon)
    total = np.zeros(np.broadcast_shapes(one.shape, other.shape)[:-1])
    for lag, weight in enumerate((1.0, *weights)):
        apart = between[one[..., lag], other[..., lag]]
        total += np.where(apart > 0, np.inf, 0.0) if weight == math.inf else apart * weight
    return total


@st.composite
def zones(draw: st.DrawFn) -> tuple[Places, np.ndarray, HistoryCounts, dict[str, object]]:
    count = draw(st.integers(2, 9))
    metres = st.integers(0, 1500)
    x, y = (draw(st.lists(metres, min_size=count, max_size=count)) for _ in range(2))
    places = places_at(np.array(x, float), np.array(y, float))
    zone = draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    steps = straight_on(places, 60, past=3, seed=draw(st.integers(0, 99))) if count >= 5 else None
    context = draw(st.sampled_from(["none", "order:1", "order:2", "order:3", "blanket"]))
    options: dict[str, object] = {
        "context": told(context),
        "reach_m": float(draw(st.integers(0, 1500))),
        "history_weights": tuple(draw(st.sampled_from([0.0, 0.25, 1.0, 3.7, math.inf])) for _ in range(3)),
        "max_rows": draw(st.integers(1, 60)),
    }
    return places, np.array(zone, np.int32), no_steps(3) if steps is None else counted(steps), options


@settings(max_examples=80)
@given(made=zones(), seed=st.integers(0, 2**32 - 1))
def test_rows_are_never_further_apart_than_any_two_histories(
    made: tuple[Places, np.ndarray, HistoryCounts, dict[str, object]], seed: int
) -> None:
    places, zone, counts, options = made
    rows = make_rows(places, zone, counts, **options)  # type: ignore[arg-type]
    histories = every_history(places, rows.zone, len(rows.history_weights))
    row = rows.row_of(histories)
    one, other = np.random.default_rng(seed).integers(0, len(histories), (2, 3000))
    apart = apart_mm(places, histories[one], histories[other], rows.history_weights)
    stated = np.where(rows.distance_mm == NEVER_MM, np.inf, rows.distance_mm)[row[one], row[other]]
    assert (stated <= apart).all()


@pytest.mark.parametrize("context", ["order:1", "order:2", "blanket"])
@pytest.mark.parametrize("weights", [(1.0, 0.5), (0.3, 2.0), (math.inf, 1.0)])
def test_distances_are_the_smallest_between_all_histories(context: str, weights: tuple[float, ...]) -> None:
    zone = np.array([6, 7, 11], np.int32)
    rows = make_rows(TOWN, zone, COUNTS, reach_m=500.0, context=told(context), history_weights=weights, max_rows=14)
    histories = every_history(TOWN, zone, len(rows.history_weights))
    row = rows.row_of(histories)
    expected = np.full((len(rows), len(rows)), np.inf)
    for history, of in zip(histories, row.tolist(), strict=True):
        np.minimum.at(expected[of], row, apart_mm(TOWN, history, histories, rows.history_weights))
    never = np.isinf(expected)
    assert ((rows.distance_mm == NEVER_MM) == never).all()
    assert (np.abs(rows.distance_mm[~never] - np.floor(expected[~never])) <= 1).all()


@pytest.mark.parametrize("context", CONTEXTS)
def test_rows_are_the_histories_that_they_are_called_after(context: str) -> None:
    zone = ZONE[:3]
    rows = make_rows(TOWN, zone, COUNTS, reach_m=500.0, context=told(context), max_rows=40)
    past = len(rows.history_weights)
    assert past == {"none": 0, "order:1": 1, "order:2": 2, "blanket": 2, "full": 2}[context]
    assert len({tuple(history) for history in rows.histories.tolist()}) == len(rows.histories) == len(rows)
    assert set(rows.row_of(every_history(TOWN, zone, past)).tolist()) == set(range(len(rows)))
    known = (rows.histories >= 0).all(axis=1)
    assert np.array_equal(rows.row_of(rows.histories[known]), np.flatnonzero(known))
    if context == "full":
        near = haversine_m(TOWN.lat[:, None], TOWN.lon[:, None], TOWN.lat, TOWN.lon) <= 500.0
        assert len(rows) == np.linalg.matrix_power(near.astype(int), past)[zone].sum()
    else:
        assert len(rows) <= 40


@pytest.mark.parametrize("context", CONTEXTS)
def test_distributions_and_prior_sum_to_1(context: str) -> None:
    rows = make_rows(TOWN, ZONE, COUNTS, reach_m=500.0, context=told(context), max_rows=60)
    np.testing.assert_allclose(rows.next_place.sum(axis=1), 1.0)
    assert rows.next_place.min() >= 0
    assert rows.prior.sum() == pytest.approx(1.0)
    assert (rows.prior > 0).all()


def test_the_prior_and_where_rows_lead_are_those_of_the_counts() -> None:
    rows = make_rows(TOWN, ZONE, COUNTS, reach_m=2000.0, context="order:1", max_rows=50)
    row = rows.row_of(COUNTS.histories[np.isin(COUNTS.histories[:, 0], ZONE)])
    inside = COUNTS.where(np.isin(COUNTS.histories[:, 0], ZONE))
    seen = np.bincount(row, inside.count, len(rows))
    np.testing.assert_allclose(rows.prior, seen / seen.sum(), atol=1e-3)
    frequent = int(seen.argmax())
    of_row = inside.where(row == frequent)
    observed = np.bincount(of_row.next_place, of_row.count, len(TOWN)) / of_row.count.sum()
    np.testing.assert_allclose(rows.next_place[[frequent]].toarray()[0], observed, atol=0.05)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_bundle_of_all_zones_passes_its_own_check(context: str, tmp_path: Path) -> None:
    town = grid(3, 3)
    counts = counted(straight_on(town, 2000))
    parts = []
    for name, zone in (("0", [0, 1, 3, 4]), ("1", [2, 5, 6, 7, 8])):
        rows = make_rows(town, zone, counts, reach_m=450.0, context=told(context), max_rows=30)
        problem = make_problem(rows, StraightLine(town), epsilon=2.0, eta_km=5.0)
        assert np.array_equal(problem.distance_mm, rows.distance_mm)
        parts.append(
            BundledMechanism.of(
                optimise(problem, gap=0.05).mechanism,
                zone=name,
                regime="all day",
                history_weights=rows.history_weights,
                histories=rows.histories,
                output_places=rows.zone,
            )
        )
    save_bundle(tmp_path / "b", parts, version=1, places_e7=rows.places_e7)
    loaded = load_zones(tmp_path / "b").get("1", "all day")
    assert np.array_equal(loaded.mechanism.distance_mm, rows.distance_mm)


def solved(rows: ZoneRows, gap: float = 0.002) -> tuple[float, float]:
    result = optimise(make_problem(rows, StraightLine(TOWN), epsilon=4.0), gap=gap)
    assert result.gap <= gap
    return result.lower_bound, result.loss


def test_more_context_loses_less() -> None:
    zone = ZONE[:4]
    found = {
        context: solved(
            make_rows(
                TOWN,
                zone,
                COUNTS,
                reach_m=450.0,
                context=FixedLengths(2) if context == "blanket" else context,
                max_rows=120,
            )
        )
        for context in ("none", "order:1", "blanket", "full")
    }
    order = ["full", "blanket", "order:1", "none"]
    for less, more in itertools.pairwise(order):
        assert found[less][0] <= found[more][1] * 1.005
    assert found["blanket"][1] < 0.98 * found["none"][0]


def test_a_past_that_counts_nothing_is_no_context() -> None:
    none = solved(make_rows(TOWN, ZONE, COUNTS, reach_m=450.0, context="none"))
    weightless = make_rows(TOWN, ZONE, COUNTS, reach_m=450.0, context="order:1", history_weights=(0.0,), max_rows=60)
    assert len(weightless) > len(ZONE)
    problem = make_problem(weightless, StraightLine(TOWN), epsilon=4.0)
    assert problem.merged().row_count == len(ZONE)
    low, high = solved(weightless)
    assert low <= none[1] * 1.01
    assert none[0] <= high * 1.01


def test_a_known_past_costs_least() -> None:
    def loss(weight: float) -> tuple[float, float]:
        rows = make_rows(
            TOWN, ZONE[:4], COUNTS, reach_m=450.0, context="order:1", history_weights=(weight,), max_rows=500
        )
        return solved(rows)

    found = [loss(weight) for weight in (0.0, 0.5, 1.0, 4.0, math.inf)]
    for less, more in itertools.pairwise(reversed(found)):
        assert less[0] <= more[1]
    assert found[-1][1] < found[0][0]


def test_vehicles_that_cross_the_border_are_covered() -> None:
    rows = make_rows(TOWN, ZONE, COUNTS, reach_m=700.0, context="order:1", max_rows=60)
    outside = np.setdiff1d(np.arange(len(TOWN)), ZONE)
    crossing = rows.histories[np.isin(rows.histories[:, 1], outside)]
    assert len(crossing)
    entering = np.array([[5, 0], [13, 19]])
    assert np.isin(rows.histories[rows.row_of(entering), 1], outside).all()
    assert set(rows.zone.tolist()) == set(ZONE.tolist())


def test_a_zone_without_data_is_uniform_and_says_so() -> None:
    rows = make_rows(TOWN, ZONE, no_steps(), reach_m=500.0, context="order:1", max_rows=40)
    assert (rows.report.steps, rows.report.unseen_places) == (0, len(ZONE))
    by_place = np.bincount(rows.histories[:, 0], rows.prior)[ZONE]
    np.testing.assert_allclose(by_place, 1 / len(ZONE))
    np.testing.assert_allclose(rows.next_place.sum(axis=1), 1.0)
    nearest = rows.next_place[[0]].toarray()[0].argmax()
    assert nearest == rows.histories[0, 0]
    low, high = solved(rows)
    assert 0 < low <= high


def test_a_past_that_tells_nothing_apart_is_not_paid_for() -> None:
    rows = make_rows(TOWN, ZONE, COUNTS, reach_m=500.0, context=FixedLengths(1), max_rows=60)
    assert rows.history_weights == (1.0,)
    assert rows.histories.shape[1] == rows.histories.shape[1] == 2


def test_rows_are_the_nearest_places_first() -> None:
    rows = make_rows(TOWN, ZONE, COUNTS, reach_m=2000.0, context="order:1", max_rows=40)
    lat, lon = TOWN.lat, TOWN.lon
    now, before = rows.histories.T
    own = haversine_m(lat[now], lon[now], lat[before], lon[before])
    assert len(ZONE) < len(rows) <= 40
    chosen = {tuple(anchor) for anchor in rows.histories.tolist()}
    left_out = [pair for pair in itertools.product(ZONE.tolist(), range(len(TOWN))) if pair not in chosen]
    apart = [float(haversine_m(lat[one], lon[one], lat[other], lon[other])) for one, other in left_out]
    assert own.max() <= min(apart)


def seen_within_reach(places: Places, zone: np.ndarray, counts: HistoryCounts, reach_m: float) -> np.ndarray:
    """The histories that were seen, without those whose places lie further apart than the reach."""
    histories = np.unique(counts.histories[np.isin(counts.histories[:, 0], zone)], axis=0)
    lat, lon = places.lat[histories], places.lon[histories]
    return histories[(haversine_m(lat[:, :-1], lon[:, :-1], lat[:, 1:], lon[:, 1:]) <= reach_m).all(axis=1)]


@pytest.mark.parametrize("context", ["order:2", "blanket"])
def test_every_history_that_was_seen_has_a_row_where_all_fit(context: str) -> None:
    rows = make_rows(
        TOWN, ZONE, COUNTS, reach_m=450.0, context=FixedLengths(2) if context == "blanket" else context, max_rows=2000
    )
    seen = seen_within_reach(TOWN, ZONE, COUNTS, 450.0)
    assert len(np.unique(rows.row_of(seen))) == len(seen) > 100
    assert rows.report.deeper_share > 0.9


def test_deeper_rows_where_they_pay() -> None:
    """A place at t − 2 that keeps no two histories apart is worth nothing, and one that is known is worth most."""
    worthless, known = (
        make_rows(TOWN, ZONE[:4], COUNTS, reach_m=700.0, context="order:2", history_weights=(1.0, weight), max_rows=80)
        for weight in (0.0, math.inf)
    )
    assert worthless.report.deeper_share < 0.8 < known.report.deeper_share
    assert worthless.report.rows_by_lag[1] > known.report.rows_by_lag[1]


def test_a_longer_past_is_not_chosen_where_it_loses_more() -> None:
    zone = ZONE[:4]
    for max_rows in (20, 45, 90):
        aim = Aim(StraightLine(TOWN), 4.0, math.inf)
        one, two = (
            solved(make_rows(TOWN, zone, COUNTS, reach_m=700.0, context=f"order:{past}", max_rows=max_rows, aim=aim))
            for past in (1, 2)
        )
        assert two[0] <= one[1] * 1.005


@pytest.mark.parametrize(("epsilon", "saved"), [(4.0, -0.005), (6.0, 0.02)])
def test_rows_are_chosen_for_the_whole_of_a_long_zone(epsilon: float, saved: float) -> None:
    """Chosen for its busiest part, 252 of 300 rows would look back to t − 2, and lose 5 % more than none with ε = 4."""
    street = grid(12, 2)
    counts, zone = counted(straight_on(street, 4000)), np.arange(24)
    options: dict[str, Any] = {"reach_m": 1200.0, "history_weights": (1.0, 1.0), "max_rows": 300}
    aim = Aim(StraightLine(street), epsilon, 5.0)
    one, two = (
        optimise(
            make_problem(
                make_rows(street, zone, counts, context=f"order:{past}", aim=aim, **options), aim.loss, epsilon=epsilon
            ),
            gap=0.005,
        ).loss
        for past in (1, 2)
    )
    assert two <= one * (1 - saved)


def test_the_report_counts_rows_and_probability_by_lag() -> None:
    rows = make_rows(TOWN, ZONE, COUNTS, reach_m=450.0, context=lengths, max_rows=200)
    past = (rows.histories >= 0).sum(axis=1) - 1
    assert rows.report.rows_by_lag == tuple(int((past == lag).sum()) for lag in range(past.max() + 1))
    np.testing.assert_allclose(
        rows.report.prior_by_lag, [rows.prior[past == lag].sum() for lag in range(past.max() + 1)]
    )
    assert rows.report.deeper_share == pytest.approx(rows.prior[past > 1].sum())
    assert rows.report.by_lag.endswith(f"({rows.report.deeper_share:.0%})")


def test_rows_are_the_same_every_time() -> None:
    one, other = (make_rows(TOWN, ZONE, COUNTS, reach_m=500.0, context="order:2", max_rows=60) for _ in range(2))
    assert np.array_equal(one.histories, other.histories)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_zone_of_one_place(context: str) -> None:
    rows = make_rows(TOWN, [6], COUNTS, reach_m=350.0, context=told(context), max_rows=12)
    assert set(rows.histories[:, 0].tolist()) == {6}
    assert rows.prior.sum() == pytest.approx(1.0)
    only = float(rows.prior @ make_problem(rows, StraightLine(TOWN), epsilon=4.0).loss[:, 0])
    assert solved(rows)[1] == pytest.approx(only)


def test_a_history_that_never_occurred_uses_the_row_of_the_nearest() -> None:
    rows = make_rows(TOWN, [6], COUNTS, reach_m=350.0, context="order:1", max_rows=3)
    before = rows.histories[:, 1]
    lat, lon = TOWN.lat, TOWN.lon
    far = np.setdiff1d(np.arange(len(TOWN)), before)
    apart = haversine_m(lat[far][:, None], lon[far][:, None], lat[before], lon[before])
    asked = np.column_stack([np.full(len(far), 6), far])
    assert np.array_equal(before[rows.row_of(asked)], before[apart.argmin(axis=1)])


def test_places_at_one_point_share_a_row() -> None:
    places = places_at([0.0, 0.0, 300.0, 600.0], [0.0, 0.0, 0.0, 0.0])
    rows = make_rows(places, [0, 2], no_steps(), reach_m=700.0, context="order:1")
    assert not rows.distance_mm.diagonal().any()
    assert rows.row_of([[2, 0]]) == rows.row_of([[2, 1]])


def test_more_rows_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10}[name])
    with pytest.raises(ParameterError, match="rows need about 0 GB for their distances"):
        make_rows(TOWN, ZONE, COUNTS, reach_m=500.0, context="order:1")


def test_the_name_of_earlier_versions_is_the_same_context() -> None:
    assert Context.of("markov:2") == Context.of("order:2") == Context("order", 2)


def test_the_unreduced_problem_must_be_small() -> None:
    with pytest.raises(ParameterError, match="'full' would need more than 5,000 rows"):
        make_rows(grid(9, 9), np.arange(81), no_steps(), reach_m=5000.0, context="full")


@pytest.mark.parametrize(
    "options",
    [
        {"context": "order"},
        {"context": "order:4"},
        {"context": "none:1"},
        {"context": "blanket"},
        {"history_weights": (-1.0,)},
        {"history_weights": (math.nan,)},
        {"history_weights": ()},
        {"history_weights": (1.0,), "context": "order:2"},
        {"max_rows": 0},
        {"reach_m": -1.0},
        {"reach_m": math.nan},
    ],
)
def test_options_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        make_rows(TOWN, ZONE, COUNTS, **{"reach_m": 500.0, "context": "order:1", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", [[], [-1], [20]])
def test_a_zone_of_no_places(zone: list[int]) -> None:
    with pytest.raises(ParameterError, match="zone must have"):
        make_rows(TOWN, zone, COUNTS, reach_m=500.0, context="none")


def test_reach_is_speed_and_snapping() -> None:
    assert reach_radius_m(interval_s=30.0, snapping_radius_m=100.0) == 1250.0
    for wrong in ({"interval_s": 0.0}, {"snapping_radius_m": -1.0}, {"max_speed_m_s": math.inf}):
        with pytest.raises(ParameterError):
            reach_radius_m(**{"interval_s": 30.0, "snapping_radius_m": 0.0, **wrong})
