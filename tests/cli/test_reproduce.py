from __future__ import annotations

import json
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from geoblanket import __version__
from geoblanket.blanket.models import NetworkOptions
from geoblanket.cli.main import app
from geoblanket.errors import InputError, MismatchError
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import make_city
from geoblanket.lab.evaluate import running
from geoblanket.lab.evaluate.results import read_results
from geoblanket.lab.study import cities
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.roads.importer import import_roads

EXPERIMENT = """
title = "A small comparison"
zones = 2
destinations = 40
gap = 0.2
max_tasks = 100
reports = [2]
[setting]
max_places = 10
max_rows = 20
methods = ["lp_cmdp", "lp", "expmech", "tight"]
[[vary]]
epsilon = 1
[[vary]]
epsilon = 6
methods = ["lp_markov1", "lp"]
equal_cost = true
[[vary]]
city_wide = true
epsilon = 4
methods = ["lattice"]
"""
OWN = """
import numpy as np

def bumps(problem):
    bumps = np.exp(-problem.epsilon / 2 * problem.distance_km)
    return bumps / bumps.sum(axis=1, keepdims=True)
"""
COLUMNS = {
    "city", "experiment", "method", "label", "promise", "discloses", "compared_at", "epsilon", "variant", "spacing_m",
    "interval_s", "loss_case", "cost_per_location", "unit", "loss", "loss_low", "loss_high", "tracked_error_km",
    "tracked_error_km_low", "tracked_error_km_high", "vehicles", "steps", "verified", "effective_epsilon",
    "lower_bound", "proven_gap", "split", "version",
}  # fmt: skip
MEASURES = {
    "loss": "held_out_loss",
    "tracked_error_km": "tracked_error",
    "cost_per_location": "epsilon_per_location",
    "effective_epsilon": "epsilon_effective",
    "lower_bound": "lower_bound",
    "proven_gap": "gap",
}


