"""Data frames instead of files: the same results, and errors that list columns and never a value."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from geoblanket import (
    Bundle,
    InputError,
    MismatchError,
    ParameterError,
    Reading,
    TrainingBudget,
    TrainingLedger,
    Walks,
    choose_places,
    discover,
    import_traces,
    learn_motion,
    learn_privately,
    load_bundle,
    match_traces,
    perturb_traces,
    perturb_walks,
    scan_walks,
    track_table,
)
from geoblanket._frames import to_polars
from geoblanket.release import perturb_points
from geoblanket.tracking.released import ReleasedTable
from tests.mobility.simulator import drive, town, write_traces
from tests.release.worlds import GRAPH, PLACES, save_certain, save_walks

SECRET = "41.15794"  # noqa: S105  # a location
WALKED = [[0, 1, 2, 7, 8, 13], [12, 13, 14, 9, 4, 3], [20, 21, 16, 11, 6, 5], [3, 4, 9, 14, 13]]


class ArrowOnly:
    """A frame of some library, of which nothing is known but its stream of Arrow."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def as_pandas(frame: pl.DataFrame) -> Any:
    """By NumPy and lists, as people make them; times in a zone that is not UTC."""
    columns = {name: frame[name].to_list() for name in frame.columns}
    for name, values in columns.items():
        if isinstance(frame.schema[name], pl.Datetime):
            columns[name] = pd.to_datetime(pd.Series(values)).dt.tz_convert("Asia/Kathmandu")
    return pd.DataFrame(columns)


FRAMES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "lazy": lambda frame: frame.lazy(),
    "pandas": as_pandas,
    "arrow": ArrowOnly,
    "columns in another order, one more": lambda frame: frame.select(pl.lit(1).alias("else"), *frame.columns[::-1]),
    "rows in another order": lambda frame: frame.sort("time", descending=True),
    "names as categories": lambda frame: frame.with_columns(pl.col("vehicle").cast(pl.Categorical)),
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_certain(tmp_path_factory.mktemp("town") / "town.bundle"))


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    GRAPH.save(tmp_path / "town.roads")
    return tmp_path / "town.roads"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces.parquet", drive(GRAPH, 4, noise_m=6.0, seed=1))


@pytest.fixture
def walks(tmp_path: Path) -> Path:
    return save_walks(tmp_path / "walks.parquet", WALKED)


def walks_of(path: Path, make: Callable[[pl.DataFrame], Any] = lambda frame: frame) -> Walks:
    return Walks(make(pl.read_parquet(path)), places=PLACES, interval_s=30)


@pytest.mark.parametrize("kind", FRAMES)
def test_traces_of_a_frame_are_matched_as_those_of_a_file(
    kind: str, traces: Path, roads: Path, tmp_path: Path, temporary: Path
) -> None:
    expected = match_traces(traces, roads, tmp_path / "a.parquet", workers=1)
    frame = FRAMES[kind](pl.read_parquet(traces))
    assert match_traces(frame, roads, tmp_path / "b.parquet", workers=1) == expected
    assert pl.read_parquet(tmp_path / "b.parquet").equals(pl.read_parquet(tmp_path / "a.parquet"))
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("kind", ["lazy", "pandas", "rows in another order"])
def test_walks_of_a_frame_are_learned_from_as_those_of_a_file(kind: str, walks: Path) -> None:
    expected = learn_motion(GRAPH, PLACES, walks=walks, order=1)
    model = learn_motion(GRAPH, PLACES, walks=walks_of(walks, FRAMES[kind]), order=1)
    np.testing.assert_array_equal(model.targets, expected.targets)
    np.testing.assert_array_equal(model.chances, expected.chances)
    assert model.interval_s == 30
    assert model.training.in_words() == "learned without privacy for those in the traces"


def test_some_walks_of_a_file_may_keep_their_numbers(bundle: Bundle, walks: Path, roads: Path, tmp_path: Path) -> None:
    rows, _ = scan_walks(walks)
    some = Walks(rows.filter(pl.col("walk") % 2 == 1).drop("speed_m_s"), places=PLACES, interval_s=30)
    summary = perturb_walks(some, roads, tmp_path / "released.parquet", bundle=bundle)
    assert summary.reports == len(WALKED[1]) + len(WALKED[3])
    assert pl.read_parquet(tmp_path / "released.parquet")["walk"].unique().sort().to_list() == [0, 1]


