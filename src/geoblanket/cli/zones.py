"""`geoblanket roads zones`: cut a road network into zones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import Places
    from geoblanket.roads.zones import Zones

__all__ = ["zones"]


def zones(
    file: options.RoadsArgument,
    *,
    max_places: Annotated[int, typer.Option(min=1, help="The most places of a zone.")] = 200,
    spacing: options.Spacing = 0.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The table of zones to write (.parquet).")
    ] = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Choose places on the roads and cut them into connected zones of about equal size."""
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places
    from geoblanket.roads.zones import partition_zones, write_zones

    options.check_outputs(out, picture=picture, overwrite=overwrite)
    graph = RoadGraph.load(file)
    places = choose_places(graph, spacing_m=spacing)
    partition = partition_zones(graph, places, max_places=max_places)
    if out is not None:
        write_zones(out, graph, places, partition)
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.roads.picture import zones_figure

        save_figure(zones_figure(graph, places, partition, caption=f"{len(partition)} zones"), picture)
    facts = _facts(graph, places, partition)
    if json:
        print_json(facts)
    else:
        _print_facts(facts, file)
    for written in filter(None, (out, picture)):
        say(f"Written to {written}.")


def _facts(graph: RoadGraph, places: Places, partition: Zones) -> dict[str, Any]:
    import numpy as np

    from geoblanket.roads.zones import is_connected

    sizes = partition.sizes
    return {
        "zones": len(partition),
        "places": len(places),
        "spacing_m": places.spacing_m,
        "snapping_radius_m": round(places.snapping_radius_m(graph), 1),
        "max_places": partition.max_places,
        "smallest": int(sizes.min()),
        "median": float(np.median(sizes)),
        "largest": int(sizes.max()),
        "connected": is_connected(graph, places, partition),
        "identity": partition.identity,
    }


def _print_facts(facts: dict[str, Any], file: Path) -> None:
    spacing = f"{facts['spacing_m']:,g} m apart or more" if facts["spacing_m"] else "every node"
    print_table(
        f"Zones of {file}",
        [
            ("places", f"{facts['places']:,}"),
            ("  chosen", spacing),
            ("  farthest point of a road from its place", f"{facts['snapping_radius_m']:,.1f} m"),
            ("zones", f"{facts['zones']:,}"),
            (
                "  places in the smallest, median, largest",
                "{smallest:,}, {median:,g}, {largest:,}".format(**facts),
            ),
            ("  allowed at most", f"{facts['max_places']:,}"),
            ("  each connected through the roads", "yes" if facts["connected"] else "no"),
            ("identity", facts["identity"][:16]),
        ],
    )
