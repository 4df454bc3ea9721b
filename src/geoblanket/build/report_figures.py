"""The figures of a build's report: the zones and places, and how good each zone is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geoblanket._arrays import Indices
from geoblanket._picture import FAINT, INK, new_figure, quiet, shared_legend
from geoblanket.build.record import BuildRecord, ZoneRecord
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import dot_size, draw_zones, map_figure
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones

__all__ = ["MOST_ZONES", "loss_figure", "loss_map", "zones_map", "zones_of_bundle"]

MOST_ZONES = 60
"""Zones in the figure of losses: those with the most steps."""

_OURS = "#1f5f8b"
_HELD_OUT = "#c8553d"


def zones_of_bundle(bundle: Bundle, record: BuildRecord, places: Places) -> Zones:
    """Return the zones that the bundle has mechanisms for, numbered as in the record; places in none have −1."""
    number = {zone.zone: zone.number for zone in record.zones}
    zone: Indices = np.full(len(places), -1, np.int32)
    for bundled in bundle:
        zone[np.unique(bundled.histories[:, 0])] = number[bundled.zone]
    names = {position: name for name, position in number.items()}
    ids = tuple(names.get(position, "") for position in range(max(names) + 1))
    return Zones(
        zone=zone,
        ids=ids,
        neighbours=np.empty((0, 2), np.int32),
        max_places=int(np.bincount(zone[zone >= 0]).max()),
        places_identity=places.identity,
    )


def zones_map(graph: RoadGraph, places: Places, zones: Zones) -> Figure:
    """Return a map of the zones with all places and the numbers of the zones."""
    figure, axes = map_figure(graph, colour="#4a505c", width=0.4)
    draw_zones(axes, graph, places, zones)
    axes.scatter(places.lon, places.lat, s=dot_size(len(places)), color=INK, linewidths=0, zorder=3)
    _number_zones(axes, places, zones)
    return figure


def loss_map(graph: RoadGraph, places: Places, zones: Zones, record: BuildRecord) -> Figure:
    """Return a map of the places, coloured by the expected loss of their zone (the mean over regimes)."""
    figure, axes = map_figure(graph, colour="#c3c7cd", width=0.5)
    loss = np.full(len(zones), np.nan)
    for number in {zone.number for zone in record.zones}:
        here = [zone for zone in record.zones if zone.number == number]
        weight = np.array([zone.share for zone in here]) + 1e-12
        loss[number] = np.average([zone.loss for zone in here], weights=weight)
    inside = zones.zone >= 0
    drawn = axes.scatter(
        places.lon[inside], places.lat[inside], c=loss[zones.zone[inside]], s=4 * dot_size(len(places)),
        cmap="viridis_r", linewidths=0, zorder=3,
    )  # fmt: skip
    _number_zones(axes, places, zones)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, pad=0.01)
    bar.set_label(f"expected loss, {record.unit}")
    return figure


def loss_figure(record: BuildRecord) -> Figure:
    """Return the loss of each zone, a panel for each regime: bound, design, held out, and without context."""
    regimes = sorted({zone.regime for zone in record.zones})
    shown = _shown(record.zones)
    figure = new_figure(width_in=max(4.5, 3.2 * len(regimes)) + 1, height_in=1.6 + 0.24 * len(shown))
    panels = figure.subplots(1, len(regimes), sharex=True, sharey=True, squeeze=False)[0]
    for axes, regime in zip(panels, regimes, strict=True):
        here = {zone.number: zone for zone in record.zones if zone.regime == regime}
        _draw_losses(axes, [here[number] for number in shown if number in here], shown)
        axes.set_title(regime, fontsize=10)
        axes.set_xlabel(f"loss, {record.unit}")
    panels[0].set_yticks(range(len(shown)), [f"{number}" for number in shown])
    panels[0].set_ylabel("zone")
    panels[0].set_ylim(len(shown) - 0.4, -0.6)
    shared_legend(figure, panels, loc="outside lower center", ncols=2)
    return figure


def _draw_losses(axes: Axes, zones: Sequence[ZoneRecord], shown: Sequence[int]) -> None:
    height = np.array([shown.index(zone.number) for zone in zones])
    bound, loss = (np.array([getattr(zone, name) for zone in zones]) for name in ("lower_bound", "loss"))
    quiet(axes)
    axes.hlines(height, bound, loss, color=_OURS, linewidth=5, alpha=0.45, label="from the proven bound to the loss")
    axes.plot(loss, height, "o", color=_OURS, markersize=5, label="loss in design")
    plain = [(zone.context_free_loss, y) for zone, y in zip(zones, height, strict=True) if zone.context_free_loss]
    if plain:
        look: dict[str, Any] = {"color": FAINT, "markersize": 11, "markeredgewidth": 2}
        axes.plot(*zip(*plain, strict=True), "|", label="without context", **look)
    tested = [(zone.held_out, y + 0.22) for zone, y in zip(zones, height, strict=True) if zone.held_out is not None]
    if tested:
        losses, y = zip(*tested, strict=True)
        # Of one vehicle there is no interval.
        reach = np.nan_to_num([[loss.loss - loss.low, loss.high - loss.loss] for loss in losses], posinf=0.0).T
        axes.errorbar(
            [loss.loss for loss in losses], y, xerr=reach, fmt="D", color=_HELD_OUT, markersize=3, linewidth=1,
            label="on walks held out, 95 % interval",
        )  # fmt: skip
    axes.margins(x=0.08)


def _shown(zones: Sequence[ZoneRecord]) -> list[int]:
    """Return the numbers of the zones to show, in order: those with the most steps."""
    share: dict[int, float] = {}
    for zone in zones:
        share[zone.number] = share.get(zone.number, 0.0) + zone.share
    return sorted(sorted(share, key=lambda number: (-share[number], number))[:MOST_ZONES])


def _number_zones(axes: Axes, places: Places, zones: Zones) -> None:
    for number in range(len(zones)):
        here = zones.zone == number
        if here.any():
            axes.text(
                float(np.median(places.lon[here])), float(np.median(places.lat[here])), str(number),
                ha="center", va="center", fontsize=9, fontweight="bold", color=INK, zorder=6,
                bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            )  # fmt: skip
