"""Read OpenStreetMap files (PBF and XML) into a road graph with all nodes of the ways."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import osmium
from osmium.filter import TagFilter
from osmium.osm import NODE, WAY

from geoblanket._arrays import Floats, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import haversine_m
from geoblanket._untrusted import run_within, seconds_allowed, too_slow
from geoblanket.errors import InputError
from geoblanket.roads._reading import KMH_TO_M_S, Counts, RoadsRead, check_pbf, check_xml, class_speeds_kmh
from geoblanket.roads.graph import ROAD_CLASSES, Edges, Nodes, RoadGraph, credit_of_programs
from geoblanket.roads.scenery import read_scenery
from geoblanket.roads.tags import NO_THROUGH_SERVICES, direction, may_drive, way_speeds

_UNITS_PER_DEGREE = 10_000_000
"""libosmium keeps coordinates as whole numbers."""

_TAGS = (
    "highway", "area", "service", "motorcar", "motor_vehicle", "vehicle", "access", "junction", "oneway",
    "oneway:motorcar", "oneway:motor_vehicle", "maxspeed", "maxspeed:forward", "maxspeed:backward", "maxspeed:type",
    "source:maxspeed", "zone:maxspeed",
)  # fmt: skip


class OsmFile(NamedTuple):
    """A file and its format in libosmium's words, found from its content: "pbf", "osm", "osm.gz", "osm.bz2"."""

    path: Path
    format: str

    def open(self, entities: osmium.osm.osm_entity_bits) -> osmium.io.Reader:
        """Open the file for one kind of objects; the path is absolute, because libosmium takes "-" for stdin."""
        return osmium.io.Reader(osmium.io.File(str(self.path.resolve()), self.format), entities)


@dataclass
class _Ways:
    """Ways as flat columns: one entry for each way, or for each node reference."""

    nodes: array[int] = field(default_factory=lambda: array("q"))
    x: array[int] = field(default_factory=lambda: array("q"))
    y: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    road_class: array[int] = field(default_factory=lambda: array("B"))
    direction: array[int] = field(default_factory=lambda: array("b"))
    forward_kmh: array[float] = field(default_factory=lambda: array("d"))
    backward_kmh: array[float] = field(default_factory=lambda: array("d"))

    def add(self, way: osmium.osm.Way, tags: dict[str, str]) -> int:
        """Append a way; return how many of its speed tags could not be read."""
        nodes = list(way.nodes)
        self.nodes.extend([node.ref for node in nodes])
        self.x.extend([node.x for node in nodes])
        self.y.extend([node.y for node in nodes])
        self.sizes.append(len(nodes))
        self.road_class.append(ROAD_CLASSES.index(tags["highway"]))
        self.direction.append(direction(tags))
        speeds = way_speeds(tags)
        self.forward_kmh.append(np.nan if speeds.forward_kmh is None else speeds.forward_kmh)
        self.backward_kmh.append(np.nan if speeds.backward_kmh is None else speeds.backward_kmh)
        return speeds.unreadable


def read_osm(files: Sequence[OsmFile], *, progress: Progress = silent) -> RoadsRead:
    """Read the drivable roads of OpenStreetMap files; several files are read as one (neighbouring extracts).

    The nodes of the result are all nodes of the ways, in the order of their ids: see `simplification.contract`.

    libosmium reads whatever it is given, without a limit and deaf to signals. So files are checked first: how far they
    grow when they are unpacked, and in XML how long a tag is and how deep elements are nested. Then libosmium works in
    a thread, with a deadline.
    """
    size_bytes = sum(check_pbf(file.path) if file.format == "pbf" else check_xml(file.path) for file in files)
    try:
        return run_within(seconds_allowed(size_bytes), lambda: _read_osm(files, progress))
    except TimeoutError:
        raise too_slow(files[0].path, size_bytes) from None


def _read_osm(files: Sequence[OsmFile], progress: Progress) -> RoadsRead:
    # Two passes, first locations and then ways, so that their order in the file does not matter.
    index = osmium.index.create_map("flex_mem")
    locations = osmium.NodeLocationsForWays(index)
    locations.ignore_errors()
    written_by = set()
    for done, file in enumerate(files):
        progress("Reading node locations", done, len(files))
        with _refusing_bad_data(file), file.open(NODE) as reader:
            header = reader.header()
            if header.has_multiple_object_versions:
                raise InputError(
                    "holds a history of changes, not a map of one moment",
                    path=file.path,
                    hint="Extract one moment first, for example with osmium time-filter",
                )
            written_by.add(header.get("generator"))
            osmium.apply(reader, locations)
    progress("Reading node locations", len(files), len(files))
    ways, counts = _read_ways(files, locations, progress)
    if not ways.sizes:
        raise InputError(
            f"has no roads that a car may drive on (ways of a road class: {counts.read['ways']})",
            path=files[0].path,
            hint="Give an extract with ways tagged highway=residential, primary, ...",
        )
    credit = credit_of_programs(written_by)
    with _refusing_bad_data(files[0]):
        scenery = read_scenery([file.open for file in files], locations)
    return RoadsRead(_graph_of_ways(ways, counts, path=files[0].path, credit=credit), counts, scenery)


