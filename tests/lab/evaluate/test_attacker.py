from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.lab.baselines import add_columns
from geoblanket.lab.evaluate.attacker import Cases, attack_report, zone_distance_km
from geoblanket.mobility.histories import HistoryCounts
from tests.build.worlds import no_steps
from tests.lab.evaluate.walking import COUNTS, TOWN, ZONE, present, random_channel, rows_of


def plain(weight: Floats) -> Cases:
    """Cases that are rows and places at once."""
    count = len(weight)
    return Cases(np.arange(count), np.arange(count), weight, np.zeros(count, np.int64))


def between(points: Floats) -> Floats:
    apart: Floats = np.linalg.norm(points[:, None] - points, axis=2)
    return apart


@given(st.floats(0.1, 8), st.floats(0.05, 2), st.floats(0.5, 0.99))
def test_randomised_response_between_two_places(epsilon: float, apart: float, prior: float) -> None:
    truth = math.exp(epsilon * apart) / (1 + math.exp(epsilon * apart))
    q = [[truth, 1 - truth], [1 - truth, truth]]
    found = attack_report(q, plain(np.array([prior, 1 - prior])), [[0, apart], [apart, 0]])
    # The report is believed if it says more than the prior; else it is always the likelier place.
    assert found.success == pytest.approx(max(truth, prior))
    assert found.error_km == pytest.approx(apart * (1 - max(truth, prior)))
    assert found.prior_success == pytest.approx(prior)
    assert found.prior_error_km == pytest.approx(apart * (1 - prior))


@pytest.mark.parametrize("known_past", [0, 1, 2])
def test_without_noise_it_always_knows_and_a_constant_report_tells_nothing(known_past: int) -> None:
    rows = rows_of("order:1")
    cases = Cases.of_counts(rows, COUNTS, known_past=known_past)
    exposed = attack_report(np.eye(6)[present(rows)], cases, zone_distance_km(rows))
    assert exposed.success == pytest.approx(1.0)
    assert exposed.error_km == pytest.approx(0.0)
    hidden = attack_report(np.full((len(rows), 6), 1 / 6), cases, zone_distance_km(rows))
    assert hidden.success == pytest.approx(hidden.prior_success)
    assert hidden.error_km == pytest.approx(hidden.prior_error_km)
    assert hidden.prior_success == exposed.prior_success < 1


@pytest.mark.parametrize("known_past", [0, 1, 2])
@pytest.mark.parametrize("context", ["none", "order:1", "order:2"])
def test_against_bayes_rule_in_a_loop(context: str, known_past: int) -> None:
    rows = rows_of(context)
    q, apart = random_channel(len(rows), 6, seed=2), zone_distance_km(rows)
    joint: dict[tuple[int, ...], Floats] = {}
    for history, count in zip(COUNTS.histories, COUNTS.count, strict=True):
        if history[0] in ZONE:
            known = tuple(history[1 : 1 + known_past].tolist())
            table = joint.setdefault(known, np.zeros((6, 6)))
            table[ZONE.tolist().index(history[0])] += count * q[int(rows.row_of(history[None])[0])]
    total = sum(table.sum() for table in joint.values())
    success, error, likeliest, prior_success, prior_error = 0.0, 0.0, 0.0, 0.0, 0.0
    for table in joint.values():
        for column in table.T:
            success += max(column)
            error += min(sum(apart[guess, true] * column[true] for true in range(6)) for guess in range(6))
            likeliest += sum(apart[column.argmax(), true] * column[true] for true in range(6))
        prior_success += table.sum(axis=1).max()
        prior_error += (apart @ table.sum(axis=1)).min()
    found = attack_report(q, Cases.of_counts(rows, COUNTS, known_past=known_past), apart)
    assert found.success == pytest.approx(success / total)
    assert found.error_km == pytest.approx(error / total)
    assert found.likeliest_error_km == pytest.approx(likeliest / total)
    assert found.likeliest_error_km > found.error_km
    assert found.prior_success == pytest.approx(prior_success / total)
    assert found.prior_error_km == pytest.approx(prior_error / total)


