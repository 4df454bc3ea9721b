"""The scenery of a map: names, water and parks, from the same OpenStreetMap files as the roads.

It is drawn, and nothing else: no distance, no place and no promise depends on it. Multipolygons are left out, so large
lakes may be missing; rivers are drawn along their middle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import osmium
from osmium.filter import KeyFilter
from osmium.osm import NODE, WAY

from geoblanket.roads.graph import ROAD_CLASSES

_PLACES: Final = ("city", "town", "borough", "suburb", "quarter", "village", "neighbourhood")
"""Kinds of named places, the most important first."""
_AREAS: Final = {
    ("natural", "water"): "water", ("waterway", "riverbank"): "water", ("natural", "bay"): "water",
    ("leisure", "park"): "park", ("leisure", "garden"): "park", ("leisure", "nature_reserve"): "park",
    ("landuse", "forest"): "park", ("natural", "wood"): "park", ("landuse", "cemetery"): "park",
}  # fmt: skip
_LINES: Final = ("river", "canal")
_KEYS: Final = ("name", "natural", "waterway", "leisure", "landuse")
_LONGEST_NAME: Final = 80
_DIGITS: Final = 5
_WIDTH_M: Final = 30.0
_WIDEST_M: Final = 2000.0
_LEAST_RING: Final = 4

_Line = list[list[float]]


def read_scenery(
    opening: Iterable[Callable[[osmium.osm.osm_entity_bits], osmium.io.Reader]],
    locations: osmium.NodeLocationsForWays,
) -> bytes:
    """Return the scenery of files as GeoJSON; features have a `kind`: place, street, water, river or park.

    Parameters
    ----------
    opening
        What opens each file for one kind of objects.
    """
    features: list[dict[str, Any]] = []
    streets: dict[tuple[str, int], list[_Line]] = {}
    for opened in opening:
        has_place, has_key = KeyFilter("place"), KeyFilter(*_KEYS)  # the iterators do not keep them alive
        with opened(NODE) as reader:
            features += filter(None, map(_place, osmium.OsmFileIterator(reader, has_place)))
        with opened(WAY) as reader:
            features += _areas_and_rivers(osmium.OsmFileIterator(reader, locations, has_key), streets)
    features += [
        _feature("MultiLineString", _joined(lines), "street", name=name, rank=rank)
        for (name, rank), lines in streets.items()
    ]
    collection = {"type": "FeatureCollection", "features": features}
    return json.dumps(collection, ensure_ascii=False, separators=(",", ":")).encode() if features else b""


def _place(node: Any) -> dict[str, Any] | None:
    kind, name = node.tags.get("place"), _name(node.tags)
    if kind not in _PLACES or not name or not node.location.valid():
        return None
    return _feature("Point", _at(node.location), "place", name=name, rank=_PLACES.index(kind))


def _areas_and_rivers(ways: Iterable[Any], streets: dict[tuple[str, int], list[_Line]]) -> Iterator[dict[str, Any]]:
    """Yield water and parks; put named streets to the others of their name and class."""
    for way in ways:
        tags, name = way.tags, _name(way.tags)
        points = [_at(node.location) for node in way.nodes if node.location.valid()]
        area = next((kind for (key, value), kind in _AREAS.items() if tags.get(key) == value), None)
        if len(points) < 2:
            continue
        if area is not None and len(points) >= _LEAST_RING and points[0] == points[-1]:
            yield _feature("Polygon", [points], area, name=name)
        elif tags.get("waterway") in _LINES:
            yield _feature("LineString", points, "river", name=name, width_m=_width_m(tags.get("width")))
        elif name and (road := tags.get("highway")) in ROAD_CLASSES:
            streets.setdefault((name, ROAD_CLASSES.index(road)), []).append(points)


def _joined(lines: list[_Line]) -> list[_Line]:
    """Return lines joined where one begins at the end of another: short ones have no room for a name."""
    starting = {tuple(line[0]): line for line in reversed(lines)}
    ends = {tuple(line[-1]) for line in lines}
    joined, used = [], set[int]()
    # First those that nothing leads to, so that the joined lines are long; then what is left of rings.
    for line in sorted(lines, key=lambda line: tuple(line[0]) in ends):
        chain: _Line = []
        following: _Line | None = line
        while following is not None and id(following) not in used:
            used.add(id(following))
            chain += following[1:] if chain else following
            following = starting.get(tuple(following[-1]))
        joined += [chain] if chain else []
    return joined


def _feature(shape: str, coordinates: Any, kind: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "geometry": {"type": shape, "coordinates": coordinates},
        "properties": {"kind": kind, **{key: value for key, value in properties.items() if value != ""}},
    }


def _at(location: osmium.osm.Location) -> list[float]:
    return [round(location.lon, _DIGITS), round(location.lat, _DIGITS)]


def _name(tags: osmium.osm.TagList) -> str:
    name = tags.get("name") or ""
    return name[:_LONGEST_NAME] if name.isprintable() else ""


def _width_m(text: str | None) -> float:
    try:
        width = float(text or _WIDTH_M)
    except ValueError:
        width = _WIDTH_M
    return width if 0 < width <= _WIDEST_M else _WIDTH_M
