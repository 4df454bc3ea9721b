"""`geoblanket roads`: road networks: import, inspect, export, cut into zones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.importer import RoadsSummary
    from geoblanket.roads.places import Places
    from geoblanket.roads.zones import Zones

__all__ = ["app"]

app = typer.Typer(help="Road networks: import, inspect, cut into zones, export.", no_args_is_help=True)

_COUNTED = {
    "ways": "read: ways of a road class",
    "nodes": "read: nodes",
    "edges": "read: edges",
    "parallel_edges": "read: parallel edges (all kept that differ in length)",
    "repeated_ways": "dropped: ways that were read before",
    "ways_of_areas": "dropped: areas",
    "ways_of_service": "dropped: alleys, driveways, car parks",
    "ways_without_access": "dropped: ways closed to cars",
    "ways_without_length": "dropped: ways with fewer than two nodes",
    "missing_nodes": "dropped: references to nodes without a location (the way is cut there)",
    "repeated_nodes": "dropped: nodes repeated in a row",
    "duplicate_pieces": "dropped: pieces that two ways share",
    "self_loops": "dropped: self-loops",
    "self_loops_km": "dropped: self-loops, km",
    "duplicate_edges": "dropped: edges that repeat another",
    "unconnected_nodes": "dropped: nodes outside the connected part",
    "unconnected_edges": "dropped: edges outside the connected part",
    "unconnected_km": "dropped: km outside the connected part",
    "class_unknown": "assumed: class 'road' for edges of another class",
    "speed_of_class": "assumed: edges with the usual speed of their class",
    "speed_unreadable": "assumed: of these, edges with an unreadable speed",
    "ways_with_speed_of_class": "assumed: ways with the usual speed of their class",
    "maxspeed_unreadable": "assumed: speed tags that could not be read",
}
"""What the counts of an import are called in the table."""

_LENGTH_MODELS = {"sphere": "measured on the sphere", "given": "as the source gives it"}


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="OpenStreetMap (.osm.pbf, .osm, .osm.gz, .osm.bz2), or nodes.csv and edges.csv (also .gz), "
            "or GraphML saved by OSMnx.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The road graph to write.")],
    *,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Keep the whole network, not only its largest strongly connected part.")
    ] = False,
    picture: options.Picture = None,
    credit: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Whose data it is: stands on pictures and reports. By default OpenStreetMap's contributors, for files "
            "in its formats, GraphML, and tables with a column osmid; '' for nobody.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Read a road network and write it as one file that loads quickly."""
    from geoblanket.roads.importer import import_roads

    options.check_outputs(out, picture=picture, overwrite=overwrite)
    with progress_bars() as progress:
        graph, summary = import_roads(files, keep_all=keep_all, credit=credit, progress=progress)
    graph.save(out)
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.roads.picture import map_figure

        save_figure(map_figure(graph)[0], picture)
    if json:
        print_json(summary.as_json())
    else:
        _print_summary(summary, out)


def _print_summary(summary: RoadsSummary, out: Path) -> None:
    rows = [
        ("nodes", f"{summary.nodes:,}"),
        ("edges (one for each direction)", f"{summary.edges:,}"),
        ("length", f"{summary.length_km:,.1f} km"),
        ("lengths", _LENGTH_MODELS[summary.length_model]),
    ]
    if summary.contracted_nodes:
        rows.append(("bends that became part of an edge", f"{summary.contracted_nodes:,}"))
    rows += _credit_row(summary.credit)
    for counts in (summary.read, summary.dropped, summary.assumed):
        rows += [(_COUNTED[name], f"{count:,}") for name, count in counts.items() if count]
    print_table(f"Roads from {summary.source}", rows)
    say(f"Written to {out}.")


@app.command()
def info(file: options.RoadsArgument, *, json: JsonOption = False) -> None:
    """Show what a road graph holds."""
    from geoblanket.roads.export import describe_roads
    from geoblanket.roads.graph import RoadGraph

    about = describe_roads(RoadGraph.load(file))
    size = file.stat().st_size
    if json:
        print_json({**about.as_json(), "bytes": size})
        return
    box = about.bounding_box
    print_table(
        f"Roads in {file}",
        [
            ("nodes", f"{about.nodes:,}"),
            ("edges (one for each direction)", f"{about.edges:,}"),
            ("length", f"{about.length_km:,.1f} km"),
            ("lengths", _LENGTH_MODELS[about.length_model]),
            *((f"  {name.replace('_', ' ')}", f"{km:,.1f} km") for name, km in about.km_by_class.items()),
            ("one-way edges", f"{about.one_way_share:.1%}"),
            ("parallel edges", f"{about.parallel_edges:,}"),
            ("dead ends", f"{about.dead_ends:,}"),
            ("slowest, median, fastest", "{slowest:g}, {median:g}, {fastest:g} km/h".format(**about.speed_kmh)),
            ("latitude", f"{box['south']}° to {box['north']}°"),
            ("longitude", f"{box['west']}° to {box['east']}°"),
            ("file", f"{size / 1e6:,.2f} MB"),
            *_credit_row(about.credit),
            ("identity", about.identity[:16]),
        ],
    )


def _credit_row(credit: str) -> list[tuple[str, str]]:
    return [("data", credit)] if credit else []


@app.command()
def export(
    file: options.RoadsArgument,
    to: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .geojson or .parquet (GeoParquet).")],
    *,
    part: Annotated[Literal["edges", "nodes"], typer.Option(help="What to write.")] = "edges",
    overwrite: options.Overwrite = False,
) -> None:
    """Write a road graph for other tools, as GeoJSON or GeoParquet."""
    from geoblanket.errors import ParameterError
    from geoblanket.roads.export import to_geojson, to_geoparquet
    from geoblanket.roads.graph import RoadGraph

    writers = {".geojson": to_geojson, ".json": to_geojson, ".parquet": to_geoparquet, ".geoparquet": to_geoparquet}
    writer = writers.get(to.suffix.lower())
    if writer is None:
        raise ParameterError(f"The file to write must end in .geojson or .parquet. Got '{to.suffix}' instead.")
    options.check_outputs(to, overwrite=overwrite)
    graph = RoadGraph.load(file)
    writer(graph, to, part=part)
    say(f"Written to {to}.")


@app.command()
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
    facts = _zone_facts(graph, places, partition)
    if json:
        print_json(facts)
    else:
        _print_zones(facts, file)
    for written in filter(None, (out, picture)):
        say(f"Written to {written}.")


def _zone_facts(graph: RoadGraph, places: Places, partition: Zones) -> dict[str, Any]:
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


def _print_zones(facts: dict[str, Any], file: Path) -> None:
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