def test_rows_as_cases_have_the_prior_of_the_design() -> None:
    rows = rows_of("order:1")
    q, apart = random_channel(len(rows), 6, seed=3), zone_distance_km(rows)
    joint = np.zeros((6, 6))
    np.add.at(joint, present(rows), rows.prior[:, None] * q)
    found = attack_report(q, Cases.of_rows(rows), apart)
    assert found.success == pytest.approx(joint.max(axis=0).sum())
    assert found.error_km == pytest.approx((apart @ joint).min(axis=0).sum())


@given(st.integers(0, 10_000), st.floats(0.1, 10))
def test_no_processing_of_reports_helps(seed: int, sharpness: float) -> None:
    rng = np.random.default_rng(seed)
    q = random_channel(7, 6, seed=seed, sharpness=sharpness)
    cases, apart = plain(rng.dirichlet(np.ones(7))), between(rng.random((7, 2)))
    before = attack_report(q, cases, apart)
    for after in (
        attack_report(q @ random_channel(6, 4, seed=seed + 1), cases, apart),
        attack_report(add_columns(q, rng.integers(0, 6, 6), 6), cases, apart),
    ):
        assert after.success <= before.success + 1e-12
        assert after.error_km >= before.error_km - 1e-12
    assert before.prior_success - 1e-12 <= before.success <= 1 + 1e-12
    assert before.error_km <= before.prior_error_km + 1e-12


def test_what_is_known_helps() -> None:
    rows = rows_of("order:1")
    q, apart = random_channel(len(rows), 6, seed=4), zone_distance_km(rows)
    nothing, exact = (attack_report(q, Cases.of_counts(rows, COUNTS, known_past=past), apart) for past in (0, 1))
    assert nothing.success < exact.success
    assert nothing.error_km > exact.error_km


def test_labels_name_the_places_before() -> None:
    cases = Cases.of_counts(rows_of("none"), COUNTS, known_past=2)
    here = np.isin(COUNTS.histories[:, 0], ZONE)
    past = COUNTS.histories[here, 1:]
    same_past = (past[:, None] == past).all(axis=2)
    assert np.array_equal(cases.known[:, None] == cases.known, same_past)


def test_distances_are_those_of_the_map() -> None:
    apart = zone_distance_km(rows_of("none"))
    x = (TOWN.lon[ZONE] - TOWN.lon[ZONE[0]]) * 111.19 * np.cos(np.radians(TOWN.lat[ZONE[0]]))
    y = (TOWN.lat[ZONE] - TOWN.lat[ZONE[0]]) * 111.19
    assert apart == pytest.approx(between(np.column_stack([x, y])), rel=1e-3, abs=1e-9)


def test_what_cannot_be_attacked_is_refused() -> None:
    rows = rows_of("none")
    with pytest.raises(ParameterError, match="No history"):
        Cases.of_counts(rows, no_steps())
    with pytest.raises(ParameterError, match="cannot be known"):
        Cases.of_counts(rows, COUNTS, known_past=3)
    cases = Cases.of_counts(rows, COUNTS)
    with pytest.raises(ParameterError, match="square"):
        attack_report(np.eye(6), cases, np.zeros((6, 5)))
    with pytest.raises(ParameterError, match=r"rows that .* not have; some cases are at places"):
        attack_report(np.eye(5), cases, np.zeros((5, 5)))
    with pytest.raises(ParameterError, match="sum to 1"):
        attack_report(np.eye(2), plain(np.array([0.5, 0.6])), np.zeros((2, 2)))


def test_histories_elsewhere_do_not_count() -> None:
    rows = rows_of("none")
    here = COUNTS.where(np.isin(COUNTS.histories[:, 0], ZONE))
    q, apart = random_channel(6, 6, seed=6), zone_distance_km(rows)
    assert isinstance(here, HistoryCounts)
    assert attack_report(q, Cases.of_counts(rows, here), apart) == attack_report(
        q, Cases.of_counts(rows, COUNTS), apart
    )
