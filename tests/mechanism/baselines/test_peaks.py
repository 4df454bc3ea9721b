from __future__ import annotations

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism import baselines
from geoblanket.mechanism.baselines import peaks, tight_constraints
from geoblanket.mechanism.problem import Problem
from tests.mechanism.baselines.problems import line


def grid(side: int, pitch_km: float, epsilon: float) -> tuple[Problem, Floats]:
    axis = np.arange(side) * pitch_km
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    apart = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    return Problem(loss=apart, prior=np.full(len(points), 1 / len(points)), distance_km=apart, epsilon=epsilon), points


def test_where_all_places_are_kept_it_is_the_tight_mechanism() -> None:
    problem = line(7, epsilon=1.0)
    made = peaks(problem)
    assert made.kept.tolist() == list(range(7))
    assert made.snapped_mm == 0
    assert (made.mechanism.weights == tight_constraints(problem, remapped=False).weights).all()
    assert "between places" in made.promise


def test_on_a_plane_every_ratio_keeps_the_promise() -> None:
    problem, _ = grid(5, 0.5, 2.0)
    weights = peaks(problem).mechanism.weights.astype(np.float64)
    for row in range(25):
        for other in range(25):
            bound = np.exp(2.0 * problem.distance_km[row, other])
            assert (weights[row] <= bound * weights[other] * (1 + 1e-12)).all()


def test_places_too_near_together_use_the_row_of_a_kept_one() -> None:
    problem, points = grid(8, 0.1, 1.0)
    # A place in the middle of others that are much nearer to it than to each other has a negative mass.
    crowd = np.concatenate([points, points[27] + [[0.01, 0.0], [0.0, 0.012], [-0.011, 0.003]]])
    apart = np.hypot(*(crowd[:, None] - crowd).transpose(2, 0, 1))
    problem = Problem(loss=apart, prior=np.full(len(crowd), 1 / len(crowd)), distance_km=apart, epsilon=1.0)
    made = peaks(problem)
    assert 0 < len(made.kept) < len(crowd)
    left_out = np.setdiff1d(np.arange(len(crowd)), made.kept)
    assert (made.nearest[made.kept] == made.kept).all()
    for place in left_out:
        nearest = made.kept[np.argmin(problem.distance_mm[place, made.kept])]
        assert made.nearest[place] == nearest
        assert (made.mechanism.weights[place] == made.mechanism.weights[nearest]).all()
    assert (made.mechanism.weights[:, left_out].sum(axis=0) <= 2**40).all()  # nobody is reported to be there
    assert made.snapped_mm == problem.distance_mm[np.arange(len(crowd)), made.nearest].max() > 0
    assert "add up to" in made.promise


def test_there_are_not_too_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_PLACES", 5)
    with pytest.raises(ParameterError, match="at most 5 places"):
        peaks(line(6))
