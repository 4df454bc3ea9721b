"""`geoblanket city`, `traces`, `roads` and `match`: from raw data to walks on roads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_result, print_table, progress_bars, say
from geoblanket.cli._settings import Settings
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.traces.summary import ImportSummary

traces_app = typer.Typer(help="GPS traces: import and inspect.", no_args_is_help=True)
roads_app = typer.Typer(help="Road networks: import, inspect, cut into zones, export.", no_args_is_help=True)

_TOLD_BY_RULE = ("dropped", "changed", "dropped_points", "malformed", "first_rows")
"""Figures of an import that have a table of their own, one row for each rule."""

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Roads, from `geoblanket roads import`.")]


def city(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to. It is created if needed.")],
    size: Annotated[
        Literal["small", "medium", "large"], typer.Option(help="About 500, 5,000 or 45,000 nodes.")
    ] = "small",
    trips: Annotated[int, typer.Option(min=1, help="Number of taxi trips.")] = 3000,
    seed: options.Seed = 0,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Make a synthetic city: roads, traces and ground truth.

    The same size, number of trips and seed always give the same files. A taxi's next node depends on its last one, two
    or three nodes, by district and speed. `orders.csv` says how many: ground truth for methods that estimate it.

    Traces are written in Porto's format and, unless the city is large, also as a table of points.
    """
    from geoblanket.lab.city.folder import CITY_FILES, FORMATS, write_city
    from geoblanket.lab.city.model import make_city

    options.check_outputs(picture=picture, overwrite=overwrite)
    options.check_folder(out, *CITY_FILES, overwrite=overwrite)
    with progress_bars() as progress:
        made = make_city(size, seed=seed, progress=progress)
        facts = write_city(
            made,
            out,
            trips=trips,
            seed=seed,
            formats=["porto"] if size == "large" else list(FORMATS),
            progress=progress,
        )
    if picture is not None:
        from geoblanket.lab.city.picture import draw_city

        options.save_picture(draw_city(made, trips=trips, seed=seed), picture)
    print_result(f"A synthetic city in {out}", facts, json=json)


_IMPORT_TRACES = Settings(
    "geoblanket.traces.cleaning:Cleaning",
    "geoblanket.traces.source:Reading",
    "geoblanket.traces.importing:import_traces",
    without=("format", "columns", "time_zone", "cleaning", "reading"),
)


