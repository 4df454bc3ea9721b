from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket.build.measures import vehicle_losses
from geoblanket.build.row_tree import reach_radius_m
from geoblanket.build.rows import make_problem, make_rows
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError
from geoblanket.lab.evaluate import running
from geoblanket.lab.evaluate.comparing import ComparisonTask, ZoneOutcome, compare_zone
from geoblanket.lab.evaluate.experiment import Experiment, read_experiment, shipped_experiments
from geoblanket.lab.evaluate.results import ALL_ZONES, RESULTS_SCHEMA, SETTING_COLUMNS, read_results
from geoblanket.lab.evaluate.running import Evaluation, evaluate_cities, unfinished_folder
from geoblanket.lab.evaluate.sanity import check_results
from geoblanket.loss.standard import TravelCost
from geoblanket.loss.tasks import Effort, TaskPrior
from geoblanket.mechanism.solver.optimiser import optimise
from geoblanket.mobility.histories import collect_steps, count_histories
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.roads.zones import partition_zones
from tests.lab.evaluate.towns import Town

NOT_REPRODUCIBLE = ("build_seconds", "peak_memory_mb", "release_us", "release_us_longest")


@pytest.fixture(scope="module")
def experiment(town: Town) -> Experiment:
    return read_experiment(str(town.experiment))


@pytest.fixture(scope="module")
def found(town: Town, experiment: Experiment) -> Evaluation:
    return evaluate_cities([town.files], [experiment], town.folder / "results", workers=1)


def measured(results: pl.DataFrame, measure: str, **columns: object) -> pl.DataFrame:
    return results.filter(
        pl.col("measure") == measure, *(pl.col(name) == value for name, value in columns.items()), variant=""
    )


def value(results: pl.DataFrame, measure: str, **columns: object) -> float:
    return float(measured(results, measure, loss_case="population", **columns)["value"].item())


def test_results_are_written_as_the_schema_says(town: Town, found: Evaluation) -> None:
    results, about = read_results(town.folder / "results")
    assert dict(results.schema) == RESULTS_SCHEMA
    assert results.equals(found.results)
    assert about["experiments"]["small"]["gap"] == 0.05
    assert pl.read_csv(town.folder / "results" / "results.csv").height == results.height
    assert results.select(*SETTING_COLUMNS, "measure").is_duplicated().sum() == 0
    assert not unfinished_folder(town.folder / "results").exists()


def test_nothing_contradicts_what_must_hold(found: Evaluation) -> None:
    assert found.violations == ()
    assert found.results.filter(pl.col("value").is_nan()).is_empty()


def test_every_method_keeps_its_promise(found: Evaluation) -> None:
    spent = found.results.filter(measure="epsilon_effective")
    assert spent.height == found.results.filter(measure="verified", value=1.0).height >= 7 * 2 * 3
    assert (spent["value"] <= spent["epsilon"] * (1 + 1e-9)).all()


def test_held_out_loss_of_a_zone_is_that_of_its_mechanism(town: Town, found: Evaluation) -> None:
    """By the steps that a user would take with the other parts of the package."""
    zone = int(measured(found.results, "held_out_loss", method="lp")["zone"].max())  # type: ignore[arg-type]  # a number
    graph = RoadGraph.load(town.files.roads)
    places = choose_places(graph, spacing_m=300.0)
    members = partition_zones(graph, places, max_places=12).members(zone)
    counts = count_histories(town.files.walks, places, largest=3)
    steps = collect_steps(town.files.walks, places, largest=3)
    tasks = TaskPrior.uniform(graph).within_largest_part(graph)
    loss = TravelCost(graph, places, tasks, effort=Effort(max_tasks=200))
    rows = make_rows(
        places,
        members,
        counts.where(counts.depth > 0),
        reach_m=reach_radius_m(interval_s=30.0, snapping_radius_m=places.snapping_radius_m(graph)),
        context="none",
    )
    problem = make_problem(rows, loss, epsilon=6.0, eta_km=5.0)
    mechanism = optimise(problem, gap=0.005).mechanism
    losses = vehicle_losses(mechanism, rows, steps.where(steps.depth > 0), loss)
    assert value(found.results, "held_out_loss", method="lp", zone=zone, epsilon=6.0) == pytest.approx(
        losses.loss.sum() / losses.steps.sum()
    )
    assert value(found.results, "design_loss", method="lp", zone=zone, epsilon=6.0) == pytest.approx(
        mechanism.expected_loss(problem)
    )


def test_all_zones_together_are_the_mean_over_their_steps(found: Evaluation) -> None:
    results = measured(found.results, "held_out_loss", method="expmech", epsilon=2.0, loss_case="population")
    steps = measured(found.results, "held_out_steps", method="expmech", epsilon=2.0, loss_case="population")
    joined = results.join(steps, on="zone").filter(pl.col("zone") != ALL_ZONES)
    mean = float(np.average(joined["value"], weights=joined["value_right"]))
    together = results.filter(zone=ALL_ZONES)
    assert together["value"].item() == pytest.approx(mean)
    assert together["low"].item() < mean < together["high"].item()


