from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from itertools import combinations, pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.blanket import groups
from geoblanket.blanket.groups import (
    Grouping,
    LaggedWalks,
    check_features,
    find_regions,
    find_samples,
    load_walks,
    seeds_of,
)
from geoblanket.errors import ParameterError
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.regions import RegionGrid
from tests.blanket.worlds import INTERVAL_S, MIDNIGHT, Walk, square, wandering, write_world

ZONE = "Europe/Rome"
GRID = RegionGrid(south=40.9999, north=41.0085, west=-8.6001, east=-8.5945, rows=2, columns=3)
FEATURES = [some for count in range(4) for some in combinations(("hour", "speed", "region"), count)]


@pytest.fixture(scope="module")
def graph() -> RoadGraph:
    return square()


@pytest.fixture(scope="module")
def walks(graph: RoadGraph) -> list[Walk]:
    return wandering(graph, side=12, walks=60, steps=12, seed=5)


@pytest.fixture(scope="module")
def loaded(graph: RoadGraph, walks: list[Walk], tmp_path_factory: pytest.TempPathFactory) -> LaggedWalks:
    return load_walks(*write_world(tmp_path_factory.mktemp("world"), graph, walks), time_zone=ZONE)


def oracle(graph: RoadGraph, walks: list[Walk], features: tuple[str, ...], m: int) -> dict[tuple[int, ...], list[int]]:
    """Return the rows of each group's samples, row by row and by other means."""
    groups, row = defaultdict(list), -1
    for walk in walks:
        for step, place in enumerate(walk.places):
            row += 1
            if step < m + 1:
                continue
            when = (MIDNIGHT + timedelta(seconds=walk.start_s + step * INTERVAL_S)).astimezone(ZoneInfo(ZONE))
            way = walk.places[step - m : step + 1]
            length_m = sum(
                float(haversine_m(graph.lat[a], graph.lon[a], graph.lat[b], graph.lon[b])) for a, b in pairwise(way)
            )
            lat, lon = graph.lat[place], graph.lon[place]
            value = {
                "hour": when.hour,
                "speed": int(length_m / (m * INTERVAL_S) * 3600 / 1609.344 // 5),
                "region": int((lat - GRID.south) // 0.0043) * 3 + int((lon - GRID.west) // (0.0056 / 3)),
            }
            inside = lat <= GRID.north and lon <= GRID.east
            if ("region" not in features or inside) and ("speed" not in features or value["speed"] < 24):
                groups[tuple(value[feature] for feature in features)].append(row)
    return groups


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_groups_are_those_of_a_plain_loop(
    graph: RoadGraph, walks: list[Walk], loaded: LaggedWalks, features: tuple[str, ...], m: int
) -> None:
    grouping = Grouping(check_features(features)[0], find_regions(GRID, loaded.places))
    samples = find_samples(loaded, grouping, m=m, length=m + 2)
    expected = oracle(graph, walks, features, m)
    labels = grouping.labels().select("hour", "speed_mph", "region").rows()
    found = {}
    for group, (hour, speed_mph, region) in enumerate(labels):
        key = {"hour": hour, "speed": None if speed_mph is None else speed_mph // 5, "region": region}
        assert [name for name, value in key.items() if value is not None] == list(features)
        rows = samples.draw(group, most=10**6, seed=0)
        assert len(rows) == samples.available[group]
        if len(rows):
            found[tuple(key[feature] for feature in features)] = rows.tolist()
            assert samples.lat[group] == pytest.approx(graph.lat[loaded.place[rows]].mean())
            assert samples.lon[group] == pytest.approx(graph.lon[loaded.place[rows]].mean())
        else:
            assert np.isnan(samples.lat[group])
    assert found == expected
    deep = sum(max(len(walk.places) - m - 1, 0) for walk in walks)
    assert samples.outside == deep - sum(map(len, expected.values()))
    assert ("region" in features) <= (samples.outside > 0)


def test_parts_do_not_change_the_groups(loaded: LaggedWalks, monkeypatch: pytest.MonkeyPatch) -> None:
    grouping = Grouping(("hour", "speed", "region"), find_regions(GRID, loaded.places))
    whole = find_samples(loaded, grouping, m=2, length=4)
    monkeypatch.setattr(groups, "_ROWS_AT_A_TIME", 7)
    parts = find_samples(loaded, grouping, m=2, length=4)
    assert np.array_equal(whole.steps, parts.steps)
    assert np.array_equal(whole.offsets, parts.offsets)


def test_a_longer_window_needs_a_longer_past(loaded: LaggedWalks) -> None:
    grouping = Grouping((), find_regions(None, loaded.places))
    short, long = (find_samples(loaded, grouping, m=1, length=length) for length in (3, 7))
    assert set(long.steps) == {step for step in short.steps if loaded.depth[step] >= 6}


def test_a_subsample_is_drawn_without_repetition_and_the_same_again(loaded: LaggedWalks) -> None:
    samples = find_samples(loaded, Grouping((), find_regions(None, loaded.places)), m=1, length=3)
    one, again, other = (samples.draw(0, most=50, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert (np.diff(one) > 0).all()
    assert set(one) <= set(samples.steps)


def test_every_sample_is_as_likely_to_be_drawn(loaded: LaggedWalks) -> None:
    samples = find_samples(loaded, Grouping((), find_regions(None, loaded.places)), m=1, length=3)
    drawn = np.concatenate([samples.draw(0, most=30, seed=seed) for seed in range(2000)])
    counts = np.bincount(drawn, minlength=len(loaded))[samples.steps]
    mean = 2000 * 30 / len(samples.steps)
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)


def test_seeds_differ_between_groups_orders_and_seeds() -> None:
    labels = [("hour+speed", 3, 10, None), ("hour+speed", 10, 3, None), ("speed+region", None, 10, 3)]
    seeds = {seeds_of(label, m, seed) for label in labels for m in (1, 2) for seed in (0, 1)}
    assert len(seeds) == 12
    assert seeds_of(labels[0], 1, 0) == (8144482687918391230, 3816428303)  # on every machine


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ((), [()]),
        ("hour", [("hour",)]),
        (("region", "hour"), [("hour", "region")]),
        ([("speed",), ("region", "speed"), (), ("speed",)], [("speed",), ("speed", "region"), ()]),
        (["speed", ("hour",)], [("speed",), ("hour",)]),
    ],
)
def test_features_are_put_in_order(by: object, expected: object) -> None:
    assert check_features(by) == expected  # type: ignore[arg-type]  # the point is to give all kinds


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(ParameterError, match="Got 'colour' instead"):
        check_features(("hour", "colour"))


def test_too_many_groups_are_refused(loaded: LaggedWalks) -> None:
    regions = find_regions(np.arange(len(loaded.places), dtype=np.int32) * 20, loaded.places)
    with pytest.raises(ParameterError, match=r"more than 1,000,000\. Use fewer regions"):
        Grouping(("hour", "speed", "region"), regions)
