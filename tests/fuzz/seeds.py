"""Valid files of each kind, small, so that mutations hit what matters."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path

import numpy as np
import osmium
import polars as pl

from geoblanket._tables import write_table
from geoblanket.blanket.predictor import Predictor, save_predictor
from geoblanket.build.config import example_config
from geoblanket.learning.noise import TrainingBudget
from geoblanket.learning.spending import TrainingLedger
from geoblanket.mechanism.bundle.storage import Bundle, load_bundle, save_bundle, save_lattice
from geoblanket.release import Budget, Device, Ledger
from geoblanket.release.bulk import perturb_points
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.roads.regions import RegionGrid
from geoblanket.roads.zones import partition_zones, write_zones
from geoblanket.traces.importing import import_traces
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.tracker import Tracker
from tests.audit import hostile
from tests.blanket.made_findings import ABOUT, learnable, make_findings
from tests.blanket.test_predictor_file import small
from tests.mechanism.bundles import PLACES_E7, located, save_located, save_plain, tight
from tests.mechanism.lattice.frames import small_spec
from tests.promises import promise, promised
from tests.release.worlds import save_walks
from tests.roads.graphs import grid_graph
from tests.roads.samples import osm_xml
from tests.towns import Town
from tests.traces._files import cab_archive, line, porto_file, porto_row, steady, table_file

GRAPHML = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d1" for="node" attr.name="y" attr.type="string" />
  <key id="d2" for="node" attr.name="x" attr.type="string" />
  <key id="d3" for="edge" attr.name="length" attr.type="string" />
  <key id="d4" for="edge" attr.name="highway" attr.type="string" />
  <key id="d5" for="edge" attr.name="geometry" attr.type="string" />
  <key id="d6" for="edge" attr.name="maxspeed" attr.type="string" />
  <graph edgedefault="directed">
    <data key="d0">epsg:4326</data>
    <node id="1"><data key="d1">41.15</data><data key="d2">-8.61</data></node>
    <node id="2"><data key="d1">41.16</data><data key="d2">-8.62</data></node>
    <edge source="1" target="2" id="0"><data key="d3">1400.5</data><data key="d4">primary</data>
      <data key="d5">LINESTRING (-8.61 41.15, -8.615 41.156, -8.62 41.16)</data><data key="d6">50</data></edge>
    <edge source="2" target="1" id="0"><data key="d3">1400.5</data><data key="d4">['primary', 'road']</data></edge>
  </graph>
</graphml>
"""
LEDGER_KEY = b"sixteen bytes!!!"
CAB = "".join(f"37.{7500 + 5 * k} -122.39 {k // 5 % 2} {1_211_033_530 - 60 * k}\n" for k in range(12))
ROME = "\n".join(
    f"156;2014-02-01 00:{minute:02}:00.739166+01;POINT(41.88{minute:02} 12.48{minute:02})" for minute in range(20)
)


@dataclass(frozen=True)
class Seeds(Town):
    """One file of each kind, in one folder."""

    graph: RoadGraph
    places: Places

    @cached_property
    def lattice(self) -> Bundle:
        return load_bundle(self.folder / "lattice.bundle")

    @cached_property
    def model(self) -> MotionModel:
        return MotionModel.load(self.folder / "town.model")

    @cached_property
    def tracker(self) -> Tracker:
        return Tracker(self.lattice, self.model)

    @cached_property
    def hold_keys(self) -> tuple[bytes, bytes]:
        """Key and identity of the ledger."""
        ledger = Ledger.open(self.folder / "car.ledger", device_key=LEDGER_KEY)
        ledger.close()
        return ledger._key, ledger._identity

    def read(self, name: str) -> bytes:
        """Return the content of a file of the folder."""
        return (self.folder / name).read_bytes()