def test_gains_are_shares_of_the_other_loss(found: Evaluation) -> None:
    plain, context = (
        value(found.results, "held_out_loss", method=method, zone=ALL_ZONES, epsilon=6.0)
        for method in ("lp", "lp_markov1")
    )
    gain = value(found.results, "gain_over_lp", method="lp_markov1", zone=ALL_ZONES, epsilon=6.0)
    assert gain == pytest.approx(1 - context / plain)


def test_vehicles_with_one_destination_are_told(found: Evaluation) -> None:
    vehicles = found.results.filter(measure="held_out_vehicles", loss_case="one destination", zone=ALL_ZONES)
    assert set(vehicles["value"]) <= {float(n) for n in range(1, 41)}


def test_more_reports_cost_more_and_tell_more(found: Evaluation) -> None:
    rows = found.results.filter(method="lp_markov1", epsilon=6.0, zone=ALL_ZONES)
    four, two = (
        {row["measure"]: row["value"] for row in rows.filter(variant=variant).iter_rows(named=True)}
        for variant in ("", "T = 2")
    )
    assert four["composed_epsilon"] == pytest.approx(4 * 6.0 * 2)
    assert two["composed_epsilon"] == pytest.approx(2 * 6.0 * 2)
    assert four["tracking_success"] > two["tracking_success"] - 0.02
    assert four["tracking_success"] > four["tracking_success_prior"]


def test_vehicles_are_tracked_through_all_zones(found: Evaluation) -> None:
    zones = found.results.filter(pl.col("zone") >= 0)
    assert not set(zones["measure"]) & {"tracked_error", "tracked_loss", "tracking_error"}
    for epsilon in (2.0, 6.0):
        rows = found.results.filter(epsilon=epsilon, zone=ALL_ZONES, loss_case="population", variant="")
        values = {(row["method"], row["measure"]): row for row in rows.iter_rows(named=True)}
        for method in ("lp_markov1", "lp", "expmech"):
            tracked, single, blind = (
                values[method, name]["value"] for name in ("tracked_error", "single_error", "tracking_error_prior")
            )
            assert tracked < single
            assert values[method, "tracking_error"]["value"] < blind
            assert values[method, "tracked_loss"]["low"] < values[method, "tracked_loss"]["value"]
        ours, theirs = (values[method, "tracked_loss"]["value"] for method in ("lp_markov1", "lp"))
        assert values["lp_markov1", "tracked_loss_gain_over_lp"]["value"] == pytest.approx(1 - ours / theirs)
        assert values["lp_markov1", "epsilon_per_location"]["value"] == pytest.approx(2 * epsilon)
        assert values["lp_markov1", "epsilon_per_hour"]["value"] == pytest.approx(120 * 2 * epsilon)
        assert values["lp", "epsilon_per_hour"]["value"] == pytest.approx(120 * epsilon)


def test_a_mechanism_that_does_not_exist_is_a_result(found: Evaluation) -> None:
    missing = found.results.filter(method="tight", measure="verified", value=0.0)
    exists = found.results.filter(method="tight", measure="verified", value=1.0)
    assert missing.height + exists.height == 6
    if missing.height:
        assert any("tight" in note for note in found.notes)


def test_results_do_not_depend_on_the_number_of_workers(town: Town, experiment: Experiment, found: Evaluation) -> None:
    some = experiment.replaced(settings=experiment.settings[1:])
    again = evaluate_cities([town.files], [some], town.folder / "two", workers=2)
    wanted = found.results.filter(~pl.col("measure").is_in(NOT_REPRODUCIBLE), epsilon=6.0)
    assert again.results.filter(~pl.col("measure").is_in(NOT_REPRODUCIBLE)).equals(wanted)


