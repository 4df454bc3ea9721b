from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import false_discovery_control

from geoblanket._unfinished import Journal
from geoblanket.blanket.discovery import Discovery, DiscoveryOptions, discover
from geoblanket.blanket.findings import FINDINGS_SCHEMA, STATUSES, scan_findings
from geoblanket.blanket.groups import LaggedWalks, load_walks
from geoblanket.blanket.independence import lagged
from geoblanket.errors import MismatchError, OutputError, ParameterError
from tests.blanket.quick_test import quick_test, use_quick_test
from tests.blanket.worlds import Walk, drifting, square, wandering, write_world

World = tuple[Path, Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    graph = square()
    return write_world(tmp_path_factory.mktemp("world"), graph, wandering(graph, side=12, walks=2500, steps=12, seed=3))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    use_quick_test(monkeypatch)


def found(world: World, **options: object) -> Discovery:
    quick = {"by": ("speed", "region"), "test": "quick", "largest": 3, "largest_sample": 500, "smallest_group": 60}
    run = {name: options.pop(name) for name in {"out", "resume", "workers", "progress"} & set(options)}
    return discover(*world, DiscoveryOptions(**quick | options), **{"workers": 1} | run)  # type: ignore[arg-type]


def test_the_table_keeps_what_the_tests_said(world: World) -> None:
    result = found(world)
    rows = result.findings
    assert dict(rows.schema) == dict(FINDINGS_SCHEMA)
    assert rows["group"].to_list() == [group for group in range(24 * 16) for _ in range(3)]
    assert rows["m"].to_list() == [1, 2, 3] * (24 * 16)
    assert set(rows["status"]) == set(STATUSES) - {"unresolved"}
    tested = rows.filter(status="tested")
    assert tested.height > 40
    assert tested["p_value"].is_between(0, 1).all()
    assert tested["rejected"].equals(tested["p_value"] <= 0.05)
    assert tested["n"].equals(tested["available"].clip(upper_bound=500).cast(pl.Int32))
    numbers = tested.select("statistic", "p_value", "p_adjusted", "effect_size", "lat", "lon")
    assert numbers.drop_nulls().height == tested.height
    few = rows.filter(status="too_few")
    assert (few["available"] < 60).all()
    assert few["rejected"].is_null().all()
    assert rows.filter(available=0).height > 0  # empty groups are reported too
    imputed = rows.filter(status="imputed")
    assert not imputed["rejected"].any()
    assert imputed["p_value"].is_null().all()
    assert (imputed["n"] == 0).all()


def test_a_group_ends_with_the_first_order_that_is_kept(world: World) -> None:
    rows = found(world).findings
    ended = 0
    for _, group in rows.group_by("group"):
        for before, after in pairwise(group.sort("m").iter_rows(named=True)):
            kept = before["status"] == "imputed" or (before["status"] == "tested" and not before["rejected"])
            assert (after["status"] == "imputed") == kept
            ended += kept
    assert ended > 20


def test_each_hypothesis_is_that_of_its_own_samples(world: World) -> None:
    """The numbers are those of a plain run over the table, without groups, samples or waves."""
    result = found(world, by=("hour",), largest_sample=10**6, stop_early=False)
    loaded = load_walks(*world)
    for row in result.findings.filter(status="tested").iter_rows(named=True):
        rows = np.flatnonzero((loaded.hour == row["hour"]) & (loaded.depth >= row["m"] + 1))
        expected = quick_test(*lagged(loaded.windows(rows, row["m"] + 2), row["m"]), seed=0)
        assert (row["n"], row["p_value"], row["statistic"]) == (len(rows), expected.p_value, expected.statistic)
    assert result.findings.filter(status="imputed").is_empty()


def test_a_block_takes_all_older_places(world: World) -> None:
    result = found(world, by=(), block=True, largest_sample=10**6, stop_early=False)
    loaded = load_walks(*world)
    rows = np.flatnonzero(loaded.depth >= 4)
    expected = quick_test(*lagged(loaded.windows(rows, 5), 1, block=True), seed=0)
    assert result.findings["p_value"][0] == expected.p_value
    assert result.findings["available"].to_list() == [len(rows)] * 3


def test_groups_are_compared_with_an_adjusted_p(world: World) -> None:
    rows = found(world, by=[("speed",), ("region",)], stop_early=False).findings.filter(status="tested")
    families = 0
    for _, family in rows.group_by("by", "m"):
        assert family["p_adjusted"].to_list() == pytest.approx(false_discovery_control(family["p_value"]).tolist())
        families += 1
    assert families == 6


def test_several_groupings_are_numbered_on_and_do_not_change_each_other(world: World) -> None:
    several = found(world, by=[(), ("region",), ("region", "speed")]).findings
    assert several.group_by("by", maintain_order=True).agg(pl.col("group").min()).rows() == [
        ("all", 0), ("region", 1), ("speed+region", 17),
    ]  # fmt: skip
    alone = found(world).findings
    same = several.filter(by="speed+region").with_columns(pl.col("group") - 17)
    assert same.equals(alone)


def test_a_summary_counts_every_group(world: World) -> None:
    result = found(world)
    counts = result.summary()["speed+region"]
    assert counts["groups"] == 24 * 16
    assert counts["groups"] == sum(counts[key] for key in ("tested", "empty", "too_few", "constant", "unresolved"))
    assert sum(counts["sizes"].values()) == counts["tested"] == result.blankets["order"].count()
    assert counts["tests"] == result.findings.filter(status="tested").height
    assert {"interval_s", "time_zone", "regions", "alpha", "largest", "test", "seed"} <= set(result.about)


def test_another_seed_draws_other_samples(world: World) -> None:
    one, other = (found(world, by=(), largest_sample=300, seed=seed).findings["p_value"][0] for seed in (0, 1))
    assert one == found(world, by=(), largest_sample=300).findings["p_value"][0]
    assert one != other


# Trap: which samples are in a group may depend on nothing but {X_t, B}.


@pytest.fixture(scope="module")
def drift(tmp_path_factory: pytest.TempPathFactory) -> World:
    return write_world(tmp_path_factory.mktemp("drift"), *drifting(walks=9000))


def test_groups_of_like_speed_keep_a_true_hypothesis(drift: World) -> None:
    tested = found(drift, by=("speed",), largest=1, largest_sample=2000).findings.filter(status="tested")
    assert tested.height >= 4
    assert (tested["p_value"] > 0.001).all()


def test_a_speed_that_knows_one_place_more_would_be_caught(drift: World, monkeypatch: pytest.MonkeyPatch) -> None:
    right = LaggedWalks.speed_m_s
    monkeypatch.setattr(LaggedWalks, "speed_m_s", lambda self, some, m: right(self, some, m + 1))
    tested = found(drift, by=("speed",), largest=1, largest_sample=2000).findings.filter(status="tested")
    assert (tested["p_value"] < 1e-6).sum() >= 3


# Bad input.


def test_too_few_samples_are_reported(tmp_path: Path) -> None:
    graph = square()
    world = write_world(tmp_path, graph, wandering(graph, side=12, walks=20, steps=6, seed=1))
    result = found(world)
    assert set(result.findings["status"]) == {"too_few"}
    assert result.blankets["order"].is_null().all()
    assert result.summary()["speed+region"]["tested"] == 0


def test_vehicles_that_never_move_are_constant(tmp_path: Path) -> None:
    walks = [Walk(f"taxi {number}", 30.0 * number, [number % 144] * 5) for number in range(400)]
    result = found(write_world(tmp_path, square(), walks), by=("speed",))
    first = result.findings.filter(speed_mph=0)
    assert first["status"].to_list() == ["constant", "constant", "constant"]
    assert first["p_value"].is_null().all()
    assert result.summary()["speed"]["constant"] == 1


def test_an_order_that_is_not_resolved_ends_a_blanket_without_a_decision(world: World) -> None:
    result = found(world, by=(), test="unsure")
    assert result.findings["status"].to_list() == ["tested", "unresolved", "unresolved"]
    assert result.findings["rejected"].to_list() == [True, None, None]
    assert result.findings["p_adjusted"].is_null().to_list() == [False, True, True]
    assert result.blankets.select("order", "capped").rows() == [(2, True)]
    counts = result.summary()["all"]
    assert (counts["tested"], counts["unresolved"], counts["capped"], counts["unresolved_later"]) == (1, 0, 1, 1)
    every = found(world, by=(), test="unsure", stop_early=False).findings
    assert every["status"].to_list() == ["tested", "unresolved", "tested"]


def test_walks_that_stay_in_one_place_with_few_that_move(tmp_path: Path) -> None:
    """Mostly constant columns make no missing numbers."""
    walks = [Walk("a", 30.0 * number, [5] * 5) for number in range(400)] + [Walk("a", 7.0, [5, 6, 5, 6, 7])]
    rows = found(write_world(tmp_path, square(), walks), by=()).findings
    assert rows["status"].is_in(STATUSES).all()
    assert not rows["p_value"].is_nan().any()


def test_a_single_vehicle_can_be_studied(tmp_path: Path) -> None:
    graph = square()
    walks = wandering(graph, side=12, walks=300, steps=8, seed=1, vehicles=1)
    result = found(write_world(tmp_path, graph, walks), by=())
    assert result.findings["status"][0] == "tested"
    assert result.about["counts"]["vehicles"] == 1


def test_copies_of_walks_do_not_change_the_result(world: World, tmp_path: Path) -> None:
    frame = pl.read_parquet(world[0])
    copies = pl.concat([frame.with_columns(pl.col("walk") + 10_000 * copy) for copy in range(3)])
    graph = square()
    result, alone = found(write_world(tmp_path, graph, copies)), found(world)
    assert result.findings.equals(alone.findings)
    assert result.about["counts"]["repeated_walks"] == 2 * alone.about["counts"]["walks"]


def test_one_region_only(world: World) -> None:
    one = found(world, by=("region",), regions="grid:40,42,-9,-8,1,1").findings
    every = found(world, by=()).findings
    assert one["available"].equals(every["available"])
    assert set(one["region"]) == {0}


def test_no_sample_in_any_region(world: World) -> None:
    result = found(world, regions="rome")
    assert result.findings["available"].sum() == 0
    assert result.findings["lat"].is_null().all()
    assert result.about["outside"]["speed+region"] > 1000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"largest": 0}, "largest order must be from 1 to 20"),
        ({"largest": 21}, "largest order must be from 1 to 20"),
        ({"alpha": 0.0}, "alpha must be between 0 and 1"),
        ({"alpha": float("nan")}, "alpha must be between 0 and 1"),
        ({"smallest_group": 0}, "smallest group must be 1 or more"),
        ({"smallest_group": 600}, "no larger than the largest sample"),
        ({"time_zone": "Porto"}, "must be an IANA name"),
        ({"time_zone": "../etc"}, "must be an IANA name"),
        ({"test": "magic"}, "must be one of"),
        ({"by": ("hour", "weather")}, "Got 'weather' instead"),
        ({"regions": "paris"}, "Regions must be"),
        ({"workers": 0}, "workers must be 1 or more"),
    ],
)
def test_wrong_options_are_refused(world: World, tmp_path: Path, options: dict[str, object], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        found(world, out=tmp_path / "findings.parquet", **options)
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_is_refused_first(world: World, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        found(world, out=tmp_path / "no" / "findings.parquet")


# Interruption.


def test_the_file_holds_the_result(world: World, tmp_path: Path) -> None:
    result = found(world, out=tmp_path / "findings.parquet")
    rows, about = scan_findings(tmp_path / "findings.parquet")
    assert rows.collect().equals(result.findings)
    assert about["counts"] == result.about["counts"]
    assert [path.name for path in tmp_path.iterdir()] == ["findings.parquet"]


def interrupt_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let discovery fail when that many groups are tested; return a list that counts what is done."""
    done: list[int] = []
    right = Journal.add

    def add(self: Journal, record: object) -> None:
        right(self, record)
        done.append(1)
        if len(done) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", add)
    return done


def test_an_interrupted_run_goes_on(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "findings.parquet"
    done = interrupt_after(30, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        found(world, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["findings.parquet.unfinished"]
    with pytest.raises(OutputError, match="Resume it"):
        found(world, out=out)
    with pytest.raises(MismatchError, match="another seed"):
        found(world, out=out, resume=True, seed=1)
    result = found(world, out=out, resume=True)
    uninterrupted = found(world)
    assert result.findings.equals(uninterrupted.findings)
    tests = uninterrupted.findings.filter(pl.col("status").is_in(["tested", "constant"]))
    assert len(done) == tests.height  # nothing was tested twice
    assert [path.name for path in tmp_path.iterdir()] == ["findings.parquet"]


def test_another_table_of_walks_is_not_resumed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(3, monkeypatch)
    out = tmp_path / "findings.parquet"
    with pytest.raises(KeyboardInterrupt):
        found(world, out=out)
    other = pl.read_parquet(world[0]).filter(pl.col("walk") < 2400)
    (tmp_path / "other").mkdir()
    with pytest.raises(MismatchError, match="another walks"):
        found(write_world(tmp_path / "other", square(), other), out=out, resume=True)


SLOW_RUN = """
import sys, time
from geoblanket.blanket import independence
from geoblanket._unfinished import Journal
from geoblanket.blanket.discovery import discover
from geoblanket.blanket.discovery import DiscoveryOptions
from tests.blanket import quick_test
right = quick_test.quick_test
def slow(*sample, seed):
    time.sleep(0.02)
    return right(*sample, seed=seed)
quick_test.slow = slow
independence.TESTS["quick"] = ("tests.blanket.quick_test", "slow")
options = DiscoveryOptions(by=("speed", "region"), test="quick", largest=3, largest_sample=500, smallest_group=60)
discover(*sys.argv[1:3], options, workers=1, out=sys.argv[3])
"""


def test_a_killed_run_goes_on(world: World, tmp_path: Path) -> None:
    out, side = tmp_path / "findings.parquet", tmp_path / "findings.parquet.unfinished"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", SLOW_RUN, *map(str, world), str(out)]
    with subprocess.Popen(command, cwd=root) as process:
        deadline = time.monotonic() + 240
        while not (side.exists() and side.read_bytes().count(b"\n") > 10):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    with side.open("ab") as file:
        file.write(b'0badc0de [12, 1, "tes')  # as if it had been killed in the middle of a line
    result = found(world, out=out, resume=True)
    assert result.findings.equals(found(world).findings)
    assert not side.exists()
