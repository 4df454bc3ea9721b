"""Make the picture of rows in build.md: `.venv/bin/python docs/make_rows_image.py`. The city is the synthetic one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse
from PIL import Image

from geoblanket import choose_places, import_roads
from geoblanket._arrays import Indices
from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m
from geoblanket._picture import new_figure, save_figure
from geoblanket.build.rows import ZoneRows, make_rows
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import make_city
from geoblanket.mobility.histories import count_histories
from geoblanket.mobility.matching import match_traces
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import draw_roads
from geoblanket.roads.places import Places
from geoblanket.traces.importing import import_traces

IMAGE = Path(__file__).parent / "images" / "rows.png"
SPACING_M, REACH_M = 300.0, 1600.0
NOW, BEFORE, EARLIER, NONE = "#1d232b", "#0e7490", "#c2570c", "#b6bcc6"


def circle(axes: Axes, places: Places, place: int, others: Indices, colour: str) -> None:
    """Draw the circle around a place that holds others."""
    lat, lon = places.lat, places.lon
    radius_m = float(haversine_m(lat[place], lon[place], lat[others], lon[others]).max()) + 0.15 * SPACING_M
    high = 2 * np.degrees(radius_m / EARTH_RADIUS_M)
    wide = high / np.cos(np.radians(lat[place]))
    axes.add_patch(Ellipse((lon[place], lat[place]), wide, high, facecolor=colour, alpha=0.12, zorder=1))
    axes.add_patch(Ellipse((lon[place], lat[place]), wide, high, fill=False, edgecolor=colour, linewidth=1.4, zorder=3))


def draw(axes: Axes, graph: RoadGraph, places: Places, rows: ZoneRows) -> None:
    """Draw the rows of the place in the middle, and below one of them those of the place before."""
    histories, prior = rows.histories, rows.prior
    deep = histories[:, 2] >= 0
    now = int(histories[np.flatnonzero(deep)[prior[deep].argmax()], 0])
    of_now = histories[:, 0] == now
    first = np.unique(histories[of_now, 1])
    away = haversine_m(places.lat[now], places.lon[now], places.lat[first], places.lon[first])
    split = [int(place) for place in first if ((histories[:, 1] == place) & of_now).sum() > 1]
    before = max(split, key=lambda place: away[first == place][0])
    earlier = histories[of_now & (histories[:, 1] == before), 2]
    draw_roads(axes, graph, colour="#dfe3e8", width=0.8)
    axes.scatter(places.lon, places.lat, s=16, color=NONE, zorder=2, label="no row of its own: the nearest one's")
    circle(axes, places, now, first, BEFORE)
    circle(axes, places, before, earlier, EARLIER)
    axes.scatter(places.lon[first], places.lat[first], s=34, color=BEFORE, zorder=4, label="told apart at t − 1")
    axes.scatter(
        places.lon[earlier], places.lat[earlier], s=110, facecolors="none", edgecolors=EARLIER, linewidths=2, zorder=5,
        label="below one of them, told apart at t − 2",
    )  # fmt: skip
    axes.scatter(places.lon[now], places.lat[now], s=120, marker="*", color=NOW, zorder=6, label="the vehicle at t")
    pad = 1.06 * REACH_M / EARTH_RADIUS_M * 180 / np.pi
    axes.set_ylim(places.lat[now] - pad, places.lat[now] + pad)
    axes.set_xlim(*(places.lon[now] + sign * 1.25 * pad / np.cos(np.radians(places.lat[now])) for sign in (-1, 1)))
    axes.set_axis_off()
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_city(make_city("small"), folder / "city", trips=1500, formats=["porto"])
        graph, _ = import_roads([folder / "city" / "roads.osm.pbf"])
        graph.save(folder / "roads")
        import_traces([folder / "city" / "porto.csv"], folder / "traces.parquet", format="porto")
        match_traces(folder / "traces.parquet", folder / "roads", folder / "walks.parquet", spacing_m=SPACING_M)
        places = choose_places(graph, spacing_m=SPACING_M)
        counts = count_histories(folder / "walks.parquet", places, largest=2)
        busy = int(np.bincount(counts.histories[:, 0], counts.count).argmax())
        away_m = haversine_m(places.lat[busy], places.lon[busy], places.lat, places.lon)
        zone = np.sort(np.argsort(away_m)[:6])
        rows = make_rows(
            places, zone, counts, reach_m=REACH_M, context="order:2", history_weights=(1.0, 1.0), max_rows=400
        )
    figure = new_figure(width_in=7.2, height_in=5.6)
    draw(figure.add_subplot(), graph, places, rows)
    save_figure(figure, IMAGE)
    # A palette makes the file several times smaller, and nobody sees it.
    Image.open(IMAGE).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(IMAGE, optimize=True)