def make_seeds(folder: Path) -> Seeds:
    """Write the files into a folder."""
    graph = grid_graph(4, 6)
    seeds = Seeds(folder, graph, choose_places(graph))
    graph.save(seeds.roads)
    walks = [[(start + step) % 24 for step in range(12)] for start in range(6)]
    save_walks(seeds.walks, walks, roads=graph.identity, spacing_m=0.0, interval_s=30.0)
    TrainingLedger.beside(seeds.walks).spend(seeds.walks, TrainingBudget(1.0, 1e-6, 0.024), purpose="a motion model")
    table_file(folder / "points.csv", [*steady(30), *steady(30, vehicle="b")])
    (folder / "points.csv.gz").write_bytes(gzip.compress(seeds.read("points.csv"), mtime=0))
    porto_file(folder / "porto.csv", [porto_row(line(20), start=1_372_636_853 + 900 * trip) for trip in range(5)])
    (folder / "rome.txt").write_text(ROME + "\n", encoding="utf-8")
    cabs = {f"new_{name}.txt": CAB.encode() for name in "ab"}
    for ending in ("tar", "tar.gz", "tar.xz"):
        cab_archive(folder / f"cabs.{ending}", cabs)
    import_traces([folder / "points.csv"], seeds.traces, format="table")
    grid = RegionGrid(south=40.9, north=41.1, west=-8.7, east=-8.5, rows=2, columns=1)
    about = ABOUT | {"regions": {"kind": "grid", **asdict(grid)}}
    write_table(make_findings(learnable, hours=3, speeds=3, regions=2), seeds.findings, kind="findings", about=about)
    write_zones(folder / "zones.parquet", graph, seeds.places, partition_zones(graph, seeds.places, max_places=8))
    predictor = small()
    origin = replace(predictor.origin, regions=json.dumps(about["regions"], sort_keys=True))
    save_predictor(Predictor(predictor.encoding, predictor.network, origin), folder / "town.blanket")
    save_located(folder / "located.bundle")
    save_plain(folder / "plain.bundle")
    part = located(tight())
    save_bundle(folder / "private.bundle", [part], version=1, places_e7=PLACES_E7, training=promised())
    spec = small_spec(12)
    save_lattice(folder / "lattice.bundle", spec, hold_mm=50_000, version=1, interval_s=30)
    _write_ledger(folder)
    _write_tracking(seeds)
    _without_compression(folder)
    (folder / "histories.bundle").write_bytes(hostile.SOUND["unlisted in the middle, stated rightly"]())
    (folder / "build.toml").write_text(example_config().replace("# epsilon", "epsilon"), encoding="utf-8")
    shipped = resources.files("geoblanket.lab.evaluate") / "experiments" / "quick.toml"
    (folder / "experiment.toml").write_bytes(shipped.read_bytes())
    (folder / "roads.graphml").write_text(GRAPHML, encoding="utf-8")
    (folder / "roads.graphml.gz").write_bytes(gzip.compress(GRAPHML.encode(), mtime=0))
    _write_osm(folder)
    return seeds


def _write_ledger(folder: Path) -> None:
    """A ledger with a fence, a drawn and a held report, without its log; the fences and the draw as files too."""
    path = folder / "car.ledger"
    Ledger.create(path, budget=Budget(100.0, 600.0), device_key=LEDGER_KEY)
    ledger = Ledger.open(path, device_key=LEDGER_KEY)
    ledger.add_fence(41.15, -8.61, radius_km=1)
    (folder / "fences.json").write_text(ledger.fences.as_json(), encoding="utf-8")
    ledger.close()
    with Device.open(folder / "lattice.bundle", ledger=path, device_key=LEDGER_KEY, replay=True) as device:
        for step in range(2):
            device.report(41.11, -8.59, 1_719_792_000 + 30 * step)


def _without_compression(folder: Path) -> None:
    """Write the tables once more, so that mutations reach what a decompressor would refuse."""
    for name in ("walks", "traces", "findings", "zones", "released"):
        path = folder / f"{name}.parquet"
        about = pl.read_parquet_metadata(path)["geoblanket"]
        plain = folder / f"{name}-plain.parquet"
        pl.read_parquet(path).write_parquet(plain, compression="uncompressed", metadata={"geoblanket": about})


def _write_tracking(seeds: Seeds) -> None:
    """A motion model of a few places in the frame of the lattice, and reports from there."""
    plane = load_bundle(seeds.folder / "lattice.bundle").lattice.spec.plane  # type: ignore[union-attr]
    lat, lon = plane.degrees(*(np.array([[1, 3, 5], [1, 2, 5]]) * plane.side // 6))
    places_e7 = np.rint(np.column_stack([lat, lon]) * 1e7).astype(np.int32)
    model = MotionModel.by_distance(places_e7, interval_s=30)
    model.save(seeds.folder / "town.model")
    start = {"from": "private", "promise": promise().as_json()}
    released = {"from": "released", "start": start, "reports": 7, "training": promised().as_json()}
    replace(model, learned=released).save(seeds.folder / "private.model")
    perturb_points(seeds.traces, seeds.folder / "released.parquet", bundle=seeds.lattice)


def _write_osm(folder: Path) -> None:
    ways = [([1, 2, 5, 6, 1], {"maxspeed": "50"}), ([2, 3, 4], {"oneway": "yes"}), ([4, 7, 8, 1], {})]
    xml = folder / "roads.osm"
    xml.write_text(osm_xml(ways), encoding="utf-8")
    with osmium.SimpleWriter(str(folder / "roads.osm.pbf")) as writer:
        for item in osmium.FileProcessor(str(xml)):
            writer.add(item)
