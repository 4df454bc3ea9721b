"""`geoblanket roads`: road networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.roads.importer import RoadsSummary

__all__ = ["app"]

app = typer.Typer(help="Road networks: import and look.", no_args_is_help=True)

RoadsArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A road graph written by 'roads import'.")]

_LENGTH_MODELS = {"sphere": "measured on the sphere", "given": "as the source gives it"}


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="OpenStreetMap (.osm.pbf, .osm, also .gz or .bz2), or nodes.csv and edges.csv (also .gz), or OSMnx GraphML.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The road graph to write.")],
    *,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Keep the whole network, not only its largest strongly connected part.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the roads (.png or .svg).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read a road network and write it as one quick file."""
    from geoblanket._files import check_output
    from geoblanket.roads.importer import import_roads

    for output in filter(None, (out, picture)):
        check_output(output)
    with progress_bars() as progress:
        graph, summary = import_roads(files, keep_all=keep_all, progress=progress)
    graph.save(out)
    if picture is not None:
        from geoblanket.roads.picture import picture_of_roads

        is_osm = summary.source == "OpenStreetMap"
        picture_of_roads(graph, picture, caption="© OpenStreetMap contributors" if is_osm else None)
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
    groups = (("read", summary.read), ("dropped", summary.dropped), ("assumed", summary.assumed))
    for group, counts in groups:
        rows += [(f"{group}: {name.replace('_', ' ')}", f"{count:,}") for name, count in counts.items() if count]
    if summary.contracted_nodes:
        rows.append(("bends made part of an edge's shape", f"{summary.contracted_nodes:,}"))
    print_table(f"Roads from {summary.source}", rows)
    say(f"Written to {out}.")


@app.command()
def info(file: RoadsArgument, *, json: JsonOption = False) -> None:
    """Show what a road graph holds."""
    from geoblanket.roads.description import describe_roads
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
            ("speed", "{slowest:g} / {median:g} / {fastest:g} km/h (lowest, median, highest)".format(**about.speed_kmh)),
            ("latitude", f"{box['south']}° to {box['north']}°"),
            ("longitude", f"{box['west']}° to {box['east']}°"),
            ("file", f"{size / 1e6:,.2f} MB"),
            ("identity", about.identity[:16]),
        ],
    )
