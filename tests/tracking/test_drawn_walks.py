from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._arrays import Floats, Ints, Singles
from geoblanket._geodesy import haversine_m
from geoblanket.errors import MismatchError, OutputError, ParameterError
from geoblanket.loss.tasks import TaskPrior
from geoblanket.mobility.histories import count_histories
from geoblanket.mobility.walks import WALKS_SCHEMA, scan_walks
from geoblanket.roads.places import choose_places
from geoblanket.tracking import synthetic_walks
from geoblanket.tracking.learning import learn_motion, model_of_counts
from geoblanket.tracking.motion_model import LENGTH_BINS, MotionModel, TripShape, length_bin
from geoblanket.tracking.synthetic_walks import DRAWN, PlaceDrawer, count_steps, draw_walks, drive, places_of_model
from tests.memory import peak_mib
from tests.release.worlds import GRAPH, PLACES
from tests.roads.graphs import grid_graph
from tests.tracking.chains import make_model
from tests.tracking.worlds import dense, pair_model

HOURS = np.arange(1.0, 25.0)
LENGTHS = np.where(np.arange(LENGTH_BINS) < 10, 10.0 + np.arange(LENGTH_BINS), 0.0)


def shaped(model: MotionModel) -> MotionModel:
    """The model with more trips the later it is, and with trips of up to 45 steps."""
    trips = TripShape.of_counts(1e6 * HOURS, 1e6 * LENGTHS)
    return replace(model, hours=trips.hours, lengths=trips.lengths, learned={"from": "roads", "spacing_m": 0.0})


def drawn(model: MotionModel, path: Path, *, trips: int, vehicles: int) -> pl.DataFrame:
    draw_walks(model, PLACES, path, trips=trips, vehicles=vehicles)
    return pl.read_parquet(path)


def z_scores(counts: Floats | Ints, chances: Floats | Singles) -> Floats:
    """How many standard deviations counts are off, where at least ten are expected."""
    total = counts.sum(axis=-1, keepdims=True)
    expected = total * chances
    off: Floats = (counts - expected) / np.sqrt(np.maximum(expected * (1 - chances), 1e-9))
    frequent: Floats = off[expected >= 10]
    return frequent


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[MotionModel, pl.DataFrame]:
    model = shaped(pair_model(seed=1))
    return model, drawn(model, tmp_path_factory.mktemp("drawn") / "walks.parquet", trips=40_000, vehicles=70)


def test_two_places_by_hand() -> None:
    """From 0 to 1 with a chance of 1/4, back with 1/2: shares of places after k steps by the power of a matrix."""
    model = make_model([(0,), (1,)], {(0, 0): 0.75, (0, 1): 0.25, (1, 0): 0.5, (1, 1): 0.5}, [0.9, 0.1])
    place = PlaceDrawer(model).places(np.full(40_000, 4), np.random.default_rng(0)).reshape(-1, 4)
    for step, share in enumerate([0.1, 0.275, 0.31875, 0.3296875]):
        assert place[:, step].mean() == pytest.approx(share, abs=0.01)
    assert (place[:, 1] > place[:, 0]).mean() == pytest.approx(0.9 * 0.25, abs=0.01)


def test_trips_of_any_length_end_where_they_should() -> None:
    """Three places one after the other, for ever: a trip's places follow from its first one."""
    model = make_model([(0,), (1,), (2,)], {(0, 1): 1.0, (1, 2): 1.0, (2, 0): 1.0}, [0.2, 0.3, 0.5])
    steps = np.random.default_rng(3).integers(1, 40, 500)
    place = PlaceDrawer(model).places(steps, np.random.default_rng(4))
    for trip in np.split(place, np.cumsum(steps)[:-1]):
        assert trip.tolist() == [(trip[0] + step) % 3 for step in range(len(trip))]
    assert len(PlaceDrawer(model).places(np.zeros(0, np.int64), np.random.default_rng(0))) == 0


def test_moves_that_cannot_be_are_not_drawn() -> None:
    moves = {(0, 0): 0.0, (0, 1): 1.0, (0, 2): 0.0, (1, 0): 1.0, (1, 1): 0.0, (2, 2): 1.0}
    model = make_model([(0,), (1,), (2,)], moves, [0.5, 0.5, 0.0])
    place = PlaceDrawer(model).places(np.full(2000, 30), np.random.default_rng(0)).reshape(-1, 30)
    assert set(np.unique(place)) == {0, 1}
    assert (np.diff(place, axis=1) != 0).all()


