"""Make pictures of README.md and lattice.md: `.venv/bin/python docs/make_trip_image.py porto_drive_2022-11.osm.pbf`.

The streets are those of an OpenStreetMap file that holds Porto. The trip is synthetic: a fastest way between two
junctions. Reports and the fence are real draws, so that each run gives another picture. Only the fence is drawn again
until its centre is at a usual distance from the home, near the median.
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
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from PIL import Image
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from geoblanket import Fence, LatticeBundle, RoadGraph, import_roads, make_lattice
from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m
from geoblanket._picture import new_figure, save_figure
from geoblanket.cli.main import app
from geoblanket.roads.picture import draw_roads, draw_scale_bar

IMAGES = Path(__file__).parent / "images"
EPSILON: Final = 4.0
INTERVAL_S: Final = 30
NIGHTS: Final = 30
DRAWS: Final = 25
START: Final = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
ROAD_KM, HOME_KM, CELLS_KM = 6.7, 6.7, (0.5, 4.0)
"""Width of the panels."""
HOME: Final = (41.1577, -8.6291)
RADIUS_KM: Final = 1.0
USUAL_M: Final = (600, 800)
"""Half of the centres are within 707 m."""
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


def draw_circle(axes: Axes, lat: float, lon: float, radius_m: float, colour: str = TRACKED) -> None:
    """Draw a circle on the map."""
    tall = 2 * np.degrees(radius_m / EARTH_RADIUS_M)
    wide = tall / np.cos(np.radians(lat))
    axes.add_patch(Ellipse((lon, lat), wide, tall, facecolor=colour + "1c", edgecolor=colour, linewidth=1, zorder=3))


def frame(axes: Axes, graph: RoadGraph, lat: float, lon: float, *, width_km: float, title: str) -> None:
    """Draw the streets around a point."""
    draw_roads(axes, graph, colour="#c9cdd3", width=0.8)
    tall = np.degrees(0.6 * width_km * 500 / EARTH_RADIUS_M)
    wide = np.degrees(width_km * 500 / EARTH_RADIUS_M) / np.cos(np.radians(lat))
    axes.set_xlim(lon - wide, lon + wide)
    axes.set_ylim(lat - tall, lat + tall)
    axes.set_title(title, fontsize=10, loc="left", color=TRUE, y=1.0)
    draw_scale_bar(axes)


def draw_trip(axes: Axes, graph: RoadGraph, folder: Path, way: pl.DataFrame) -> None:
    """Draw a drive, its reports, and where a recipient thinks that the car is."""
    traces = folder / "drive.parquet"
    write_traces(trip_table(way, "car"), folder, traces)
    geoblanket("perturb", folder / "city.bundle", "--traces", traces, "--out", folder / "released.parquet")
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
        title=f"On the road: {len(tracked)} reports, and the estimate from them",
    )
    axes.plot(way["lon"], way["lat"], color=TRUE, linewidth=3, zorder=4)
    axes.plot(tracked["lon"], tracked["lat"], color=TRACKED, linewidth=1.6, marker="s", markersize=4, zorder=6)
    axes.plot(tracked["reported_lon"], tracked["reported_lat"], "D", color=REPORTED, markersize=4.5,
              markeredgecolor="white", markeredgewidth=0.5, zorder=5)  # fmt: skip
    draw_circle(axes, *tracked.select("lat", "lon", "radius_m").row(-1))
    axes.plot(way["lon"][-1], way["lat"][-1], "o", color=TRUE, markersize=8, markeredgecolor="white", zorder=7)


def draw_home(axes: Axes, graph: RoadGraph, bundle: LatticeBundle, lat: float, lon: float) -> None:
    """Draw a report a night from a home, with a fence and without, and the average of each."""
    lattice = bundle.lattice
    frame(axes, graph, lat, lon, width_km=HOME_KM, title=f"At home: {NIGHTS} nights, and where they point to")
    distance_m = 0.0
    while not USUAL_M[0] < distance_m < USUAL_M[1]:
        fence = Fence.draw(lat, lon, radius_km=RADIUS_KM)
        center = fence.lat_e7 / 1e7, fence.lon_e7 / 1e7
        distance_m = float(haversine_m(*center, lat, lon))
    draw_circle(axes, *center, fence.radius_m, REPORTED)
    for at, filled in ((center, True), ((lat, lon), False)):
        nights = lattice.centers(lattice.draw_many(np.full(NIGHTS, at[0]), np.full(NIGHTS, at[1])))
        if filled:
            axes.plot(*nights[::-1], "D", color=REPORTED, markersize=4.5, markeredgecolor="white",
                      markeredgewidth=0.5, zorder=4)  # fmt: skip
        axes.plot(float(nights[1].mean()), float(nights[0].mean()), "s", color=TRACKED, markersize=11, zorder=6,
                  markerfacecolor=TRACKED if filled else "white", markeredgewidth=2)  # fmt: skip
    axes.plot(lon, lat, "o", color=TRUE, markersize=8, markeredgecolor="white", zorder=7)


def draw_cells(axes: Axes, graph: RoadGraph, bundle: LatticeBundle, *, width_km: float, title: str) -> None:
    """Draw the cells around a car, the darker the more probable it reports them."""
    lattice, (lat, lon) = bundle.lattice, HOME
    frame(axes, graph, lat, lon, width_km=width_km, title=title)
    across = lattice.spec.cells_across
    lats, lons = (centers.reshape(across, across) for centers in lattice.centers())
    weights = lattice.weights(lat, lon).reshape(across, across)
    box = axes.get_xlim(), axes.get_ylim()
    sides = lons[0], lats[:, 0]
    east, north = ((low < side) & (side < high) for side, (low, high) in zip(sides, box, strict=True))
    axes.pcolormesh(
        sides[0][east], sides[1][north], weights[np.ix_(north, east)], cmap="Blues", alpha=0.6, zorder=0.5,
        edgecolors="white", linewidth=0.6 if width_km < 1 else 0, norm=PowerNorm(0.5) if width_km > 1 else None,
    )  # fmt: skip
    axes.set_xlim(box[0])
    axes.set_ylim(box[1])
    axes.plot(lon, lat, "o", color=TRUE, markersize=8, markeredgecolor="white", zorder=7)


def draw_lattice(graph: RoadGraph, bundle: LatticeBundle) -> Figure:
    """Draw what a lattice is: cells over a city, one of which is reported."""
    figure = new_figure(width_in=12.4, height_in=4.4)
    figure.set_facecolor("#fbfaf7")
    near, far = figure.subplots(1, 2)
    draw_cells(near, graph, bundle, width_km=CELLS_KM[0], title=f"A lattice: squares of {bundle.lattice.cell_m:.0f} m")
    draw_cells(far, graph, bundle, width_km=CELLS_KM[1], title="A report: the centre of a square, drawn by chance")
    lattice = bundle.lattice
    drawn = lattice.centers(lattice.draw_many(*(np.full(DRAWS, part) for part in HOME)))
    far.plot(*drawn[::-1], "D", color=REPORTED, markersize=4.5, markeredgecolor="white", markeredgewidth=0.5, zorder=4)
    near.plot(*np.broadcast_arrays(*reversed(lattice.centers())), ".", color="#5b6270", markersize=2, zorder=3)
    return figure


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
        bundle = make_lattice(graph, folder / "city.bundle", epsilon=EPSILON, interval_s=INTERVAL_S)
        draw_home(left, graph, bundle, *HOME)
        draw_trip(right, graph, folder, way)
    handles = [
        Line2D([], [], color=TRUE, linewidth=3, marker="o", label="the truth"),
        Line2D([], [], color=REPORTED, linestyle="", marker="D", label="reports"),
        Line2D([], [], color=TRACKED, marker="s", label="best estimate from all reports"),
        Line2D([], [], color=TRACKED, linestyle="", marker="s", markerfacecolor="white",
               label="the same estimate without a fence"),
    ]  # fmt: skip
    save(figure, "trip.png", graph, handles)
    point = Line2D([], [], color=TRUE, linestyle="", marker="o", label="the truth")
    save(draw_lattice(graph, bundle), "lattice.png", graph, [point, handles[1]])


def save(figure: Figure, name: str, graph: RoadGraph, handles: list[Line2D]) -> None:
    """Write a picture with its legend and credit."""
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    figure.text(0.995, 0.015, f"map data {graph.credit}", ha="right", fontsize=7.5, color="#5b6270")
    with TemporaryDirectory() as folder:
        save_figure(figure, Path(folder) / name, dpi=120)
        picture = Image.open(Path(folder) / name).convert("RGB")
        picture.quantize(200, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