def write_raw_city(folder: Path) -> None:
    """Write the files of Porto's formats: tables of roads, and trips as in train.csv."""
    write_city(make_city("small"), folder, trips=300, formats=["porto"])
    graph, _ = import_roads([folder / "roads.osm.pbf"])
    pl.DataFrame({"osmid": graph.node_ids, "y": graph.lat, "x": graph.lon}).write_csv(folder / "nodes.csv")
    edges = {
        "u": graph.node_ids[graph.sources],
        "v": graph.node_ids[graph.targets],
        "highway": [ROAD_CLASSES[number] for number in graph.road_class],
        "length": graph.length_m,
    }
    pl.DataFrame(edges).write_csv(folder / "edges.csv")
    (folder / "porto.csv").rename(folder / "train.csv")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    write_raw_city(folder / "porto")
    (folder / "small.toml").write_text(EXPERIMENT, encoding="utf-8")
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    return folder


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Let Porto lie where the made-up city does, and train its predictor for a moment only."""
    porto = replace(cities.CITY_SOURCES["porto"], regions="grid:44.9,45.1,-30.1,-29.9,2,2", time_zone="UTC")
    setting = replace(cities.SETTINGS["ours"], spacing_m=400.0, network=NetworkOptions(most_epochs=5))
    patch.setitem(cities.CITY_SOURCES, "porto", porto)
    patch.setitem(cities.SETTINGS, "ours", setting)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def run(raw: Path, out: Path, *words: object) -> tuple[int, str, BaseException | None]:
    command = ["reproduce", "porto", "--data", raw, "--out", out, "--experiment", raw / "small.toml"]
    usual = ["--set", "workers=1"] + (
        [] if "study=true" in words else ["--set", "report=false", "--set", "study=false"]
    )
    result = CliRunner().invoke(app, [str(word) for word in (*command, *usual, *words)])
    return result.exit_code, result.stderr, result.exception


@pytest.fixture(scope="module")
def finished(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one run, from the raw files on."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        code, talk, error = run(raw, folder)
    assert code == 0, (talk, error)
    return folder


def rows_of(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((folder / "results.json").read_text("utf-8"))["rows"]
    return rows


def test_every_method_has_a_row_that_equals_the_table(finished: Path) -> None:
    results, about = read_results(finished)
    rows = rows_of(finished)
    assert all(set(row) == COLUMNS for row in rows)
    expected = [("lp_cmdp", 1), ("lp", 1), ("expmech", 1), ("lp_markov1", 6), ("lp", 6), ("lattice", 4), ("tight", 1)]
    assert {(row["method"], row["epsilon"]) for row in rows} == set(expected)
    keys = [(row["method"], row["epsilon"], row["loss_case"]) for row in rows]
    assert len(keys) == len(set(keys))
    for row in rows:
        same = {"method": row["method"], "epsilon": row["epsilon"], "variant": row["variant"]}
        of_all = results.filter(pl.col("zone") < 0).filter(**same)
        for column, measure in MEASURES.items():
            found = of_all.filter(measure=measure)
            if column == "loss":
                found = found.filter(loss_case=row["loss_case"])
            assert [row[column]] == (found["value"].to_list() or [None]), (row["method"], column)
            if f"{column}_low" in row and row[column] is not None:
                assert [row[f"{column}_low"], row[f"{column}_high"]] == [found["low"][0], found["high"][0]]
        assert row["version"] == about["software"]["geoblanket"] == __version__
        assert row["split"] == "20% of the vehicles held out, drawn with seed 0"


def test_nothing_is_learned_from_held_out_vehicles(finished: Path) -> None:
    walks = finished / "porto" / "walks.parquet"
    parts = split_walks(scan_walks(walks)[0], path=walks, part="held_out", split=Split())
    vehicle = pl.read_parquet(walks, columns=["walk", "vehicle"])
    held_out = set(vehicle.filter(pl.col("walk").is_in(parts.walks[parts.chosen].tolist()))["vehicle"])
    used = set(pl.read_parquet(finished / "porto" / "walks-train.parquet", columns=["vehicle"])["vehicle"])
    assert held_out
    assert used == set(vehicle["vehicle"]) - held_out


def test_rows_tell_what_may_be_compared(finished: Path) -> None:
    rows = {(row["method"], row["epsilon"]): row for row in rows_of(finished) if row["loss_case"] == "population"}
    context, plain, city = rows["lp_cmdp", 1.0], rows["lp", 1.0], rows["lattice", 4.0]
    assert context["promise"] == plain["promise"] == "histories within 5 km, the place before at weight 1"
    assert context["discloses"] == "the zone, of at most 10 places"
    assert (city["promise"], city["discloses"]) == ("any two places of the city", "nothing")
    assert plain["cost_per_location"] == 1.0
    assert context["cost_per_location"] > 1.0  # type: ignore[operator]
    assert {rows[method, 6.0]["compared_at"] for method in ("lp_markov1", "lp")} == {"cost of a location"}
    assert rows["lp_markov1", 6.0]["cost_per_location"] == pytest.approx(6.0, abs=1e-5)
    assert 0 <= context["proven_gap"] <= 0.2  # type: ignore[operator]
    assert rows["expmech", 1.0]["proven_gap"] is None
    no_mechanism = rows["tight", 1.0]
    assert (no_mechanism["verified"], no_mechanism["loss"]) == (False, None)
    assert all(row["verified"] for row in rows.values() if row is not no_mechanism)


def test_an_interrupted_run_ends_with_the_same_file(
    raw: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished / "porto", tmp_path / "porto")
    with monkeypatch.context() as patch:
        patch.setattr(running, "track_city", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        code, talk, _ = run(raw, tmp_path)
    assert code == 130
    assert "continue with --resume" in talk
    assert not (tmp_path / "results.json").exists()
    assert run(raw, tmp_path, "--resume")[0] == 0
    assert rows_of(tmp_path) == rows_of(finished)
    # A finished run is read, and not made again.
    monkeypatch.setattr(running, "compare_zone", lambda _: pytest.fail("it is finished"))
    assert run(raw, tmp_path, "--resume")[0] == 0
    code, _, error = run(raw, tmp_path, "--resume", "--set", "tracking=false")
    assert code == 1
    assert isinstance(error, MismatchError)


def test_a_mechanism_of_ones_own_joins(raw: Path, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "porto", tmp_path / "porto")
    own = f"{raw / 'own.py'}:bumps"
    code, talk, error = run(raw, tmp_path, "--method", own, "--set", "tracking=false")
    assert code == 0, (talk, error)
    rows = [row for row in rows_of(tmp_path) if row["label"] == "bumps"]
    assert {(row["epsilon"], row["discloses"]) for row in rows} >= {(1.0, "the zone, of at most 10 places")}
    assert all(row["verified"] and row["effective_epsilon"] <= row["epsilon"] for row in rows)  # type: ignore[operator]
    others = [row["loss"] for row in rows_of(finished) if row["method"] == "lp"]
    assert others == [row["loss"] for row in rows_of(tmp_path) if row["method"] == "lp"]


def test_of_many_points_trips_are_drawn(raw: Path, tmp_path: Path) -> None:
    setting = replace(cities.SETTINGS["ours"], max_points=2000)
    preparation = cities._Preparation(
        cities.CITY_SOURCES["porto"], setting, raw / "porto", tmp_path, 1, lambda *_: None
    )
    preparation.traces(tmp_path / "part.parquet")
    replace(preparation, setting=cities.SETTINGS["ours"]).traces(tmp_path / "all.parquet")
    part, whole = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("part", "all"))
    assert 1500 < part.height <= 2000 < whole.height
    assert part.equals(whole.filter(pl.col("trip").is_in(part["trip"].unique().implode())))  # whole trips


@pytest.mark.parametrize(("missing", "wanted"), [("train.csv", "Kaggle, ECML/PKDD 15"), ("nodes.csv", "train.csv")])
def test_a_missing_file_is_named_and_where_to_get_it(raw: Path, tmp_path: Path, missing: str, wanted: str) -> None:
    shutil.copytree(raw / "porto", tmp_path / "porto")
    (tmp_path / "porto" / missing).unlink()
    result = CliRunner().invoke(app, ["reproduce", "porto", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, InputError)
    assert missing in str(result.exception)
    assert wanted in str(result.exception)


def test_results_are_not_replaced(raw: Path, finished: Path) -> None:
    before = (finished / "results.json").read_bytes()
    assert run(raw, finished)[0] == 1
    assert (finished / "results.json").read_bytes() == before
    words = ["reproduce", "paris", "--data", str(raw), "--out", str(finished)]
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.slow
def test_the_whole_command_writes_a_page_with_the_papers_claims(raw: Path, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "porto", tmp_path / "porto")
    code, talk, error = run(raw, tmp_path, "--set", "study=true")
    assert code == 0, (talk, error)
    assert "The paper's numbers and ours" in unescape((tmp_path / "report" / "report.html").read_text("utf-8"))
    claims = pl.read_csv(tmp_path / "claims.csv")
    assert "ours (Porto)" in claims.columns
    rejected = claims.filter(pl.col("claim") == "rejected at |B| = 1")["ours (Porto)"].item()
    assert rejected != "–"  # of the study
