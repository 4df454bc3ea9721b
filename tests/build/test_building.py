from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from threadpoolctl import threadpool_limits

from geoblanket._geodesy import local_metres
from geoblanket._tables import write_table
from geoblanket._unfinished import unfinished_path
from geoblanket.build import building
from geoblanket.build.building import ZoneResult, build_bundle, build_zone
from geoblanket.build.config import BuildConfig
from geoblanket.build.inputs import ZoneTask
from geoblanket.build.record import BuildRecord, read_record, record_path
from geoblanket.build.rows import Context
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError
from geoblanket.mechanism.bundle.storage import load_bundle
from geoblanket.mobility.walks import scan_walks
from geoblanket.release import Budget, Device
from geoblanket.roads.distances import road_distances
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.roads.zones import partition_zones, write_zones
from tests.mechanism.bundles import load_zones
from tests.towns import Town, make_town

CONFIG = BuildConfig(epsilon=4.0, order=1, max_places=25, max_rows=50, gap=0.05, compare=True, loss="straight")
SPACING_M = 300.0


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return make_town(tmp_path_factory.mktemp("town"), spacing_m=SPACING_M)


@pytest.fixture(scope="module")
def built(town: Town) -> tuple[Path, BuildRecord]:
    """In one process, with as many threads as most machines would take, which must make no difference."""
    out = town.folder / "town.bundle"
    with threadpool_limits(2, user_api="blas"):
        return out, build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    ) as cluster:
        yield cluster.scheduler_address


def test_every_zone_has_a_verified_mechanism_for_each_regime(town: Town, built: tuple[Path, BuildRecord]) -> None:
    out, record = built
    bundle = load_zones(out)
    graph = RoadGraph.load(town.roads)
    places = choose_places(graph, spacing_m=SPACING_M)
    zones = partition_zones(graph, places, max_places=25)
    assert len(zones) > 2
    assert {(one.zone, one.regime) for one in bundle} == {
        (f"{number}", regime) for number in range(len(zones)) for regime in ("all day", "start")
    }
    assert bundle.clock is not None
    assert (bundle.clock.interval_s, bundle.clock.start) == (30.0, "start")
    assert places.snapping_radius_m(graph) * 1000 <= bundle.snapping_radius_mm <= places.snapping_radius_m(graph) * 1001
    for number in range(len(zones)):
        members = zones.members(number)
        day, start = bundle.get(f"{number}", "all day"), bundle.get(f"{number}", "start")
        assert set(np.unique(day.histories[:, 0])) == set(members)
        assert day.history_weights_micro == (10**6,)
        assert start.history_weights_micro == ()
        assert set(day.output_places) <= set(members)
        assert day.mechanism.epsilon == 4.0
    assert record.bundle_sha256 == bundle.sha256
    assert [(one.zone, one.regime) for one in record.zones] == [(one.zone, one.regime) for one in bundle]


def test_the_record_tells_how_good_it_is(built: tuple[Path, BuildRecord]) -> None:
    out, record = built
    assert read_record(record_path(out)) == record
    assert json.loads(record_path(out).read_text())["config"]["privacy"]["epsilon"] == 4.0
    assert not unfinished_path(out).exists()
    totals = record.totals
    assert sum(zone.share for zone in record.zones) == pytest.approx(1.0)
    assert totals.loss == pytest.approx(sum(zone.share * zone.loss for zone in record.zones))
    assert totals.lower_bound <= totals.loss
    assert totals.largest_gap <= CONFIG.gap
    for zone in record.zones:
        assert zone.context_free_bound is not None
        assert zone.context_free_loss is not None
        # Context can only help in design, as far as the gaps tell.
        assert zone.lower_bound <= zone.context_free_loss
        if zone.regime == "start":
            assert zone.loss == zone.context_free_loss
    held_out, plain = totals.held_out, totals.context_free_held_out
    assert held_out is not None
    assert plain is not None
    steps = sum(zone.held_out.steps for zone in record.zones if zone.held_out is not None)
    assert held_out.steps == plain.steps == steps
    assert held_out.low < held_out.loss < held_out.high
    assert totals.held_out_gain == pytest.approx(1 - held_out.loss / plain.loss)


def test_context_gains_in_design(built: tuple[Path, BuildRecord]) -> None:
    gain = built[1].totals.gain
    assert gain is not None
    assert 0.0 < gain < 1.0


@pytest.mark.parametrize("how", ["two processes", "cluster"])
def test_the_same_inputs_give_the_same_bytes(
    town: Town, built: tuple[Path, BuildRecord], how: str, tmp_path: Path, address: str
) -> None:
    again = tmp_path / "again.bundle"
    where = {"workers": 2} if how == "two processes" else {"cluster": address}
    build_bundle(town.roads, town.walks, again, config=CONFIG, **where)
    assert again.read_bytes() == built[0].read_bytes()


