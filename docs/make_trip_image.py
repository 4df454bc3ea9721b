"""Make the picture of the README: `.venv/bin/python docs/make_trip_image.py porto_drive_2022-11.osm.pbf`.

The streets are those of an OpenStreetMap file that holds Porto. Nobody drove the trip: it is a fastest way between two
junctions. Reports are real draws of a lattice, so that each run gives another picture. Only the anchor of the parked
car is drawn again until its length is a usual one, near the median.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from PIL import Image
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from geoblanket import RoadGraph, import_roads
from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m
from geoblanket._picture import new_figure, save_figure
from geoblanket.cli.main import app
from geoblanket.roads.picture import draw_roads, draw_scale_bar

IMAGE = Path(__file__).parent / "images" / "trip.png"
EPSILON: Final = "4"
INTERVAL_S: Final = 30
HOUR: Final = 120
"""Reports of an hour."""
START: Final = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
ROAD_KM, REST_KM = 6.7, 4.4
"""Width of the panels."""
USUAL_SHIFT_M: Final = (350, 550)
"""Half of the anchors of ε₀ = 4 per km are within 420 m."""
TRUE, REPORTED, TRACKED = "#1d232b", "#0e7490", "#c2570c"


def geoblanket(*arguments: str | Path) -> None:
    """Run a command of geoblanket in this process."""
    app([str(argument) for argument in arguments], standalone_mode=False)


def fastest_way(graph: RoadGraph, start: tuple[float, float], end: tuple[float, float]) -> pl.DataFrame:
    """Return where a car is every second on the fastest way between the junctions nearest to two points."""
    source, target = (int(np.argmin(haversine_m(graph.lat, graph.lon, *point))) for point in (start, end))
    seconds = graph.length_m / np.minimum(graph.speed_m_s, 11.0)
    roads = csr_array((seconds, (graph.sources, graph.targets)), shape=(graph.node_count, graph.node_count))
    _, before = dijkstra(roads, indices=[source], return_predecessors=True)
    nodes = [target]
    while nodes[-1] != source:
        nodes.append(int(before[0, nodes[-1]]))
    lat, lon, time = [graph.lat[[source]]], [graph.lon[[source]]], [np.zeros(1)]
    offsets, line_lat, line_lon = graph.lines()
    for first, second in zip(nodes[::-1], nodes[-2::-1], strict=False):
        edges = np.arange(graph.offsets[first], graph.offsets[first + 1])
        edge = edges[graph.targets[edges] == second][0]
        part = slice(offsets[edge], offsets[edge + 1])
        along = np.cumsum(haversine_m(line_lat[part][:-1], line_lon[part][:-1], line_lat[part][1:], line_lon[part][1:]))
        lat.append(line_lat[part][1:])
        lon.append(line_lon[part][1:])
        time.append(time[-1][-1] + seconds[edge] * along / along[-1])
    clock = np.arange(0, time[-1][-1])
    points = [np.interp(clock, np.concatenate(time), np.concatenate(each)) for each in (lat, lon)]
    return pl.DataFrame({"second": clock, "lat": points[0], "lon": points[1]})


def trip_table(way: pl.DataFrame, vehicle: str) -> pl.DataFrame:
    """Return a way as rows of a trip."""
    times = [START + timedelta(seconds=float(second)) for second in way["second"]]
    return way.select(vehicle=pl.lit(vehicle), trip=pl.lit(vehicle), time=pl.Series(times), lat="lat", lon="lon")


def draw_circle(axes: Axes, lat: float, lon: float, radius_m: float) -> None:
    """Draw the circle around an estimate."""
    tall = 2 * np.degrees(radius_m / EARTH_RADIUS_M)
    wide = tall / np.cos(np.radians(lat))
    axes.add_patch(Ellipse((lon, lat), wide, tall, facecolor=TRACKED + "1c", edgecolor=TRACKED, linewidth=1, zorder=3))


def frame(axes: Axes, graph: RoadGraph, lat: float, lon: float, *, width_km: float, title: str) -> None:
    """Draw the streets around a point."""
    draw_roads(axes, graph, colour="#c9cdd3", width=0.8)
    tall = np.degrees(0.6 * width_km * 500 / EARTH_RADIUS_M)
    wide = np.degrees(width_km * 500 / EARTH_RADIUS_M) / np.cos(np.radians(lat))
    axes.set_xlim(lon - wide, lon + wide)
    axes.set_ylim(lat - tall, lat + tall)
    axes.set_title(title, fontsize=10, loc="left", color=TRUE)
    draw_scale_bar(axes)


def reports_of(folder: Path, traces: Path, *options: str) -> pl.DataFrame:
    """Return what a lattice reports of some trips."""
    bundle, released = folder / "city.bundle", folder / "released.parquet"
    roads = folder / "city.roads"
    geoblanket("lattice", "--roads", roads, "--epsilon", EPSILON, *options, "--out", bundle, "--overwrite")
    geoblanket("perturb", bundle, "--traces", traces, "--out", released, "--overwrite")
    return pl.read_parquet(released)


def draw_trip(axes: Axes, graph: RoadGraph, folder: Path, way: pl.DataFrame) -> None:
    """Draw a drive, its reports, and where a recipient thinks that the car is."""
    traces = folder / "drive.parquet"
    write_traces(trip_table(way, "car"), folder, traces)
    reports_of(folder, traces, "--no-anchor")
    geoblanket("model", "--roads", folder / "city.roads", "--out", folder / "city.model")
    geoblanket("track", folder / "city.bundle", folder / "released.parquet", "--model", folder / "city.model",
               "--out", folder / "tracked.parquet")  # fmt: skip
    tracked = pl.read_parquet(folder / "tracked.parquet")
    middle = [float(way[name].to_numpy()[[0, -1]].mean()) for name in ("lat", "lon")]
    frame(
        axes,
        graph,
        *middle,
        width_km=ROAD_KM,
        title=f"On the road: {len(tracked)} reports, and what a recipient makes of them",
    )
    axes.plot(way["lon"], way["lat"], color=TRUE, linewidth=3, zorder=4)
    axes.plot(tracked["lon"], tracked["lat"], color=TRACKED, linewidth=1.6, marker="s", markersize=4, zorder=6)
    axes.plot(tracked["reported_lon"], tracked["reported_lat"], "D", color=REPORTED, markersize=4.5,
              markeredgecolor="white", markeredgewidth=0.5, zorder=5)  # fmt: skip
    draw_circle(axes, *tracked.select("lat", "lon", "radius_m").row(-1))
    axes.plot(way["lon"][-1], way["lat"][-1], "o", color=TRUE, markersize=8, markeredgecolor="white", zorder=7)


def average(reports: pl.DataFrame) -> tuple[float, float]:
    """Return the mean latitude and longitude of reports, degrees."""
    return float(reports["lat"].to_numpy().mean()), float(reports["lon"].to_numpy().mean())


def draw_parked(axes: Axes, graph: RoadGraph, folder: Path, lat: float, lon: float) -> None:
    """Draw the reports of a parked car, with an anchor, and the average of them with and without it."""
    rest = pl.DataFrame({"second": np.arange(0.0, HOUR * INTERVAL_S, INTERVAL_S), "lat": lat, "lon": lon})
    traces = folder / "rest.parquet"
    write_traces(trip_table(rest, "car"), folder, traces)
    frame(axes, graph, lat, lon, width_km=REST_KM, title=f"Parked for an hour: {HOUR} reports, and their average")
    bare = average(reports_of(folder, traces, "--no-anchor"))
    axes.plot(*bare[::-1], "s", markersize=11, markeredgecolor=TRACKED,
              markerfacecolor="white", markeredgewidth=2, zorder=5)  # fmt: skip
    shift_m = 0.0
    while not USUAL_SHIFT_M[0] < shift_m < USUAL_SHIFT_M[1]:
        anchored = reports_of(folder, traces)
        shift_m = float(haversine_m(*average(anchored), lat, lon))
    axes.plot(
        anchored["lon"], anchored["lat"], "D", color=REPORTED, markersize=3.5, alpha=0.45, markeredgewidth=0, zorder=4
    )
    axes.plot(*average(anchored)[::-1], "s", color=TRACKED, markersize=11,
              markeredgecolor="white", zorder=6)  # fmt: skip
    axes.plot(lon, lat, "o", color=TRUE, markersize=8, markeredgecolor="white", zorder=7)


def write_traces(table: pl.DataFrame, folder: Path, out: Path) -> None:
    """Write a trip as the traces that commands take."""
    source = folder / "points.csv"
    table.with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).write_csv(source)
    geoblanket("traces", "import", "--format", "table", source, "--out", out,
               "--columns", "vehicle=vehicle,trip=trip,time=time,lat=lat,lon=lon")  # fmt: skip


def main(osm: str) -> None:
    """Draw both panels."""
    graph, _ = import_roads([osm])
    figure = new_figure(width_in=12.4, height_in=4.4)
    figure.set_facecolor("#fbfaf7")
    with TemporaryDirectory() as name:
        folder = Path(name)
        graph.save(folder / "city.roads")
        left, right = figure.subplots(1, 2)
        way = fastest_way(graph, (41.1445, -8.6475), (41.1660, -8.5930))
        draw_trip(left, graph, folder, way)
        draw_parked(right, graph, folder, 41.1577, -8.6291)
    handles = [
        Line2D([], [], color=TRUE, linewidth=3, marker="o", label="true"),
        Line2D([], [], color=REPORTED, linestyle="", marker="D", label="reported"),
        Line2D([], [], color=TRACKED, marker="s", label="the recipient's estimate, with its 90 % circle"),
        Line2D(
            [], [], color=TRACKED, linestyle="", marker="s", markerfacecolor="white", label="the same without an anchor"
        ),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    figure.text(0.995, 0.015, f"map data {graph.credit}", ha="right", fontsize=7.5, color="#5b6270")
    with TemporaryDirectory() as name:
        save_figure(figure, Path(name) / "trip.png", dpi=120)
        picture = Image.open(Path(name) / "trip.png").convert("RGB")
        picture.quantize(128, dither=Image.Dither.NONE).save(IMAGE, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