def test_starts_are_those_of_the_model(table: tuple[MotionModel, pl.DataFrame]) -> None:
    model, walks = table
    starts = np.bincount(walks.filter(step=0)["place"].to_numpy(), minlength=24)
    assert np.abs(z_scores(starts, model.to_places @ model.start)).max() < 4


def test_moves_are_those_of_the_model(table: tuple[MotionModel, pl.DataFrame]) -> None:
    """By the last two places, as the states of this model are: a chi-square test of all rows together."""
    model, walks = table
    number = np.full((24, 24), -1)
    number[model.states[:, 0], model.states[:, 1]] = np.arange(len(model))
    place, step = walks["place"].to_numpy(), walks["step"].to_numpy()
    later = np.flatnonzero(step >= 2)
    before = number[place[later - 1], place[later - 2]]
    seen = np.zeros((len(model), len(model)))
    np.add.at(seen, (before, number[place[later], place[later - 1]]), 1)
    chances = dense(model)
    off = z_scores(seen, chances / chances.sum(axis=1, keepdims=True))
    assert len(off) > 500
    assert np.mean(off**2) == pytest.approx(1.0, abs=0.2)
    assert not seen[chances == 0].any()


def test_hours_and_lengths_are_those_of_the_model(table: tuple[MotionModel, pl.DataFrame]) -> None:
    model, walks = table
    trips = walks.group_by("walk").agg(pl.col("time").min().dt.hour().alias("hour"), pl.len().alias("steps"))
    hours = np.bincount(trips["hour"].to_numpy(), minlength=24)
    lengths = np.bincount(length_bin(trips["steps"].to_numpy()), minlength=LENGTH_BINS)
    assert np.abs(z_scores(hours, model.hours)).max() < 4
    assert np.abs(z_scores(lengths, model.lengths)).max() < 4
    within = trips.filter(pl.col("steps").is_between(23, 31))["steps"].value_counts()
    assert within.height == 9
    assert np.abs(z_scores(within["count"].to_numpy(), np.full(9, 1 / 9))).max() < 4


def test_a_vehicle_is_nowhere_twice(table: tuple[MotionModel, pl.DataFrame]) -> None:
    _, walks = table
    trips = walks.group_by("vehicle", "walk").agg(
        pl.col("time").min().alias("start"), pl.col("time").max().alias("end")
    )
    trips = trips.sort("vehicle", "walk")
    assert trips["vehicle"].n_unique() == 70
    follows = (trips["vehicle"] == trips["vehicle"].shift(1)) & (
        trips["start"] < trips["end"].shift(1) + timedelta(seconds=30)
    )
    assert not follows.fill_null(False).any()


def test_rows_are_as_those_of_matched_walks(table: tuple[MotionModel, pl.DataFrame]) -> None:
    model, walks = table
    assert dict(walks.schema) == dict(WALKS_SCHEMA)
    assert walks["walk"].unique().sort().to_list() == list(range(40_000))
    later = walks.with_columns(
        walks.select("walk", "step", "place", "time").shift(1).rename(lambda name: f"last_{name}")
    )
    first, rest = later.filter(step=0), later.filter(pl.col("step") > 0)
    assert first["speed_m_s"].null_count() == first.height
    assert (rest["walk"] == rest["last_walk"]).all()
    assert (rest["step"] == rest["last_step"] + 1).all()
    assert ((rest["time"] - rest["last_time"]) == timedelta(seconds=30)).all()
    here, there = rest["place"].to_numpy(), rest["last_place"].to_numpy()
    speed = haversine_m(model.lat[there], model.lon[there], model.lat[here], model.lon[here]) / 30
    np.testing.assert_allclose(rest["speed_m_s"].to_numpy(), speed, rtol=1e-5, atol=1e-4)