def _read_ways(
    files: Sequence[OsmFile], locations: osmium.NodeLocationsForWays, progress: Progress
) -> tuple[_Ways, Counts]:
    ways, counts = _Ways(), Counts()
    seen: set[int] = set()
    for file in files:
        with _refusing_bad_data(file):
            for way in _road_ways(file, locations):
                counts.read["ways"] += 1
                if counts.read["ways"] % 10_000 == 0:
                    progress("Reading ways", counts.read["ways"], None)
                tag_list = way.tags
                tags = {key: value for key in _TAGS if (value := tag_list.get(key)) is not None}
                reason = "repeated_ways" if way.id in seen else _reason_to_drop(tags)
                seen.add(way.id)
                if reason is None:
                    counts.assumed["maxspeed_unreadable"] += ways.add(way, tags)
                else:
                    counts.dropped[reason] += 1
    return ways, counts


def _road_ways(file: OsmFile, locations: osmium.NodeLocationsForWays) -> Iterator[osmium.osm.Way]:
    # The filter needs its own name: the iterator does not keep it alive, and libosmium would crash.
    is_road = TagFilter(*[("highway", name) for name in ROAD_CLASSES])
    with file.open(WAY) as reader:
        for way in osmium.OsmFileIterator(reader, locations, is_road):
            if isinstance(way, osmium.osm.Way):
                yield way


def _reason_to_drop(tags: dict[str, str]) -> str | None:
    if tags.get("area") == "yes":
        return "ways_of_areas"
    if tags.get("service") in NO_THROUGH_SERVICES:
        return "ways_of_service"
    if not may_drive(tags):
        return "ways_without_access"
    return None


@contextmanager
def _refusing_bad_data(file: OsmFile) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, OSError, MemoryError, osmium.InvalidLocationError) as error:
        # The text after the colon may be a coordinate, which no message may repeat.
        reason = str(error).partition(": '")[0]
        raise InputError(
            f"cannot be read as OpenStreetMap data ({reason})",
            path=file.path,
            hint="Download or export it again; it may be cut off or damaged",
        ) from None


def _graph_of_ways(ways: _Ways, counts: Counts, *, path: Path, credit: str) -> RoadGraph:
    """Cut the ways into their straight pieces, and make an edge of each direction that is open."""
    # Pieces: two consecutive nodes of one way, both with a location.
    refs, x, y = np.asarray(ways.nodes), np.asarray(ways.x), np.asarray(ways.y)
    way = np.repeat(np.arange(len(ways.sizes)), ways.sizes)
    has_place = (np.abs(x) <= 180 * _UNITS_PER_DEGREE) & (np.abs(y) <= 90 * _UNITS_PER_DEGREE)
    same_way = way[:-1] == way[1:]
    repeated = same_way & (refs[:-1] == refs[1:])
    pieces = np.flatnonzero(same_way & ~repeated & has_place[:-1] & has_place[1:])
    if not len(pieces):
        raise InputError(
            "has road ways, but not the nodes that they run through",
            path=path,
            hint="Make the extract with complete ways, for example with osmium extract --strategy complete_ways",
        )
    counts.dropped["missing_nodes"] += int((~has_place).sum())
    counts.dropped["repeated_nodes"] += int(repeated.sum())
    counts.dropped["ways_without_length"] += len(ways.sizes) - len(np.unique(way[pieces]))

    # Number the nodes in the order of their ids, each with its first location.
    ends = np.stack([pieces, pieces + 1])
    node_ids, first, nodes = np.unique(refs[ends], return_index=True, return_inverse=True)
    lat, lon = y[ends.flat[first]] / _UNITS_PER_DEGREE, x[ends.flat[first]] / _UNITS_PER_DEGREE
    edges = _directed_edges(ways, way[pieces], *nodes.reshape(ends.shape))
    counts.read["nodes"] += len(node_ids)
    counts.dropped["duplicate_pieces"] += edges.duplicates
    counts.assumed["ways_with_speed_of_class"] += int(np.isnan(ways.forward_kmh).sum())
    return RoadGraph.from_edges(
        Nodes(ids=node_ids, lat=lat, lon=lon),
        Edges(
            sources=edges.sources,
            targets=edges.targets,
            length_m=haversine_m(lat[edges.sources], lon[edges.sources], lat[edges.targets], lon[edges.targets]),
            speed_m_s=np.where(np.isnan(edges.speed_kmh), class_speeds_kmh(edges.road_class), edges.speed_kmh)
            * KMH_TO_M_S,
            road_class=edges.road_class,
        ),
        length_model="sphere",
        credit=credit,
    )


class _Edges(NamedTuple):
    sources: Ints
    targets: Ints
    road_class: Octets
    speed_kmh: Floats
    duplicates: int


def _directed_edges(ways: _Ways, way: Ints, start: Ints, end: Ints) -> _Edges:
    """Return the edges of the pieces from `start` to `end` of `way`, in each direction that is open."""
    directions = np.asarray(ways.direction)[way]
    forward, backward = directions >= 0, directions <= 0
    sources = np.concatenate([start[forward], end[backward]])
    targets = np.concatenate([end[forward], start[backward]])
    road_class = np.asarray(ways.road_class)[np.concatenate([way[forward], way[backward]])]
    speed_kmh = np.concatenate(
        [np.asarray(ways.forward_kmh)[way[forward]], np.asarray(ways.backward_kmh)[way[backward]]]
    )
    # Ways that share a stretch give the same straight piece twice: the more important class stays.
    order = np.lexsort((road_class, targets, sources))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(sources[order]) != 0) | (np.diff(targets[order]) != 0)
    once = order[is_first]
    return _Edges(sources[once], targets[once], road_class[once], speed_kmh[once], len(order) - len(once))
