from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.release import fence as fence_module
from geoblanket.release.fence import MOST_FENCES, NO_FENCES, Fence, Fences, point_in_disc

HOME = (41.15, -8.61)


def disc(reach: int) -> set[tuple[int, int]]:
    steps = range(-reach, reach + 1)
    return {(x, y) for x in steps for y in steps if x * x + y * y <= reach * reach}


@pytest.mark.parametrize("reach", [1, 2, 3, 7])
def test_every_point_of_a_small_disc_comes_from_the_same_number_of_words(reach: int) -> None:
    """All pairs of numbers that a try can draw: each point of the disc comes once, all others are rejected."""
    drawn = []
    for pair in itertools.product(range(2 * reach + 1), repeat=2):
        numbers = iter(pair)

        def below(limit: int, numbers: Any = numbers) -> int:
            assert limit == 2 * reach + 1
            return int(next(numbers))

        try:
            drawn.append(point_in_disc(reach, below))
        except StopIteration:
            continue  # rejected: another try
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == disc(reach)


def p_of_uniform(points: Sequence[tuple[int, int]], reach: int) -> float:
    """χ² over 12 sectors × 10 rings of equal area; the grid's grain is far below what so many draws can see."""
    x, y = np.array(points).T
    ring = np.minimum((x * x + y * y) * 10 // (reach * reach + 1), 9)
    sector = np.floor((np.arctan2(y, x) + math.pi) / (2 * math.pi) * 12).astype(int) % 12
    return float(chisquare(np.bincount(ring * 12 + sector, minlength=120)).pvalue)


def test_draws_in_a_large_disc_are_uniform_and_a_bias_is_seen() -> None:
    reach, rng = 10_007, np.random.default_rng(7)
    points = [point_in_disc(reach, lambda limit: int(rng.integers(limit))) for _ in range(60_000)]
    assert p_of_uniform(points, reach) > 1e-3
    # Planted: 5 % of the draws go to the inner half of the radius instead.
    biased = [(x // 2, y // 2) if k % 20 == 0 else (x, y) for k, (x, y) in enumerate(points)]
    assert p_of_uniform(biased, reach) < 1e-6


def test_a_fence_draws_by_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def below(limit: int) -> int:
        asked.append(limit)
        return limit // 2

    monkeypatch.setattr(fence_module, "random_below", below)
    monkeypatch.setattr(fence_module, "point_in_disc", lambda reach: point_in_disc(reach, below))
    fence = Fence.draw(*HOME, radius_km=0.5)
    assert asked == [10**7, 10**7, 1001, 1001]
    assert abs(fence.lat_e7 - 411_500_000) < 100  # half of the numbers is the middle: the place itself


@given(
    lat=st.floats(-83, 83),
    lon=st.floats(-180, 180),
    radius_km=st.floats(0.1, 10),
    margin_m=st.floats(0, 2000),
    angle=st.floats(0, 2 * math.pi),
    share=st.floats(0, 1),
)
def test_all_within_the_margin_of_the_place_is_held(
    lat: float, lon: float, radius_km: float, margin_m: float, angle: float, share: float
) -> None:
    fence = Fence.draw(lat, lon, radius_km=radius_km, margin_m=margin_m)
    assert fence.holds(lat, lon)
    degrees = share * margin_m / 111_195
    near = lat + degrees * math.sin(angle), lon + degrees * math.cos(angle) / math.cos(math.radians(lat))
    if haversine_m(lat, lon, *near) <= margin_m:
        assert fence.holds(near[0], (near[1] + 180) % 360 - 180)
    many = fence.holds_many_e7(np.array([round(near[0] * 1e7)]), np.array([round(near[1] * 1e7)]))
    assert many[0] == fence.holds_e7(round(near[0] * 1e7), round(near[1] * 1e7))


def test_no_position_far_away_is_held() -> None:
    fence = Fence.draw(*HOME, radius_km=10, margin_m=2000)
    far = [(41.15, -8.3), (41.5, -8.61), (-41.15, -8.61), (41.15, 171.39), (90, 0), (-90, 0), (41.15, 8.61)]
    for lat, lon in far:
        assert not fence.holds(lat, lon)
        assert not fence.holds_many_e7(np.array([round(lat * 1e7)]), np.array([round(lon * 1e7)]))[0]


def with_center(drawn: Fence, x: int, y: int) -> Fence:
    lat_e7, lon_e7 = drawn._plane.e7_of_unit(x, y)
    return replace(drawn, lat_e7=lat_e7, lon_e7=lon_e7)


def test_the_promise_over_the_draw_by_enumeration() -> None:
    """All centres of two homes' discs: what the rest sees of two lives differs with probability δ at most.

    Nights are spent at any of some points within the margin of each home; days at one point outside.
    """
    drawn = Fence.draw(*HOME, radius_km=0.1, margin_m=10)
    plane = drawn._plane
    x, y = plane.unit_of_e7(411_500_000, -86_100_000)
    outside = plane.e7_of_unit(x + 500, y - 500)
    offsets = [(0, 0), (10, 0), (-6, 8)]
    centres = disc(100)

    def law_of(home_x: int, home_y: int) -> Counter[Any]:
        near = [plane.e7_of_unit(home_x + dx, home_y + dy) for dx, dy in offsets]
        law: Counter[Any] = Counter()
        for dx, dy in centres:
            fences = Fences((with_center(drawn, home_x + dx, home_y + dy),))
            here = {fences.apply_e7(*position) for position in near}
            assert len(here) == 1  # given a centre, all lives within the margin look the same
            law[*here, fences.apply_e7(*outside)] += 1
        return law

    first, total = law_of(x, y), len(centres)
    for east, north in [(7, 0), (20, 15), (0, 150)]:
        second = law_of(x + east, y + north)
        assert sum(first.values()) == sum(second.values()) == total
        delta = sum(max(0, count - second.get(life, 0)) for life, count in first.items()) / total
        distance_m = math.hypot(east, north)
        assert delta <= drawn.delta(distance_m / 1000) + 2 / 100  # the grain of a disc of 100 m
        assert delta <= 2 * distance_m / (math.pi * 100) + 2 / 100
        assert delta >= 0.9 * (drawn.delta(distance_m / 1000) - 0.01)  # no looser than it has to be


def test_delta_is_at_most_the_closed_form() -> None:
    fence = Fence.draw(*HOME, radius_km=1)
    degrees = 0.1 / 111.195 * (1 + 1 / math.cos(math.radians(41.15)))
    assert fence.delta(0.1) == pytest.approx(2 * 0.1 / math.pi + degrees, rel=1e-3)
    assert fence.delta(0) == 0
    assert fence.delta(5) == 1


def test_which_frame_is_drawn_without_looking_at_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two homes get the same frame for the same offsets, unless an edge lies between them."""
    for offset in (0, 1_000_000, 5_000_000, 9_999_999):
        monkeypatch.setattr(fence_module, "random_below", lambda _limit, offset=offset: offset)
        frames = {fence_module._random_frame(lat, 0) for lat in range(411_000_000, 412_000_000, 50_000)}
        assert len(frames) == (2 if 411_000_000 < 410_000_000 + offset <= 412_000_000 else 1)


def test_a_second_fence_for_the_same_place_is_refused() -> None:
    fences, home = Fences().with_place(*HOME, radius_km=1)
    for _ in range(20):
        with pytest.raises(ParameterError, match="A fence holds this place already"):
            fences.with_place(*HOME, radius_km=0.5, name="another")
    fences, _ = fences.with_place(41.2, -8.5, radius_km=1, name="work")
    with pytest.raises(ParameterError, match="There is, or was, a fence of this name"):
        fences.with_place(41.3, -8.5, radius_km=1, name="home")
    assert fences.apply_e7(411_500_000, -86_100_000) == (home.lat_e7, home.lon_e7)


def test_a_fence_that_was_taken_away_comes_back_with_its_centre() -> None:
    fences, home = Fences().with_place(*HOME, radius_km=1)
    without = fences.without("home")
    assert without.apply_e7(411_500_000, -86_100_000) == (411_500_000, -86_100_000)
    with pytest.raises(ParameterError, match="No fence in use has this name"):
        without.without("home")
    again, back = without.with_place(41.1501, -8.6101, radius_km=5, name="new home")
    assert back == home
    assert again == fences


def test_the_first_of_two_overlapping_fences_wins() -> None:
    first = Fence.draw(*HOME, radius_km=1, name="first")
    second = with_center(replace(first, name="second"), *(value + 1500 for value in first._center))
    fences = Fences((first, second))
    x, y = first._center
    on_the_way = [first._plane.e7_of_unit(x + step, y + step) for step in range(-1000, 3000, 13)]
    lat, lon = np.array(on_the_way).T
    one_by_one = [fences.apply_e7(*position) for position in on_the_way]
    assert np.array_equal(np.column_stack(fences.apply_many_e7(lat, lon)), one_by_one)
    both = [k for k, position in enumerate(on_the_way) if all(fence.holds_e7(*position) for fence in fences)]
    assert both
    assert {one_by_one[k] for k in both} == {(first.lat_e7, first.lon_e7)}
    assert one_by_one[-1] == on_the_way[-1]


@pytest.mark.parametrize(
    ("lat", "lon", "options", "says"),
    [
        (41.15, -8.61, {"radius_km": 0}, "radius of a fence"),
        (41.15, -8.61, {"radius_km": 11}, "radius of a fence"),
        (41.15, -8.61, {"radius_km": math.nan}, "radius of a fence"),
        (41.15, -8.61, {"radius_km": 1, "margin_m": -1}, "margin of a fence"),
        (41.15, -8.61, {"radius_km": 1, "margin_m": math.inf}, "margin of a fence"),
        (math.nan, -8.61, {"radius_km": 1}, "latitude"),
        (91, -8.61, {"radius_km": 1}, "latitude"),
        (84, -8.61, {"radius_km": 1}, "83°"),
        (41.15, -8.61, {"radius_km": 1, "name": ""}, "name"),
        (41.15, -8.61, {"radius_km": 1, "name": "a\nb"}, "name"),
    ],
)
def test_bad_fences_are_refused_without_an_echo_of_the_place(
    lat: float, lon: float, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ParameterError, match=says) as error:
        Fence.draw(lat, lon, **options)
    assert "41.15" not in str(error.value)
    assert "8.61" not in str(error.value)


def test_a_vehicle_has_a_limited_number_of_fences() -> None:
    fences = Fences()
    for number in range(MOST_FENCES):
        fences, _ = fences.with_place(number, 10, radius_km=1, name=f"place {number}")
    with pytest.raises(ParameterError, match="can have 20 fences"):
        fences.with_place(50, 10, radius_km=1, name="one more")


def test_fences_travel_as_json_and_nothing_else_is_read() -> None:
    fences, _ = Fences().with_place(*HOME, radius_km=1)
    fences = fences.without("home")
    text = fences.as_json()
    assert Fences.parsed(text) == fences
    assert "41.15" not in text
    values = json.loads(text)
    for path, value in [
        (("format",), 2), (("format",), True), (("format",), 1.0), (("fences",), {}),
        (("fences", 0, "name"), 7), (("fences", 0, "active"), 1),
        (("fences", 0, "lat_e7"), 1.5), (("fences", 0, "radius_m"), 10**9), (("fences", 0, "reach_m"), 0),
        (("fences", 0, "lon_e7"), 10**12), (("fences", 0, "south_e7"), 0), (("fences", 0, "more"), 0),
    ]:  # fmt: skip
        changed = json.loads(json.dumps(values))
        target = changed
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
        with pytest.raises(ParameterError):
            Fences.parsed(json.dumps(changed))
    for hostile in ("", "[]", "{}", text[:-3], text.replace('"format": 1', '"format": 1, "format": 1'), "[" * 100_000):
        with pytest.raises(ParameterError):
            Fences.parsed(hostile)


def test_imported_fences_may_not_be_for_a_place_that_has_one() -> None:
    fences, home = Fences().with_place(*HOME, radius_km=1)
    assert fences.with_all(fences) == fences
    # In use on one of two devices: it protects. A copy out of use changes nothing.
    assert fences.without("home").with_all(fences) == fences
    assert fences.with_all(fences.without("home")) == fences
    x, y = home._center
    for east, north in [(0, 0), (1303, 0), (0, -1999), (1400, 1400)]:  # most lie outside the first disc
        again = replace(with_center(home, x + east, y + north), name="copy")
        with pytest.raises(ParameterError, match="may be for one place"):
            fences.with_all([again])
        with pytest.raises(ParameterError, match="may be for one place"):
            fences.without("home").with_all([again])
    work = replace(with_center(home, x + 1500, y + 1500), name="work")
    assert tuple(fences.with_all([work])) == (home, work)


def test_fences_of_one_device_travel_together_and_are_never_forgotten() -> None:
    """Two places that are near each other have fences of their own; together they can be taken to another device."""
    fences, home = Fences().with_place(*HOME, radius_km=1)
    x, y = home._center
    shop = replace(with_center(home, x + 1500, y), name="shop")
    both = Fences((home, shop))
    assert NO_FENCES.with_all(both) == fences.with_all(both) == both
    assert fences.replaced_by(both.without("home")) == both.without("home")
    for fewer in (fences, NO_FENCES, fences.without("home")):
        with pytest.raises(ParameterError, match="never forgotten"):
            both.replaced_by(fewer)
