"""Who may read what is made of true locations, through the whole pipeline."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from geoblanket._unfinished import Journal, PartStore
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import make_city
from geoblanket.mobility.matching import match_traces
from geoblanket.release import Budget, Device, Ledger
from geoblanket.roads.importer import import_roads
from geoblanket.roads.places import choose_places
from geoblanket.roads.zones import partition_zones, write_zones
from geoblanket.traces.importing import import_traces
from tests.release.lattices import LAT, LON, START, save_small


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The umask of most machines, by which everybody may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_traces_and_walks_are_private_and_roads_are_not(tmp_path: Path) -> None:
    write_city(make_city("small"), tmp_path, trips=30, formats=("porto",))
    graph, _ = import_roads([tmp_path / "roads.osm.pbf"])
    graph.save(tmp_path / "roads")
    places = choose_places(graph, spacing_m=500)
    write_zones(tmp_path / "zones.parquet", graph, places, partition_zones(graph, places, max_places=40))
    import_traces([tmp_path / "porto.csv"], tmp_path / "traces.parquet", format="porto")
    match_traces(tmp_path / "traces.parquet", tmp_path / "roads", tmp_path / "walks.parquet")
    assert {name: oct(mode(tmp_path / name)) for name in ("traces.parquet", "walks.parquet")} == {
        "traces.parquet": "0o600",
        "walks.parquet": "0o600",
    }
    assert mode(tmp_path / "roads") == mode(tmp_path / "zones.parquet") == 0o644


def test_what_an_interrupted_run_leaves_is_private(tmp_path: Path) -> None:
    PartStore(tmp_path / "folder", {}, resume=False, pack=lambda part: (part, {}), unpack=lambda part, _: part)
    assert mode(tmp_path / "folder") == 0o700
    assert mode(tmp_path / "folder" / "about.json") == 0o600
    with Journal(tmp_path / "journal", {}, resume=False) as journal:
        journal.add(1)
    assert mode(tmp_path / "journal") == 0o600


def test_the_files_of_a_ledger_are_private(tmp_path: Path) -> None:
    bundle = save_small(tmp_path / "held.bundle", hold_m=50.0)
    Ledger.create(tmp_path / "a.ledger", budget=Budget(100.0, 600.0))
    with Device.open(bundle, ledger=tmp_path / "a.ledger", replay=True) as device:
        device.report(LAT, LON, START)
        made = {path.name: oct(mode(path)) for path in tmp_path.glob("a.ledger*")}
    assert made == dict.fromkeys(("a.ledger", "a.ledger-wal", "a.ledger.count", "a.ledger.hold"), "0o600")
