"""A small town on disk: roads, traces and walks, from a made-up city or of a test's own making."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from geoblanket.lab.city.fleet import make_schedule, walk_blocks
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.gps import RegularPoints, regular_points
from geoblanket.lab.city.model import City, make_city
from geoblanket.mobility.matching import match_traces
from geoblanket.roads.importer import import_roads
from geoblanket.traces.importing import import_traces


@dataclass(frozen=True)
class Town:
    """Where its files lie."""

    folder: Path

    @property
    def roads(self) -> Path:
        return self.folder / "town.roads"

    @property
    def traces(self) -> Path:
        return self.folder / "traces.parquet"

    @property
    def walks(self) -> Path:
        return self.folder / "walks.parquet"

    @property
    def findings(self) -> Path:
        return self.folder / "findings.parquet"


def make_town(folder: Path, *, trips: int = 400, spacing_m: float = 300.0) -> Town:
    """From a map and GPS points to walks, as in the tour, in seconds."""
    town = Town(folder)
    write_city(make_city("small"), folder / "city", trips=trips, formats=["porto"])
    graph, _ = import_roads([folder / "city" / "roads.osm.pbf"])
    graph.save(town.roads)
    import_traces([folder / "city" / "porto.csv"], town.traces, format="porto")
    match_traces(town.traces, town.roads, town.walks, spacing_m=spacing_m, workers=1)
    return town


def simulate(city: City, *, trips: int, seed: int = 0) -> Iterator[RegularPoints]:
    """Make trips and the points of the regular receiver, a block at a time: the same for the same arguments."""
    for walks in walk_blocks(city, make_schedule(trips, seed=seed)):
        yield regular_points(city, walks, seed=seed)
