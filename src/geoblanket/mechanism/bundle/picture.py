"""A picture of a bundle: how often each output is given."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geoblanket._picture import new_figure
from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism
from geoblanket.mechanism.bundle.zone_names import zone_in_words

__all__ = ["draw_bundle"]

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
        if bundle.located:
            _draw_map(panel, bundle, bundled)
        else:
            _draw_table(panel, bundled)
        # A dollar sign would start a formula.
        used = f"ε = {bundled.mechanism.epsilon:g} /km, {len(bundled.outputs)} outputs used"
        title = f"{zone_in_words(bundled.zone)}, {bundled.regime}\n{used}"
        panel.tick_params(labelsize=6)
        panel.set_title(title.replace("$", r"\$"), fontsize=9)
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
