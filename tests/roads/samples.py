"""Small road networks with known answers, and where the real ones are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.roads.graph import RoadGraph

REAL_DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
PORTO_PBF = REAL_DATA / "porto" / "porto_drive_2022-11.osm.pbf"

needs_real_data = pytest.mark.skipif(not PORTO_PBF.exists(), reason=f"the real road networks are not in {REAL_DATA}")

PLACES = {
    1: (41.150, -8.610),
    2: (41.151, -8.610),
    3: (41.152, -8.611),
    4: (41.153, -8.612),
    5: (41.151, -8.608),
    6: (41.150, -8.606),
    7: (41.154, -8.610),
    8: (41.149, -8.612),
}
"""Node id to latitude and longitude."""

Way = tuple[Sequence[int], Mapping[str, str]]


def osm_xml(ways: Iterable[Way], *, places: Mapping[int, tuple[float, float]] | None = None, extra: str = "") -> str:
    """Write ways of (node ids, tags) as OpenStreetMap XML; `highway=residential` unless tagged otherwise."""
    nodes = "".join(f'<node id="{i}" lat="{lat}" lon="{lon}"/>' for i, (lat, lon) in (places or PLACES).items())
    text = ""
    for number, (refs, tags) in enumerate(ways, start=100):
        tagged = {"highway": "residential", **tags}
        text += f'<way id="{number}">' + "".join(f'<nd ref="{ref}"/>' for ref in refs)
        text += "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tagged.items()) + "</way>"
    return f'<?xml version="1.0"?><osm version="0.6">{nodes}{text}{extra}</osm>'


def length_of(*ids: int) -> float:
    """Metres along the given nodes of `PLACES`."""
    lat, lon = np.array([PLACES[i] for i in ids]).T
    return float(haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum())


def edges_of(graph: RoadGraph) -> list[tuple[int, int]]:
    """Return the edges as pairs of node ids."""
    return [(int(graph.node_ids[u]), int(graph.node_ids[v])) for u, v in zip(graph.sources, graph.targets, strict=True)]