class Stop(Exception):  # noqa: N818 - it stands for any sudden end
    pass


def test_an_interrupted_build_goes_on_where_it_stopped(
    town: Town, built: tuple[Path, BuildRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "town.bundle"
    asked: list[str] = []

    def stop_at_third(task: ZoneTask) -> ZoneResult:
        asked.append(task.name)
        if len(asked) == 3:
            raise Stop
        return build_zone(task)

    monkeypatch.setattr(building, "build_zone", stop_at_third)
    with pytest.raises(Stop):
        build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1)
    assert not out.exists()
    kept = sorted(unfinished_path(out).glob("*.part"))
    assert len(kept) == 2
    with pytest.raises(OutputError, match="Resume it"):
        build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1)
    with pytest.raises(MismatchError, match="another epsilon"):
        build_bundle(
            town.roads, town.walks, out, config=BuildConfig(epsilon=2.0, max_places=25), workers=1, resume=True
        )
    # What is not whole is built again.
    kept[0].write_bytes(kept[0].read_bytes()[:-1])
    effort = unfinished_path(out) / "effort.json"
    assert json.loads(effort.read_text())["seconds"] > 0
    effort.write_text(json.dumps({"seconds": 10_000, "peak_memory_mb": 1e6}))
    record = build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1, resume=True)
    assert len(asked) == 3 + len(record.zones) - 1
    assert 10_000 < record.seconds < 11_000
    assert record.peak_memory_mb == 1e6
    assert out.read_bytes() == built[0].read_bytes()
    assert not unfinished_path(out).exists()


