from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from geoblanket.errors import InputError
from geoblanket.lab.city.model import make_city
from geoblanket.lab.evaluate.city_data import make_vehicle_tasks
from geoblanket.roads.places import choose_places
from tests.build.worlds import straight_on

GRAPH = make_city("small").graph
PLACES = choose_places(GRAPH, spacing_m=300)
STEPS = straight_on(PLACES, 500)


def test_losses_are_errors_of_the_way_to_each_destination() -> None:
    vehicle_tasks = make_vehicle_tasks(GRAPH, PLACES, STEPS, count=30, seed=3)
    zone = np.unique(vehicle_tasks.histories[:, 0])[:6]
    here = vehicle_tasks.within(zone)
    assert set(here.histories[:, 0]) <= set(zone.tolist())
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(len(zone)), 4)
    rows = rng.integers(0, 4, len(here))
    losses = here.losses(probabilities, rows, zone)
    for each in range(len(here)):
        way = here.way_km[:, each]
        wanted = sum(
            probabilities[rows[each], k] * abs(way[here.next_place[each]] - way[place]) for k, place in enumerate(zone)
        )
        assert losses[each] == pytest.approx(wanted)


def test_ways_lead_from_places_to_destinations_by_the_roads() -> None:
    vehicle_tasks = make_vehicle_tasks(GRAPH, PLACES, STEPS, count=3, seed=1)
    roads = nx.MultiDiGraph()
    for node in range(GRAPH.node_count):
        for edge in range(GRAPH.offsets[node], GRAPH.offsets[node + 1]):
            roads.add_edge(node, int(GRAPH.targets[edge]), length=float(GRAPH.length_m[edge]))
    for each, destination in enumerate(vehicle_tasks.destination.tolist()):
        length = nx.single_source_dijkstra_path_length(roads.reverse(), destination, weight="length")
        assert np.allclose(vehicle_tasks.way_km[:, each], [length[int(node)] / 1000 for node in PLACES.nodes])


def test_vehicles_stand_where_the_file_says(tmp_path: Path) -> None:
    seen = np.unique(STEPS.histories[:, 0])[:8]
    path = tmp_path / "locations.csv"
    lines = [f"{PLACES.lat[place]},{PLACES.lon[place]}" for place in seen] + ["10.0,20.0"]
    path.write_text("\n".join(lines), encoding="utf-8")
    vehicle_tasks = make_vehicle_tasks(GRAPH, PLACES, STEPS, count=100, locations=path, seed=0)
    assert vehicle_tasks.histories[:, 0].tolist() == seen.tolist()
    again = make_vehicle_tasks(GRAPH, PLACES, STEPS, count=100, locations=path, seed=0)
    assert np.array_equal(vehicle_tasks.histories, again.histories)
    assert np.array_equal(vehicle_tasks.way_km, again.way_km)


def test_a_file_that_has_no_locations_is_refused_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "locations.csv"
    path.write_text("name;41.123456\nx,y,z\n", encoding="utf-8")
    with pytest.raises(InputError) as raised:
        make_vehicle_tasks(GRAPH, PLACES, STEPS, count=10, locations=path)
    assert "41.123456" not in str(raised.value)