@pytest.mark.parametrize("kind", ["lazy", "pandas", "columns in another order, one more"])
def test_reports_of_a_frame_are_tracked_as_those_of_a_file(
    kind: str, bundle: Bundle, walks: Path, roads: Path, tmp_path: Path
) -> None:
    perturb_walks(walks, roads, tmp_path / "released.parquet", bundle=bundle)
    expected = track_table(tmp_path / "released.parquet", tmp_path / "a.parquet", bundle=bundle)
    frame = FRAMES[kind](pl.read_parquet(tmp_path / "released.parquet"))
    assert track_table(frame, tmp_path / "b.parquet", bundle=bundle) == expected
    assert pl.read_parquet(tmp_path / "b.parquet").equals(pl.read_parquet(tmp_path / "a.parquet"))
    # A frame does not name the bundle that made it: what is learned from it cannot state an ε.
    assert ReleasedTable(frame, bundle).statement.epsilon is None
    assert ReleasedTable(tmp_path / "released.parquet", bundle).statement.epsilon == bundle.costs.largest_per_km


def test_reports_that_the_bundle_cannot_have_made_are_refused(
    bundle: Bundle, walks: Path, roads: Path, tmp_path: Path
) -> None:
    perturb_walks(walks, roads, tmp_path / "released.parquet", bundle=bundle)
    frame = pl.read_parquet(tmp_path / "released.parquet")
    with pytest.raises(MismatchError, match="do not lie at places or cells"):
        track_table(frame.with_columns(pl.col("lat") + 1e-4), tmp_path / "b.parquet", bundle=bundle)
    with pytest.raises(InputError, match="data frame: report 1 of the table has a place that the bundle does not have"):
        track_table(frame.with_columns(place=10**6), tmp_path / "b.parquet", bundle=bundle)
    with pytest.raises(InputError, match="has no column 'place', 'lat'"):
        track_table(frame.drop("place", "lat"), tmp_path / "b.parquet", bundle=bundle)


@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "arrow"])
def test_a_frame_is_imported_as_its_file(kind: str, traces: Path, tmp_path: Path) -> None:
    table = pl.read_parquet(traces).rename({"vehicle": "taxi", "lat": "y"})
    table.write_parquet(tmp_path / "own.parquet")
    columns = {"vehicle": "taxi", "lat": "y"}
    expected = import_traces(tmp_path / "own.parquet", tmp_path / "a.parquet", reading=Reading(columns=columns))
    frame = FRAMES[kind](table)
    summary = import_traces(frame, tmp_path / "b.parquet", reading=Reading(columns=columns))
    assert summary.to_json() == expected.to_json()
    assert pl.read_parquet(tmp_path / "b.parquet").equals(pl.read_parquet(tmp_path / "a.parquet"))
    assert summary.files == [Path("data frame")]


def test_frames_and_files_are_imported_together(traces: Path, tmp_path: Path) -> None:
    table = pl.read_parquet(traces)
    first, second = (table.filter(pl.col("trip") % 2 == part) for part in (0, 1))
    second.write_parquet(tmp_path / "second.parquet")
    together = import_traces([as_pandas(first), str(tmp_path / "second.parquet")], tmp_path / "a.parquet")
    assert together.to_json() == import_traces(str(traces), tmp_path / "b.parquet").to_json()
    assert pl.read_parquet(tmp_path / "a.parquet").equals(pl.read_parquet(tmp_path / "b.parquet"))


def test_times_of_pandas_without_a_zone_need_one(tmp_path: Path) -> None:
    local = pd.date_range("2024-07-01 12:00", periods=3, freq="10s")
    frame = pd.DataFrame({"vehicle": "a", "time": local, "lat": 41.15794, "lon": [-8.61, -8.611, -8.612]})
    with pytest.raises(InputError, match="data frame: the times have no UTC offset"):
        import_traces(frame, tmp_path / "a.parquet")
    import_traces(frame, tmp_path / "a.parquet", reading=Reading(time_zone="Europe/Rome"))
    assert pl.read_parquet(tmp_path / "a.parquet")["time"][0] == datetime(2024, 7, 1, 10, tzinfo=UTC)


