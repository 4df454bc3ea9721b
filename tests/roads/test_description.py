from __future__ import annotations

from pathlib import Path

import pytest

from geoblanket.roads.export import describe_roads
from geoblanket.roads.importer import import_roads
from tests.roads.samples import Way, length_of, osm_xml


def test_facts(tmp_path: Path) -> None:
    ways: list[Way] = [
        ([1, 2], {"maxspeed": "30"}),
        ([2, 3], {"highway": "primary", "maxspeed": "60"}),
        ([3, 7], {"oneway": "yes", "maxspeed": "30"}),
        ([7, 1], {"oneway": "yes", "maxspeed": "30"}),
        ([1, 8], {"maxspeed": "30"}),
    ]
    path = tmp_path / "some.osm"
    path.write_text(osm_xml(ways))
    graph, _ = import_roads([path])
    about = describe_roads(graph)
    assert (about.nodes, about.edges) == (4, 7)  # 7 is a bend of the one-way street
    assert about.one_way_share == pytest.approx(1 / 7, abs=1e-4)
    assert about.dead_ends == 1
    assert about.parallel_edges == 0
    assert about.km_by_class["primary"] == pytest.approx(2 * length_of(2, 3) / 1000, abs=1e-3)
    assert sum(about.km_by_class.values()) == pytest.approx(about.length_km, abs=2e-3)
    assert about.speed_kmh == {"slowest": 30, "median": 30, "fastest": 60}
    assert about.bounding_box == {"south": 41.1, "west": -8.7, "north": 41.2, "east": -8.6}
    assert about.identity == graph.identity
