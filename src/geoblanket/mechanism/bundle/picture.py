"""Pictures of a bundle: its zones on a map, how often a mechanism gives each output, and a lattice."""

from __future__ import annotations

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke

from geoblanket._display import counted
from geoblanket._picture import axes_or_new
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.contents import BundledMechanism, ZoneBundle
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import dot_size, plot_map

_LATTICE_REACH = 8.0
"""Within this many 1/ε kilometres nearly all reports lie."""
_RINGS = (2.0, 10.0, 100.0)
_LATTICE_SIZE_IN = (6.4, 5.6)


def plot_zones(
    bundle: ZoneBundle, *, ax: Axes | None, roads: RoadGraph | None, zone: str | None, regime: str | None
) -> Axes:
    """Draw a bundle for `ZoneBundle.plot`: one mechanism, or all zones."""
    if not bundle.located:
        raise MismatchError("The bundle has no coordinates, so that there is no map to draw.")
    if zone is not None or regime is not None:
        first = bundle.mechanisms[0]
        axes = axes_or_new(ax, width_in=5.0, height_in=5.0)
        _draw_mechanism(axes, bundle, bundle.get(zone or first.zone, regime or first.regime))
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


def _draw_mechanism(panel: Axes, bundle: ZoneBundle, bundled: BundledMechanism) -> None:
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
    panel.tick_params(labelsize=6)
    used_outputs = f"ε = {bundled.mechanism.epsilon:g} /km, {len(bundled.outputs)} outputs used"
    title = f"{zone_in_words(bundled.zone)}, {bundled.regime}\n{used_outputs}"
    # A dollar sign would start a formula.
    panel.set_title(title.replace("$", r"\$"), fontsize=9)
    panel.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, -0.22), ncols=2, frameon=False)


def plot_lattice(lattice: Lattice, *, ax: Axes | None) -> Axes:
    """Draw how probable each cell is from the middle of the frame.

    A ring marks from where a report is at most 2, 10 or 100 times less, or more, probable.
    """
    spec = lattice.spec
    across, cell_km = spec.cells_across, lattice.cell_m / 1000
    reach = min(math.ceil(_LATTICE_REACH / lattice.epsilon / cell_km), (across - 1) // 2)
    middle = across // 2
    centre = middle * spec.cell_units + spec.cell_units // 2
    shares = lattice.weights_at(centre, centre).reshape(across, across) / DENOMINATOR
    near = shares[middle - reach : middle + reach + 1, middle - reach : middle + reach + 1]
    half = (reach + 0.5) * cell_km
    panel = axes_or_new(ax, width_in=_LATTICE_SIZE_IN[0], height_in=_LATTICE_SIZE_IN[1])
    image = panel.imshow(
        near,
        origin="lower",
        extent=(-half, half, -half, half),
        cmap="Blues",
        norm=LogNorm(near.max() * 1e-4, near.max()),
    )
    bar = panel.figure.colorbar(image, ax=panel, shrink=0.8)
    bar.set_label(f"probability of a cell of {lattice.cell_m:g} m", fontsize=8)
    for factor in _RINGS:
        radius = math.log(factor) / lattice.epsilon
        if radius < half:
            panel.add_patch(Circle((0, 0), radius, fill=False, color="tab:red", linewidth=0.8))
            panel.annotate(
                f"odds {factor:g}", (0, radius), fontsize=7, color="tab:red", ha="center", va="bottom",
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )  # fmt: skip
    panel.scatter([0], [0], s=8, color="tab:red")
    panel.set_xlabel("kilometres east of the true coordinate", fontsize=8)
    panel.set_ylabel("kilometres north of it", fontsize=8)
    panel.tick_params(labelsize=7)
    panel.set_title(f"Where a report goes: ε = {lattice.epsilon:g} per km", fontsize=10)
    return panel