MISSING = pd.NaT


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, 2, None]), pl.Series([1.0, 2.0, None])),
        (pd.Series([2**62 + 1, 2, None], dtype="Int64"), pl.Series([2**62 + 1, 2, None])),
        (pd.Series([1.5, None], dtype="Float64"), pl.Series([1.5, None])),
        (pd.Series([1, 2], dtype="int16"), pl.Series([1, 2], dtype=pl.Int16)),
        (pd.Series([True, None], dtype="boolean"), pl.Series([True, None])),
        (pd.Series(["a", None, "b"]), pl.Series(["a", None, "b"])),
        (pd.Series(["a", None, "b"], dtype="string"), pl.Series(["a", None, "b"])),
        (pd.Series(["a", np.nan, "b"], dtype=object), pl.Series(["a", None, "b"])),
        (pd.Series(["a", None, "a"], dtype="category"), pl.Series(["a", None, "a"])),
        (pd.Series([7, 8, 7]).astype("category"), pl.Series([7, 8, 7])),
        (pd.Series(["2024-01-01", MISSING], dtype="datetime64[s]"), pl.Series([datetime(2024, 1, 1), None])),
        (
            pd.Series(pd.to_datetime(["2024-07-01 12:00:00.123456", None])).dt.tz_localize("Europe/Rome"),
            pl.Series([datetime(2024, 7, 1, 10, 0, 0, 123456, tzinfo=UTC), None]),
        ),
        (
            pd.Series(pd.to_datetime(["2024-07-01 12:00"]).tz_localize("UTC").astype("datetime64[ns, UTC]")),
            pl.Series([datetime(2024, 7, 1, 12, tzinfo=UTC)]),
        ),
        (pd.Series([datetime(2024, 7, 1, tzinfo=UTC)], dtype=object), pl.Series([datetime(2024, 7, 1, tzinfo=UTC)])),
    ],
)
def test_columns_of_pandas(column: Any, expected: pl.Series) -> None:
    made = to_polars(pd.DataFrame({"a": column, "b": 0}), ["a"]).collect()["a"]
    assert made.dtype == expected.dtype
    assert made.to_list() == expected.to_list()


def test_what_is_in_an_index_or_in_other_columns_of_pandas_makes_no_difference() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "odd": [object(), (1, 2), "x"], 3: 0}, index=[5, 5, 7])[1:]
    assert to_polars(frame, ["a"]).collect()["a"].to_list() == [2, 3]
    with pytest.raises(InputError, match="column 'odd' holds values of several types"):
        to_polars(frame, ["odd"])
    with pytest.raises(InputError, match="more than one column 'a'"):
        to_polars(pd.DataFrame([[1, 2]], columns=["a", "a"]), ["a"])


WRONG_TRACES = {
    "has no column 'lat', which traces have. It has vehicle, trip, time, lon, latitude": lambda frame: frame.select(
        "vehicle", "trip", "time", "lon", latitude="lat"
    ),
    "column 'lat' must hold numbers. Got String instead": lambda frame: frame.with_columns(lat=pl.lit(SECRET)),
    "column 'trip' must hold whole numbers. Got Float64 instead": lambda frame: frame.with_columns(
        pl.col("trip").cast(pl.Float64)
    ),
    "must hold times with a time zone": lambda frame: frame.with_columns(pl.col("time").dt.replace_time_zone(None)),
    "must hold times. Got Int64": lambda frame: frame.with_columns(pl.col("time").to_physical()),
    "column 'vehicle' must hold names": lambda frame: frame.with_columns(vehicle=pl.lit(41.15794)),
    "some trips have several vehicles": lambda frame: frame.with_columns(trip=pl.lit(0)),
    "Some columns are named by values": lambda frame: frame.rename({"lat": SECRET}),
    "cannot be computed": lambda frame: frame.lazy().with_columns(trip=pl.lit(SECRET).cast(pl.Int64)),
    "has points without a vehicle, a trip, a time or a place on Earth": lambda frame: frame.with_columns(
        lat=pl.lit(None, pl.Float64)
    ),
}


