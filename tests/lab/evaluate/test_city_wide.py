from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.lab.evaluate.city_data import CityData
from geoblanket.lab.evaluate.experiment import read_experiment
from geoblanket.lab.evaluate.panels import main_panels, whole_city_panels
from geoblanket.lab.evaluate.report import write_report
from geoblanket.lab.evaluate.results import ALL_ZONES, WHOLE_CITY
from geoblanket.lab.evaluate.running import Evaluation, evaluate_cities
from tests.lab.evaluate.towns import Town

EXPERIMENT = """
title = "The whole town"
gap = 0.05
reports = [3]
[setting]
loss_case = "straight line"
max_places = 12
[[vary]]
city_wide = true
epsilon = [1, 4]
methods = ["lattice", "peaks", "lp", "expmech", "expmech_remap"]
[[vary]]
city_wide = true
epsilon = 4
every = 3
methods = ["peaks"]
[[vary]]
epsilon = [4]
methods = ["lp", "expmech_remap"]
"""


@pytest.fixture(scope="module")
def found(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    folder = tmp_path_factory.mktemp("city-wide")
    path = folder / "town.toml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return evaluate_cities([town.files], [read_experiment(str(path))], folder / "results", workers=1)


def value(results: pl.DataFrame, measure: str, **columns: object) -> float:
    chosen = results.filter(
        pl.col("measure") == measure, *(pl.col(name) == value for name, value in columns.items()), variant=""
    )
    return float(chosen["value"].item())


def test_nothing_contradicts_what_must_hold(found: Evaluation) -> None:
    assert found.violations == ()
    assert found.results.filter(measure="verified")["value"].min() == 1.0


def test_without_zones_results_are_apart_from_those_in_zones(found: Evaluation) -> None:
    without = found.results.filter(zone=WHOLE_CITY)
    assert set(without["method"]) == {"lattice", "peaks", "lp", "expmech", "expmech_remap"}
    assert without["eta_km"].is_infinite().all()
    assert without["max_places"].is_null().all()
    (in_zones,) = main_panels(found.results)
    assert in_zones.methods == ("lp", "expmech_remap")
    assert in_zones.points == (4.0,)
    (panel,) = whole_city_panels(found.results)
    assert panel.points == (1.0, 4.0)


def test_the_optimum_is_below_all_and_the_lattice_promises_no_less(found: Evaluation) -> None:
    for epsilon in (1.0, 4.0):
        where = {"zone": WHOLE_CITY, "epsilon": epsilon}
        bound = value(found.results, "lower_bound", method="lp", **where)
        for method in ("lattice", "expmech", "expmech_remap"):
            assert value(found.results, "design_loss", method=method, **where) >= bound
            assert value(found.results, "epsilon_effective", method=method, **where) <= epsilon
        # What is sent tells an attacker at least as much as what the receiver makes of it.
        error, off = (
            value(found.results, name, method="lattice", **where) for name in ("inference_error", "displacement")
        )
        assert 0 < error < 1.2 * off
        assert value(found.results, "bundle_bytes", method="lattice", **where) < 10_000


def test_zones_give_away_where_a_vehicle_is(found: Evaluation) -> None:
    only_zone = value(found.results, "inference_error_prior", method="lp", zone=ALL_ZONES, epsilon=4.0)
    nothing = value(found.results, "inference_error_prior", method="lp", zone=WHOLE_CITY, epsilon=4.0)
    assert only_zone < 0.7 * nothing
    assert 0 < value(found.results, "crossing_share", method="lp", zone=ALL_ZONES, epsilon=4.0) < 1


def test_a_tracker_errs_less_and_more_where_reports_are_fewer(found: Evaluation) -> None:
    for method in ("lattice", "peaks", "lp", "expmech"):
        for epsilon in (1.0, 4.0):
            where = {"zone": WHOLE_CITY, "epsilon": epsilon, "method": method}
            error, single = (value(found.results, name, **where) for name in ("tracked_error", "single_error"))
            assert error < min(single, value(found.results, "tracked_error_prior", **where))
    seldom = found.results.filter(variant="report every 3 steps", zone=WHOLE_CITY)
    cost = seldom.filter(measure="epsilon_per_hour")["value"].item()
    assert cost == pytest.approx(value(found.results, "epsilon_per_hour", method="peaks", epsilon=4.0) / 3)
    often = value(found.results, "tracked_error", method="peaks", epsilon=4.0)
    assert seldom.filter(measure="tracked_error")["value"].item() > often


def test_the_error_at_a_crossing_against_a_loop(town: Town, found: Evaluation) -> None:
    city = CityData(town.files)
    zones = city.zones(12)
    lat, lon = city.places.lat, city.places.lon
    number = int(found.results.filter(pl.col("zone") >= 0)["zone"].min())  # type: ignore[arg-type]  # a number
    seen: dict[int, dict[int, int]] = {}
    for history, count in zip(city.counts.histories, city.counts.count, strict=True):
        now, before = int(history[0]), int(zones.zone[history[1]])
        if zones.zone[now] == number != before:
            places = seen.setdefault(before, {})
            places[now] = places.get(now, 0) + int(count)
    error = 0.0
    for places in seen.values():
        guesses = [
            sum(
                count * float(haversine_m(lat[guess], lon[guess], lat[place], lon[place]))
                for place, count in places.items()
            )
            for guess in zones.members(number)
        ]
        error += min(guesses) / 1000
    error /= sum(count for places in seen.values() for count in places.values())
    assert value(found.results, "crossing_error", method="lp", zone=number, epsilon=4.0) == pytest.approx(error)


def test_the_report_has_two_tables(found: Evaluation, tmp_path: Path) -> None:
    page = write_report(found.results, tmp_path, about={}).read_text("utf-8")
    assert "The whole city, and what zones disclose" in page
    assert page.index("no zone disclosed") < page.index("the zone of the true place disclosed")
    assert "coordinates" in page


def test_a_report_without_any_zones_can_be_written(found: Evaluation, tmp_path: Path) -> None:
    page = write_report(found.results.filter(zone=WHOLE_CITY), tmp_path, about={}).read_text("utf-8")
    assert "no zone disclosed" in page
    assert "There are no results of all zones together." in page


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("methods = ['lattice']", "lattice can only be compared city-wide"),
        ("methods = ['lp', 'lp_markov1']\ncity_wide = true", "lp_markov1 cannot be compared city-wide"),
    ],
)
def test_methods_that_cannot_take_part_are_told(tmp_path: Path, setting: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"title = 'x'\n[[vary]]\nepsilon = 2\n{setting}", encoding="utf-8")
    with pytest.raises(ParameterError, match=words):
        read_experiment(str(path))


def test_the_shipped_experiment_compares_both() -> None:
    settings = read_experiment("citywide").settings
    assert {setting.city_wide for setting in settings} == {True, False}
    assert np.isinf([setting.protected_km for setting in settings if setting.city_wide]).all()