def test_an_interrupted_run_goes_on_where_it_stopped(
    town: Town, experiment: Experiment, found: Evaluation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    def until_ctrl_c(task: ComparisonTask) -> ZoneOutcome:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(task.name)
        return compare_zone(task)

    monkeypatch.setattr(running, "compare_zone", until_ctrl_c)
    some = experiment.replaced(settings=experiment.settings[1:])
    with pytest.raises(KeyboardInterrupt):
        evaluate_cities([town.files], [some], tmp_path, workers=1)
    assert len(list(unfinished_folder(tmp_path).glob("*.part"))) == 2
    with pytest.raises(OutputError, match="--resume"):
        evaluate_cities([town.files], [some], tmp_path, workers=1)
    with pytest.raises(MismatchError):
        evaluate_cities([town.files], [some.replaced(gap=0.1)], tmp_path, workers=1, resume=True)

    later: list[str] = []

    def noted(task: ComparisonTask) -> ZoneOutcome:
        later.append(task.name)
        return compare_zone(task)

    monkeypatch.setattr(running, "compare_zone", noted)
    again = evaluate_cities([town.files], [some], tmp_path, workers=1, resume=True)
    assert set(later).isdisjoint(done)
    wanted = found.results.filter(~pl.col("measure").is_in(NOT_REPRODUCIBLE), epsilon=6.0)
    assert again.results.filter(~pl.col("measure").is_in(NOT_REPRODUCIBLE)).equals(wanted)


def test_other_spacings_are_matched_from_traces(town: Town, experiment: Experiment, tmp_path: Path) -> None:
    setting = experiment.settings[0].replaced(methods=("lp",), spacing_m=400.0)
    one = experiment.replaced(settings=(setting,), zones=1, destinations=0)
    found = evaluate_cities([town.files], [one], tmp_path, workers=1)
    assert set(found.results["spacing_m"]) == {400.0}
    with pytest.raises(InputError, match="--set traces"):
        evaluate_cities([replace(town.files, traces=None)], [one], tmp_path / "none", workers=1)


def test_what_cannot_be_evaluated_is_told(town: Town, experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        evaluate_cities([replace(town.files, predictor=tmp_path / "none")], [experiment], tmp_path)
    with pytest.raises(ParameterError, match="one experiment or more"):
        evaluate_cities([town.files], [], tmp_path)


def test_equal_cost_gives_each_location_the_same_budget(town: Town, experiment: Experiment, tmp_path: Path) -> None:
    setting = experiment.settings[1].replaced(methods=("lp_markov1", "lp"), equal_cost=True)
    known = setting.replaced(history_weights=(math.inf,), variant="known past")
    one = experiment.replaced(settings=(setting, known), zones=1, destinations=0)
    found = evaluate_cities([town.files], [one], tmp_path, workers=1)
    cost = found.results.filter(measure="epsilon_per_location", zone=ALL_ZONES, variant="equal cost per location")
    assert np.allclose(cost["value"], 6.0)
    assert found.results.filter(method="lp_markov1", variant="known past; equal cost per location")[
        "measure"
    ].to_list() == ["verified", "verified"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(shipped_experiments()))
def test_every_shipped_experiment_runs(town: Town, tmp_path: Path, name: str) -> None:
    shipped = read_experiment(name, quick=True)
    settings = tuple(one.replaced(max_rows=40, max_places=min(12, one.max_places)) for one in shipped.settings)
    small = shipped.replaced(settings=tuple({one.columns: one for one in settings}.values()), gap=0.1, max_tasks=200)
    # Traces of the town tell a place every 15 seconds; blankets are known from the tests alone.
    found = evaluate_cities([town.files], [small], tmp_path, workers=1)
    assert found.violations == ()
    told = found.results.filter(measure="held_out_loss", zone=ALL_ZONES)
    for setting in small.settings:
        assert not told.filter(epsilon=setting.epsilon, eta_km=setting.eta_km, loss_case=setting.loss_case).is_empty()


def broken(results: pl.DataFrame, measure: str, method: str, factor: float) -> pl.DataFrame:
    here = (pl.col("measure") == measure) & (pl.col("method") == method)
    change = pl.when(here).then(pl.col("value") * factor).otherwise(pl.col("value"))
    return results.with_columns(value=change, high=pl.when(here).then(change).otherwise(pl.col("high")))


@pytest.mark.parametrize(
    ("check", "measure", "method", "factor"),
    [
        ("every mechanism is verified", "verified", "expmech", 0.0),
        ("same domain and same walks for all", "held_out_steps", "lp", 0.5),
        ("same domain and same walks for all", "places", "constopt", 2.0),
        ("no more than ε is spent", "epsilon_effective", "expmech", 2.0),
        ("no more than ε is spent", "leakage_max", "lp", 2.0),
        ("no loss below that without privacy", "design_loss", "lp_markov1", 0.1),
        ("no loss below that without privacy", "lower_bound", "lp_markov1", 10.0),
        ("context never costs more", "lp_loss_on_rows", "lp_markov1", 0.5),
        ("LP ≤ ConstOPT ≤ ExpMech, remapping never costs", "design_loss", "constopt", 3.0),
        ("LP ≤ ConstOPT ≤ ExpMech, remapping never costs", "design_loss", "expmech", 0.7),
        ("not worse than LP on held-out walks", "gain_over_lp", "lp_markov1", -5.0),
    ],
)
def test_a_broken_comparison_is_noticed(
    found: Evaluation, check: str, measure: str, method: str, factor: float
) -> None:
    assert check in {one.check for one in check_results(broken(found.results, measure, method, factor))}


def test_a_loss_that_rises_with_epsilon_is_noticed(found: Evaluation) -> None:
    here = (pl.col("epsilon") == 6.0) & (pl.col("measure") == "lower_bound")
    risen = found.results.with_columns(value=pl.when(here).then(pl.col("value") * 5).otherwise(pl.col("value")))
    assert "loss falls as ε grows" in {one.check for one in check_results(risen)}


@pytest.mark.parametrize("name", shipped_experiments())
def test_each_setting_has_a_name_of_its_own(name: str) -> None:
    settings = read_experiment(name).settings
    assert len({running._named(setting) for setting in settings}) == len(settings)