@pytest.mark.parametrize("problem", WRONG_TRACES)
def test_what_is_wrong_with_traces_is_said_without_a_value(
    problem: str, traces: Path, roads: Path, tmp_path: Path, temporary: Path
) -> None:
    frame = WRONG_TRACES[problem](pl.read_parquet(traces))
    for given in (frame, as_pandas(frame)) if isinstance(frame, pl.DataFrame) and "time" not in problem else (frame,):
        with pytest.raises(InputError) as raised:
            match_traces(given, roads, tmp_path / "walks.parquet", workers=1)
        assert problem in str(raised.value) or (given is not frame and "Null" in str(raised.value))
        assert str(raised.value).startswith("data frame: ")
        assert SECRET not in str(raised.value)
        assert "temporary" not in str(raised.value)
    assert not list(temporary.iterdir())


def test_a_bare_frame_of_walks_is_told_what_is_missing(walks: Path, roads: Path) -> None:
    with pytest.raises(ParameterError, match=r"Give Walks\(frame, places=..., interval_s=...\)"):
        discover(pl.read_parquet(walks), roads)


WRONG_WALKS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "does not follow the step before it": lambda frame: frame.filter(pl.col("step") != 2),
    "has a place that the roads do not have": lambda frame: frame.with_columns(place=len(PLACES)),
    "some steps of a walk are not 30 s apart": lambda frame: frame.with_columns(
        pl.col("time") + pl.duration(seconds=pl.col("step"))
    ),
    "or not of one vehicle and trip": lambda frame: frame.with_columns(trip="step"),
    "not of one vehicle": lambda frame: frame.with_columns(vehicle="step"),
    "some steps have no trip or no time": lambda frame: frame.with_columns(time=pl.lit(None, frame.schema["time"])),
    "has no column 'walk', 'step', which walks have": lambda frame: frame.drop("walk", "step"),
    "cannot be computed as a table of walks": lambda frame: frame.with_columns(place=2**40),
}


@pytest.mark.parametrize("problem", WRONG_WALKS)
def test_what_is_wrong_with_walks_is_said(problem: str, walks: Path) -> None:
    with pytest.raises(InputError, match="data frame: ") as raised:
        learn_motion(GRAPH, PLACES, walks=walks_of(walks, WRONG_WALKS[problem]))
    assert problem in str(raised.value)


def test_walks_between_other_places_are_refused(walks: Path) -> None:
    others = choose_places(town(3, 3))
    rows = pl.read_parquet(walks).with_columns(place=pl.lit(0, pl.Int32))
    with pytest.raises(MismatchError) as raised:
        learn_motion(GRAPH, PLACES, walks=Walks(rows, places=others, interval_s=30))
    assert "data frame" in str(raised.value)


def test_learning_with_privacy_from_a_frame_names_its_ledger(walks: Path, tmp_path: Path, temporary: Path) -> None:
    budget = TrainingBudget.of(1, 1e-6, unit="trip")
    with pytest.raises(ParameterError, match="have no ledger beside them"):
        learn_privately(GRAPH, PLACES, walks_of(walks), budget=budget, order=1)
    ledger = TrainingLedger(tmp_path / "spent.json")
    learn_privately(GRAPH, PLACES, walks_of(walks), budget=budget, order=1, ledger=ledger)
    model = learn_privately(GRAPH, PLACES, walks_of(walks), budget=budget, order=1, ledger=ledger)
    assert model.training.promise is not None
    assert model.training.promise.rho_before == pytest.approx(budget.rho)
    assert not list(temporary.iterdir())


def test_a_frame_has_no_format_of_a_city(traces: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"A data frame has the format 'table'\. Got 'porto' instead"):
        import_traces(pl.read_parquet(traces), tmp_path / "a.parquet", format="porto")


def test_what_is_neither_path_nor_frame_is_named(bundle: Bundle, roads: Path, tmp_path: Path) -> None:
    calls: list[Callable[[Any], object]] = [
        lambda wrong: match_traces(wrong, roads, tmp_path / "a"),
        lambda wrong: perturb_traces(wrong, roads, tmp_path / "a", bundle=bundle),
        lambda wrong: perturb_points(wrong, tmp_path / "a", bundle=bundle),
        lambda wrong: track_table(wrong, tmp_path / "a", bundle=bundle),
        lambda wrong: perturb_walks(wrong, roads, tmp_path / "a", bundle=bundle),
    ]
    for call in calls:
        for wrong in (GRAPH, 3, None, ["a"]):
            with pytest.raises(ParameterError, match=r"must be a path or a data frame\. Got \w+ instead"):
                call(wrong)