def test_learning_from_drawn_walks_gives_the_model_back(tmp_path: Path) -> None:
    model = shaped(pair_model(seed=2))
    path = tmp_path / "walks.parquet"
    draw_walks(model, PLACES, path, trips=60_000)
    counts = count_histories(path, PLACES, largest=1, part="all")
    driven = count_steps(drive(GRAPH, PLACES, interval_s=30.0, trips=100), largest=1)
    again = model_of_counts(PLACES, driven, counts, order=2, interval_s=30.0, learned={})
    number = {tuple(state): row for row, state in enumerate(again.states.tolist())}
    found = again.moves.toarray()
    columns = np.array([number.get(tuple(state), -1) for state in model.states.tolist()])
    chances, usual = dense(model), model.usual
    assert usual[columns >= 0].sum() > 0.999
    away = [
        usual[row] * np.abs(found[columns[row]][columns] - chances[row]).sum() / 2
        for row in range(len(model))
        if columns[row] >= 0
    ]
    assert sum(away) < 0.03
    shape = learn_motion(GRAPH, PLACES, walks=path).trips
    assert np.abs(shape.hours - model.hours).sum() < 0.02
    assert np.abs(shape.lengths - model.lengths).sum() < 0.02


def test_what_takes_walks_takes_drawn_ones(tmp_path: Path) -> None:
    model = shaped(learn_motion(GRAPH, PLACES))
    path = tmp_path / "walks.parquet"
    walks = drawn(model, path, trips=500, vehicles=20)
    frame, about = scan_walks(path)
    assert (about["roads"], about["spacing_m"], about["interval_s"]) == (GRAPH.identity, 0.0, 30.0)
    assert (about["method"], about["model"], about["training"]) == (DRAWN, model.identity, {"source": "nobody"})
    assert about["counts"] == {"vehicles": 20, "trips": 500, "steps": walks.height}
    assert count_histories(path, PLACES, part="train").count.sum() == pytest.approx(0.8 * (walks.height - 500), rel=0.1)
    assert len(TaskPrior.from_pick_ups(frame, PLACES)) > 10
    assert learn_motion(GRAPH, PLACES, walks=path).learned["from"] == "roads and walks"


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    model = shaped(pair_model())
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        draw_walks(model, PLACES, tmp_path / name, trips=3000, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_memory_does_not_grow_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_walks, "_STEPS_AT_A_TIME", 100_000)
    model = shaped(pair_model())
    draw_walks(model, PLACES, tmp_path / "a", trips=30_000)
    grown_mib, walks = peak_mib(lambda: draw_walks(model, PLACES, tmp_path / "a", trips=200_000))
    assert walks.steps > 3_000_000  # 150 MiB as a whole
    assert grown_mib < 120
    frame, _ = scan_walks(tmp_path / "a")
    assert frame.select(pl.len()).collect().item() == walks.steps


def test_long_steps_and_a_single_vehicle(tmp_path: Path) -> None:
    """A trip of days: the next one starts on the first day on which the vehicle is free, at its own hour."""
    model = shaped(pair_model(interval_s=7200.0))
    walks = drawn(model, tmp_path / "walks", trips=300, vehicles=1)
    starts = walks.filter(step=0)["time"]
    ends = walks.group_by("walk").agg(pl.col("time").max()).sort("walk")["time"] + timedelta(hours=2)
    waits = (starts[1:] - ends[:-1]).dt.total_seconds().to_numpy()
    assert waits.min() >= 0
    assert waits.max() < 86_400


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = shaped(pair_model())
    other = grid_graph(5, 5, step_deg=0.01)
    with pytest.raises(MismatchError, match="other roads"):
        draw_walks(model, choose_places(other), tmp_path / "a")
    with pytest.raises(MismatchError, match="other roads"):
        places_of_model(model, other)
    assert places_of_model(model, GRAPH).identity == PLACES.identity
    with pytest.raises(MismatchError, match="name the spacing"):
        places_of_model(replace(model, learned={}), GRAPH)
    for options in ({"trips": 0}, {"vehicles": 0}, {"trips": 10, "vehicles": 11}, {"trips": 1 << 31}):
        with pytest.raises(ParameterError, match="There must be 1 to"):
            draw_walks(model, PLACES, tmp_path / "a", **options)  # type: ignore[arg-type]  # no progress among them
    with pytest.raises(ParameterError, match="more vehicles"):
        draw_walks(replace(model, interval_s=86_400.0), PLACES, tmp_path / "a", trips=400_000, vehicles=1)
    with pytest.raises(OutputError):
        draw_walks(model, PLACES, tmp_path / "missing" / "a")
    assert list(tmp_path.iterdir()) == []
