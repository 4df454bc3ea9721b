"""A picture of a lattice: where reports from the middle of the frame go, with rings of equal odds."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke

from geoblanket._picture import axes_or_new, new_figure
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import DENOMINATOR

__all__ = ["draw_lattice", "plot_lattice"]

_SHOWN = 8.0
"""Within this many 1/ε kilometres nearly all reports lie."""
_RINGS = (2.0, 10.0, 100.0)
_SIZE_IN = (6.4, 5.6)


def draw_lattice(lattice: Lattice) -> Figure:
    """Return a figure of a lattice; see `plot_lattice`."""
    figure = new_figure(width_in=_SIZE_IN[0], height_in=_SIZE_IN[1])
    plot_lattice(lattice, ax=figure.add_subplot())
    return figure


def plot_lattice(lattice: Lattice, *, ax: Axes | None) -> Axes:
    """Draw how probable each cell is from the middle of the frame.

    A ring marks from where a report is at most 2, 10 or 100 times less, or more, probable.
    """
    spec = lattice.spec
    across, cell_km = spec.cells_across, lattice.cell_m / 1000
    reach = min(math.ceil(_SHOWN / lattice.epsilon / cell_km), (across - 1) // 2)
    middle = across // 2
    centre = middle * spec.cell_units + spec.cell_units // 2
    shares = lattice.weights_at(centre, centre).reshape(across, across) / DENOMINATOR
    near = shares[middle - reach : middle + reach + 1, middle - reach : middle + reach + 1]
    half = (reach + 0.5) * cell_km
    panel = axes_or_new(ax, width_in=_SIZE_IN[0], height_in=_SIZE_IN[1])
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
