from __future__ import annotations

import math

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import make_problem
from geoblanket.errors import ParameterError
from geoblanket.lab.evaluate.leakage import compose
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism import optimise
from tests.lab.evaluate.walking import TOWN, ZONE, rows_of


def test_without_context_reports_add_up_and_a_location_is_in_one_only() -> None:
    cost = compose(0.25, (), reports=240)
    assert (cost.per_report, cost.per_location, cost.per_trajectory) == (0.25, 0.25, 60.0)


def test_with_context_a_location_counts_in_later_reports_too() -> None:
    cost = compose(2.0, (1.0, 0.5, 0.25), reports=10)
    assert cost.per_location == 2.0 * 2.75
    assert cost.per_trajectory == 10 * 2.0 * 2.75
    # The first place of two reports is the past of one.
    assert compose(2.0, (1.0, 0.5, 0.25), reports=2).per_location == 4.0
    assert compose(2.0, (1.0, 0.5, 0.25), reports=1).per_location == 2.0


def test_a_known_past_is_not_protected() -> None:
    assert compose(1.0, (math.inf,), reports=1).per_location == 1.0
    assert compose(1.0, (math.inf,), reports=2).per_location == math.inf


def test_reports_of_a_mechanism_never_tell_more_than_the_bound() -> None:
    rows = rows_of("order:1")
    q = optimise(make_problem(rows, StraightLine(TOWN), epsilon=3.0), gap=0.01).mechanism.probabilities
    rng = np.random.default_rng(0)
    tightest = 0.0
    for _ in range(300):
        one, other = rng.choice(ZONE, (2, 5))
        other[0] = one[0]  # the place before the first report
        log_ratio = 0.0
        for step in range(1, 5):
            mine, theirs = (rows.row_of(path[step - 1 : step + 1][::-1][None])[0] for path in (one, other))
            log_ratio += float(np.log(q[mine] / q[theirs]).max())
        apart = haversine_m(*(c[i] for i in (one, other) for c in (TOWN.lat, TOWN.lon))) / 1000
        bound = 3.0 * float(apart[1:].sum() + rows.history_weights[0] * apart[1:-1].sum())
        assert log_ratio <= bound + 1e-9
        tightest = max(tightest, log_ratio / bound if bound else 0.0)
    assert tightest > 0.5


@pytest.mark.parametrize(
    ("epsilon", "weights", "reports"), [(-1.0, (), 1), (math.nan, (), 1), (1.0, (-0.5,), 1), (1.0, (), 0)]
)
def test_nonsense_is_refused(epsilon: float, weights: tuple[float, ...], reports: int) -> None:
    with pytest.raises(ParameterError, match="zero or more"):
        compose(epsilon, weights, reports=reports)
