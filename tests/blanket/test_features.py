from __future__ import annotations

import numpy as np

from geoblanket.blanket.predictor import HOURS, SPEED_BINS, Encoding, PredictorInputs


def inputs(*rows: tuple[int, int, int, int]) -> PredictorInputs:
    return PredictorInputs(*np.array(rows, np.int64).T)


SEEN = inputs((2, 10, 7, 1), (2, 40, 7, 2), (21, 10, 9, 1), (21, 25, 12, 3))


def test_levels_are_those_of_the_groups_and_a_missing_feature_has_none() -> None:
    encoding = Encoding.learned(SEEN, largest=4)
    assert (encoding.hours, encoding.speeds_mph, encoding.regions) == ((2, 21), (10, 25, 40), (7, 9, 12))
    assert encoding.width == 4 + 23 + 3 + 4
    by_speed = Encoding.learned(inputs((-1, 10, -1, 1), (-1, 15, -1, 2)), largest=4)
    assert (by_speed.hours, by_speed.regions) == ((), ())
    assert by_speed.width == 23 + 4


def test_columns_are_centred() -> None:
    np.testing.assert_allclose(Encoding.learned(SEEN, largest=3).rows(SEEN).mean(axis=0), 0, atol=1e-12)


def test_speeds_differ_in_the_borders_between_them() -> None:
    rows = Encoding.learned(SEEN, largest=3).rows(inputs((2, 10, 7, 1), (2, 25, 7, 1), (2, 40, 7, 1)))
    np.testing.assert_allclose(np.abs(np.diff(rows, axis=0)).sum(axis=1), [3, 3])


def test_an_hour_or_speed_not_seen_is_the_nearest_seen_and_hours_go_round() -> None:
    encoding = Encoding.learned(SEEN, largest=3)

    def same(first: tuple[int, int, int, int], second: tuple[int, int, int, int]) -> bool:
        rows = encoding.rows(inputs(first, second))
        return bool((rows[0] == rows[1]).all())

    assert same((23, 10, 7, 1), (21, 10, 7, 1))  # 2 hours from 21, 3 from 2 across midnight
    assert same((0, 10, 7, 1), (2, 10, 7, 1))
    assert same((12, 10, 7, 1), (21, 10, 7, 1))
    assert same((2, 115, 7, 1), (2, 40, 7, 1))
    assert same((2, 0, 7, 1), (2, 10, 7, 1))
    assert not same((2, 10, 7, 1), (21, 10, 7, 1))


def test_a_region_not_seen_is_the_mean_region() -> None:
    encoding = Encoding.learned(SEEN, largest=3)
    regions = slice(27, 30)
    unseen = encoding.rows(inputs((2, 10, 8, 1), (2, 10, -1, 1), (2, 10, 999, 1)))[:, regions]
    assert (unseen == 0).all()
    assert (encoding.rows(SEEN)[:, regions] != 0).all()


def test_the_first_layer_is_the_sum_of_what_its_features_add() -> None:
    encoding = Encoding.learned(SEEN, largest=3)
    weights = np.random.default_rng(0).normal(size=(encoding.width, 6))
    of_hour_speed, of_region, of_order = encoding.first_layer(weights)
    assert of_hour_speed.shape == (HOURS, SPEED_BINS, 6)
    for hour, speed, region, m in [(0, 0, 7, 1), (21, 23, 12, 3), (13, 4, 50, 2)]:
        column = {7: 0, 9: 1, 12: 2}.get(region, 3)
        added = of_hour_speed[hour, speed] + of_region[column] + of_order[m - 1]
        expected = encoding.rows(inputs((hour, 5 * speed, region, m)))[0] @ weights
        np.testing.assert_allclose(added, expected, atol=1e-12)