@traces_app.command("import")
def import_traces(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files to read; text may be gzipped.")],
    *,
    format_: Annotated[
        Literal["porto", "rome", "cabspotting", "table"],
        typer.Option(
            "--format",
            help="porto: train.csv of ECML/PKDD 2015. rome: taxi_february.txt of CRAWDAD roma/taxi. "
            "cabspotting: a folder, an archive or files of CRAWDAD epfl/mobility. "
            "table: any CSV or Parquet file with a header.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The table to write (Parquet).")],
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE=NAME,...",
            help="For table: names of the columns for the roles vehicle, trip, time, lat and lon, for example "
            "time=t,lat=y,lon=x,vehicle=taxi. By default a column has the name of its role; vehicle and trip may be "
            "absent.",
        ),
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone of times without UTC offset, such as Europe/Lisbon.")
    ] = None,
    set_: Annotated[list[str] | None, _IMPORT_TRACES.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Import GPS traces from any source into one clean table: vehicle, trip, time (UTC), lat, lon.

    The summary counts the rows that each cleaning rule dropped or changed, and names the first ones.
    """
    from geoblanket.traces.cleaning import Cleaning
    from geoblanket.traces.importing import import_traces as read_traces
    from geoblanket.traces.source import Reading

    settings = _IMPORT_TRACES.read(set_)
    reading = Reading(
        columns={} if columns is None else _read_columns(columns), time_zone=time_zone, **settings.of(Reading)
    )
    options.check_outputs(out, overwrite=overwrite)
    with progress_bars() as progress:
        summary = read_traces(
            files,
            out,
            format=format_,
            reading=reading,
            cleaning=Cleaning(**settings.of(Cleaning)),
            progress=progress,
            **settings.of(read_traces),
        )
    print_result(f"Traces in {out}", summary, json=json, without=_TOLD_BY_RULE)
    if not json:
        _print_rules(summary)


@traces_app.command("info")
def describe_traces(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table written by `geoblanket traces import`.")],
    *,
    json: JsonOption = False,
) -> None:
    """Show what is in a table of traces. Groups of three figures are the 5 %, 50 % and 95 % quantiles."""
    from geoblanket.traces.table import describe_traces as describe

    print_result(f"Traces in {file}", describe(file), json=json)


def _read_columns(text: str) -> dict[str, str]:
    """Read a mapping such as time=t,lat=y."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or role in columns:
            raise ParameterError(
                f"--columns must be ROLE=NAME,ROLE=NAME,... with each role once. Got {text!r} instead."
            )
        columns[role] = name
    return columns


def _print_rules(summary: ImportSummary) -> None:
    from geoblanket.traces.summary import CHANGES, DROPS

    several = len(summary.files) > 1
    rows = []
    for rule, meaning in (DROPS | CHANGES).items():
        if rule in summary.rules:
            count = summary.rules[rule]
            where = ", ".join(f"{path.name}:{row}" if several else str(row) for path, row in summary.first_rows(rule))
            more = ", …" if count.rows > len(count.first) else ""
            verb = "dropped" if rule in DROPS else "changed"
            rows.append((f"{verb}: {meaning}", f"{count.rows:,}", f"{count.points:,}", where + more))
    rows.extend((f"  malformed: {reason}", f"{count:,}", "", "") for reason, count in summary.malformed.most_common())
    if rows:
        print_table("What the cleaning rules changed", rows, header=("rule", "rows", "points", "first rows"))


_IMPORT_ROADS = Settings("geoblanket.roads.importer:import_roads")


@roads_app.command("import")
def import_roads(
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
    set_: Annotated[list[str] | None, _IMPORT_ROADS.option] = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Import a road network into one file that loads quickly."""
    from geoblanket.roads.importer import import_roads as read_roads

    settings = _IMPORT_ROADS.read(set_)
    options.check_outputs(out, picture=picture, overwrite=overwrite)
    with progress_bars() as progress:
        graph, summary = read_roads(files, progress=progress, **settings)
    graph.save(out)
    if picture is not None:
        from geoblanket.roads.picture import map_figure

        options.save_picture(map_figure(graph)[0], picture)
    print_result(f"Roads from {summary.source}", summary, json=json, without=("source",))
    say(f"Roads written to {out}.")


@roads_app.command("info")
def describe_roads(file: FileArgument, *, json: JsonOption = False) -> None:
    """Show what is in a road graph."""
    from geoblanket.roads.export import describe_roads as describe
    from geoblanket.roads.graph import RoadGraph

    about = describe(RoadGraph.load(file))
    print_result(f"Roads in {file}", about, json=json, more={"bytes": file.stat().st_size})


@roads_app.command("export")
def export_roads(
    file: FileArgument,
    to: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .geojson or .parquet (GeoParquet).")],
    *,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the edges of a road graph for other tools, as GeoJSON or GeoParquet."""
    from geoblanket.roads.export import to_geojson, to_geoparquet
    from geoblanket.roads.graph import RoadGraph

    writers = {".geojson": to_geojson, ".json": to_geojson, ".parquet": to_geoparquet, ".geoparquet": to_geoparquet}
    writer = writers.get(to.suffix.lower())
    if writer is None:
        raise ParameterError(f"The file to write must end in .geojson or .parquet. Got '{to.suffix}' instead.")
    options.check_outputs(to, overwrite=overwrite)
    writer(RoadGraph.load(file), to)
    say(f"Roads written to {to}.")


@roads_app.command("zones")
def cut_zones(
    file: FileArgument,
    *,
    max_places: Annotated[int, typer.Option(min=1, help="Largest number of places in a zone.")] = 200,
    spacing: options.Spacing = 0.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The table of zones to write (.parquet).")
    ] = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Choose places on the roads and cut them into connected zones of about equal size."""
    import numpy as np

    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places
    from geoblanket.roads.zones import is_connected, partition_zones, write_zones

    options.check_outputs(out, picture=picture, overwrite=overwrite)
    graph = RoadGraph.load(file)
    places = choose_places(graph, spacing_m=spacing)
    partition = partition_zones(graph, places, max_places=max_places)
    if out is not None:
        write_zones(out, graph, places, partition)
        say(f"Zones written to {out}.")
    if picture is not None:
        from geoblanket.roads.picture import zones_figure

        options.save_picture(zones_figure(graph, places, partition, caption=f"{len(partition)} zones"), picture)
    sizes = partition.sizes
    facts = {
        "places": len(places),
        "spacing_m": places.spacing_m,
        "snapping_radius_m": round(places.snapping_radius_m(graph), 1),
        "zones": len(partition),
        "max_places": partition.max_places,
        "smallest": int(sizes.min()),
        "median": float(np.median(sizes)),
        "largest": int(sizes.max()),
        "connected": is_connected(graph, places, partition),
        "identity": partition.identity,
    }
    print_result(f"Zones of {file}", facts, json=json)


_MATCH = Settings(
    "geoblanket.mobility.matching:match_traces",
    "geoblanket.mobility.map_matcher:MatchOptions",
    without=("interval_s", "spacing_m", "options"),
)


def match(
    *,
    traces: Annotated[Path, typer.Option(help="Traces, from `geoblanket traces import`.", show_default=False)],
    roads: options.Roads,
    out: Annotated[Path, typer.Option(help="The walks to write (Parquet).", show_default=False)],
    interval: Annotated[float, typer.Option(help="Time between two steps of a walk, seconds.")] = 30.0,
    spacing: options.Spacing = 0.0,
    set_: Annotated[list[str] | None, _MATCH.option] = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Match traces to roads. A walk has a place at every tick of a fixed clock."""
    from geoblanket.mobility.map_matcher import MatchOptions
    from geoblanket.mobility.matching import match_traces

    settings = _MATCH.read(set_)
    options.check_outputs(out, picture=picture, overwrite=overwrite)
    options.warn_of_many_places(roads, spacing)
    with progress_bars() as progress:
        summary = match_traces(
            traces,
            roads,
            out,
            interval_s=interval,
            spacing_m=spacing,
            options=MatchOptions(**settings.of(MatchOptions)),
            progress=progress,
            **settings.of(match_traces),
        )
    print_result(f"Walks: one step every {interval:g} s", summary, json=json)
    say(f"Walks written to {out}.")
    if picture is not None:
        from geoblanket.mobility.picture import draw_walks

        options.save_picture(draw_walks(out, roads), picture, private=True)