KILLED = """
import sys
from geoblanket.build.building import build_bundle
from tests.build.test_building import CONFIG

build_bundle(sys.argv[1], sys.argv[2], sys.argv[3], config=CONFIG, workers=1)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_kill_or_ctrl_c_loses_nothing_that_was_finished(
    town: Town, built: tuple[Path, BuildRecord], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "town.bundle"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(town.roads), str(town.walks), str(out)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )
    deadline = time.monotonic() + 240
    while not list(unfinished_path(out).glob("[!.]*.part")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    process.wait(60)
    assert not out.exists()
    assert list(unfinished_path(out).glob("[!.]*.part"))
    build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1, resume=True)
    assert out.read_bytes() == built[0].read_bytes()


def test_a_full_disk_leaves_no_part_of_a_bundle(
    town: Town, built: tuple[Path, BuildRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def full(path: Path) -> None:
        synced.append(path)
        # Each file is synced, and then its folder: there is room for what the folder is about, for a zone, and for
        # what it took.
        if len(synced) > 6:
            raise OSError(28, "No space left on device")

    out = tmp_path / "town.bundle"
    with monkeypatch.context() as patch:
        patch.setattr("geoblanket._files.sync_to_disk", full)
        with pytest.raises(OutputError, match="No space left on device"):
            build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1)
    assert not out.exists()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.suffix for path in left) == [".json", ".json", ".part"]
    build_bundle(town.roads, town.walks, out, config=CONFIG, workers=1, resume=True)
    assert out.read_bytes() == built[0].read_bytes()


def test_walks_on_other_roads_are_refused(town: Town, tmp_path: Path) -> None:
    graph = RoadGraph.load(town.roads)
    keep = np.ones(graph.node_count, bool)
    keep[0] = False
    graph.keep_nodes(keep).save(tmp_path / "other.roads")
    with pytest.raises(MismatchError, match="was matched to other roads"):
        build_bundle(tmp_path / "other.roads", town.walks, tmp_path / "a.bundle", config=CONFIG, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["other.roads"]


def test_zones_without_data_are_built_and_told(town: Town, tmp_path: Path) -> None:
    graph = RoadGraph.load(town.roads)
    places = choose_places(graph, spacing_m=SPACING_M)
    zones = partition_zones(graph, places, max_places=25)
    write_zones(tmp_path / "zones.parquet", graph, places, zones)
    walks, about = scan_walks(town.walks)
    elsewhere = walks.filter((pl.col("place").is_in(zones.members(0).tolist())).any().over("walk").not_()).collect()
    kept = elsewhere.with_columns(pl.col("walk").rank("dense").cast(pl.Int64) - 1)
    write_table(kept, tmp_path / "walks.parquet", kind="walks", about=about)
    record = build_bundle(
        town.roads,
        tmp_path / "walks.parquet",
        tmp_path / "a.bundle",
        config=BuildConfig(
            epsilon=2.0, zones=tmp_path / "zones.parquet", order=1, max_rows=50, gap=0.1, loss="straight"
        ),
        workers=1,
    )
    empty = [zone for zone in record.zones if zone.number == 0]
    assert len(empty) == 2
    for zone in empty:
        assert any(note.startswith("no data") for note in zone.notes)
        assert (zone.share, zone.held_out) == (0.0, None)
    assert len(load_zones(tmp_path / "a.bundle")) == 2 * len(zones)


def test_an_infinite_eta_and_a_known_past_are_kept(town: Town, tmp_path: Path) -> None:
    config = BuildConfig(
        epsilon=2.0, eta_km=math.inf, history_weights=(math.inf,), context=Context.of("order:1"), max_places=25,
        max_rows=40, gap=0.2, loss="straight",
    )  # fmt: skip
    record = build_bundle(town.roads, town.walks, tmp_path / "a.bundle", config=config, workers=1)
    assert read_record(record_path(tmp_path / "a.bundle")) == record
    assert record.zones[0].history_weights == (math.inf,)
    assert "the past is taken as known" in str(load_bundle(tmp_path / "a.bundle").promise)


def test_a_zone_may_have_an_epsilon_of_its_own(town: Town, tmp_path: Path) -> None:
    config = BuildConfig(
        epsilon=2.0, zone_epsilon={"1": 6.0}, context=Context.of("none"), max_places=25, gap=0.3, loss="straight"
    )
    record = build_bundle(town.roads, town.walks, tmp_path / "a.bundle", config=config, workers=1)
    assert len({zone.zone for zone in record.zones}) > 2
    assert {(zone.zone == "1", zone.epsilon) for zone in record.zones} == {(True, 6.0), (False, 2.0)}
    bundle = load_zones(tmp_path / "a.bundle")
    assert {(one.zone == "1", one.epsilon_micro) for one in bundle} == {(True, 6_000_000), (False, 2_000_000)}
    assert (bundle.promise.smallest_epsilon, bundle.promise.epsilon) == (2.0, 6.0)
    assert bundle.get("1", "all day").mechanism.certificate.epsilon_effective > 2.0
    with pytest.raises(ParameterError, match="zones that do not exist, 1 of them"):
        build_bundle(town.roads, town.walks, tmp_path / "b.bundle", config=config.replaced(zone_epsilon={"99": 1.0}))
    with pytest.raises(ParameterError, match=r"from 0\.01 to 20"):
        config.replaced(zone_epsilon={"1": 21.0})


@pytest.mark.parametrize(("metric", "unit"), [("road", "km of road"), ("norm:1", "km in ℓ_1")])
def test_the_metric_may_be_another_than_on_the_map(town: Town, tmp_path: Path, metric: str, unit: str) -> None:
    config = BuildConfig(epsilon=4.0, metric=metric, order=1, max_places=25, max_rows=40, gap=0.3, loss="straight")
    out = tmp_path / "a.bundle"
    build_bundle(town.roads, town.walks, out, config=config, workers=1)
    bundle = load_zones(out)
    assert (bundle.header.metric, bundle.unit, bundle.promise.unit) == (metric, unit, unit)
    graph = RoadGraph.load(town.roads)
    places = choose_places(graph, spacing_m=SPACING_M)
    if metric == "road":
        way_m = road_distances(graph, places.nodes, places.nodes)
        true_mm = 1000 * np.maximum(way_m, way_m.T)
    else:
        x, y = local_metres(places.lat, places.lon, origin_lat=places.lat.mean(), origin_lon=places.lon.mean())
        true_mm = 1000 * (np.abs(x[:, None] - x) + np.abs(y[:, None] - y))
    for one in bundle:
        if one.regime == "start":
            now = one.histories[:, 0]
            stated = one.mechanism.distance_mm
            # Coordinates of a bundle have seven decimals: a centimetre.
            assert (stated <= true_mm[np.ix_(now, now)] + 30).all()
            assert (stated >= true_mm[np.ix_(now, now)] - 30).all()
    with Device.open(out, ledger=None, budget=Budget(1000, 3600.0), replay=True) as device:
        reports = [device.report(float(places.lat[0]), float(places.lon[0]), 1.7e9 + 30 * step) for step in range(3)]
    assert reports[0].left > reports[1].left > reports[2].left
    with pytest.raises(ParameterError, match="The metric must be"):
        config.replaced(metric="air")


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.pop("totals"),
        lambda values: values["totals"].update(rows="many"),
        lambda values: values["zones"][0].update(loss=None),
        lambda values: values["zones"][0]["rows"].pop("rows"),
    ],
)
def test_a_record_that_was_changed_is_refused(built: tuple[Path, BuildRecord], tmp_path: Path, change: object) -> None:
    values = json.loads(record_path(built[0]).read_text())
    change(values)  # type: ignore[operator]
    path = tmp_path / "a.build.json"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match="is not the record of a build"):
        read_record(path)
