"""A small town with walks, roads and blankets that were found, for whole evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.city.folder import write_city
from geoblanket.city.model import make_city
from geoblanket.evaluate.city_data import CityFiles
from geoblanket.mobility.matching import match_traces
from geoblanket.roads.importer import import_roads
from geoblanket.traces.importing import import_traces

EXPERIMENT = """
title = "A small comparison"
zones = 2
destinations = 40
gap = 0.05
max_tasks = 200
reports = [4, 2]
by_hour_and_speed = true

[setting]
max_places = 12
max_rows = 40
methods = ["lp_true_mb", "lp_markov1", "lp", "constopt", "expmech", "expmech_published", "expmech_remap", "tight"]

[[vary]]
epsilon = [2, 6]

[quick]
zones = 1
epsilon = [6]
"""


@dataclass(frozen=True)
class Town:
    folder: Path

    @property
    def files(self) -> CityFiles:
        return CityFiles(
            name="town",
            roads=self.folder / "town.roads",
            walks=self.folder / "walks.parquet",
            findings=self.folder / "findings.parquet",
            traces=self.folder / "traces.parquet",
        )

    @property
    def experiment(self) -> Path:
        return self.folder / "small.toml"


def make_town(folder: Path) -> Town:
    town = Town(folder)
    write_city(make_city("small"), folder / "city", trips=300, formats=["porto"])
    graph, _ = import_roads([folder / "city" / "roads.osm.pbf"])
    graph.save(town.files.roads)
    import_traces([folder / "city" / "porto.csv"], folder / "traces.parquet", format="porto")
    match_traces(folder / "traces.parquet", town.files.roads, town.files.walks, spacing_m=300.0, workers=1)
    options = DiscoveryOptions(by=[("speed",)], largest=2)
    discover(town.files.walks, town.files.roads, options, workers=1, out=folder / "findings.parquet")
    town.experiment.write_text(EXPERIMENT, encoding="utf-8")
    return town
