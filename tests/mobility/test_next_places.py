from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

from geoblanket._geodesy import haversine_m
from geoblanket.mobility.histories import backed_off, near_places
from tests.mobility.made_walks import PLACES


def test_weights_by_hand() -> None:
    counts = csr_array(np.array([[6.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    fallback = csr_array(np.array([[0.5, 0.0, 0.5], [0.2, 0.3, 0.5]]))
    # Two different places in eight: the counts are trusted by 8 / 10.
    np.testing.assert_allclose(backed_off(counts, fallback).toarray(), [[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]])


@settings(max_examples=50)
@given(hnp.arrays(np.int64, (4, 6), elements=st.integers(0, 5)), hnp.arrays(float, (4, 6), elements=st.floats(0.1, 1)))
def test_distributions_sum_to_1(counts: np.ndarray, fallback: np.ndarray) -> None:
    found = backed_off(csr_array(counts.astype(float)), csr_array(fallback / fallback.sum(axis=1, keepdims=True)))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert found.min() >= 0


def test_near_places_fall_with_the_distance_and_end() -> None:
    of = np.array([0, 17], np.int32)
    found = near_places(PLACES, of, reach_m=700.0, typical_m=300.0).toarray()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    for row, place in zip(found, of, strict=True):
        distance = haversine_m(PLACES.lat[place], PLACES.lon[place], PLACES.lat, PLACES.lon)
        assert ((row > 0) == (distance <= 700.0)).all()
        within = distance <= 700.0
        np.testing.assert_allclose(np.log(row[within] / row[place]), -distance[within] / 300.0)
