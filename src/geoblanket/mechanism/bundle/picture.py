"""A picture of a bundle: how often each output is given."""

from __future__ import annotations

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geoblanket._display import counted
from geoblanket._picture import axes_or_new, new_figure
from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism
from geoblanket.mechanism.bundle.zone_names import zone_in_words
from geoblanket.mechanism.lattice.picture import plot_lattice
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import dot_size, plot_map

__all__ = ["draw_bundle", "plot_bundle"]

_MOST_PANELS = 12


def draw_bundle(bundle: Bundle) -> Figure:
    """Draw the mechanisms of a bundle, the first twelve.

    With coordinates: a map of all places, and on it the outputs, the larger the more often they are given where all
    rows are equally probable. Without: the probabilities of each row (downwards) over the outputs that are used.
    """
    shown = bundle.mechanisms[:_MOST_PANELS]
    columns = math.ceil(math.sqrt(len(shown)))
    lines = math.ceil(len(shown) / columns)
    figure = new_figure(width_in=3.4 * columns + 0.4, height_in=3.4 * lines + 0.6)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, bundled in zip(panels, shown, strict=False):
        _draw_mechanism(panel, bundle, bundled)
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    if bundle.located:
        marks = figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
        for mark, size in zip(marks.legend_handles, (60, 8), strict=True):
            if isinstance(mark, PathCollection):
                mark.set_sizes([size])
    if len(shown) < len(bundle):
        figure.suptitle(f"{len(shown)} of {len(bundle)} mechanisms", fontsize=10)
    return figure


def plot_bundle(
    bundle: Bundle, *, ax: Axes | None, roads: RoadGraph | None, zone: str | None, regime: str | None
) -> Axes:
    """Draw a bundle for `Bundle.plot`: its lattice, one mechanism, or its zones."""
    if bundle.lattice is not None:
        return plot_lattice(bundle.lattice, ax=ax)
    if zone is not None or regime is not None or not bundle.located:
        first = bundle.mechanisms[0]
        axes = axes_or_new(ax, width_in=5.0, height_in=5.0)
        _draw_mechanism(axes, bundle, bundle.get(zone or first.zone, regime or first.regime))
        if bundle.located:
            axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, -0.22), ncols=2, frameon=False)
        return axes
    lat, lon = bundle.places_e7.T / 1e7
    axes = plot_map(ax, lat, lon, roads=roads)
    names = sorted({bundled.zone for bundled in bundle})
    shades = colormaps["tab20"].colors  # type: ignore[attr-defined]
    colours = shades[::2] + shades[1::2]
    outside = np.ones(len(lat), bool)
    for number, name in enumerate(names):
        here = np.unique(np.concatenate([bundled.histories[:, 0] for bundled in bundle if bundled.zone == name]))
        here = here[here >= 0]
        outside[here] = False
        colour = [colours[number % len(colours)]]
        axes.scatter(lon[here], lat[here], s=2 * dot_size(len(lat)), c=colour, linewidths=0, zorder=3)
    axes.scatter(lon[outside], lat[outside], s=dot_size(len(lat)), c="0.6", linewidths=0, zorder=3)
    epsilon = max(bundled.mechanism.epsilon for bundled in bundle)
    title = f"{counted(len(names), 'zone')}, {counted(len(lat), 'place')}, ε = {epsilon:g} per km"
    axes.set_title(title, loc="left", fontsize=9)
    return axes


def _draw_mechanism(panel: Axes, bundle: Bundle, bundled: BundledMechanism) -> None:
    if bundle.located:
        _draw_map(panel, bundle, bundled)
    else:
        _draw_table(panel, bundled)
    used = f"ε = {bundled.mechanism.epsilon:g} /km, {len(bundled.outputs)} outputs used"
    title = f"{zone_in_words(bundled.zone)}, {bundled.regime}\n{used}"
    panel.tick_params(labelsize=6)
    # A dollar sign would start a formula.
    panel.set_title(title.replace("$", r"\$"), fontsize=9)


def _draw_map(panel: Axes, bundle: Bundle, bundled: BundledMechanism) -> None:
    lat, lon = bundle.places_e7.T / 1e7
    share = bundled.mechanism.probabilities.mean(axis=0)
    used = np.unique(bundled.histories[:, 0])
    inside = used[used >= 0]
    panel.scatter(lon, lat, s=2, color="0.85", linewidths=0)
    panel.scatter(
        lon[bundled.output_places],
        lat[bundled.output_places],
        s=2 + 120 * share / share.max(),
        color="tab:blue",
        alpha=0.45,
        linewidths=0,
        label="outputs: the larger, the more often given",
    )
    panel.scatter(lon[inside], lat[inside], s=3, color="0.2", linewidths=0, label="places of the zone")
    panel.set_aspect(1 / math.cos(math.radians(float(lat.mean()))))
    panel.ticklabel_format(useOffset=False)
    panel.set_xlabel("longitude", fontsize=7)
    panel.set_ylabel("latitude", fontsize=7)


def _draw_table(panel: Axes, bundled: BundledMechanism) -> None:
    image = panel.imshow(bundled.mechanism.probabilities, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    bar = panel.figure.colorbar(image, ax=panel, shrink=0.8)
    bar.ax.tick_params(labelsize=6)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("used output", fontsize=7)
    panel.set_ylabel("row", fontsize=7)
