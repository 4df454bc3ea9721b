"""Figures that look alike, and are written wholly or not at all.

Pictures in files need no pyplot, and none of its global state; it serves only those who plot without axes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geoblanket._files import atomic_output, check_output
from geoblanket.errors import ParameterError

INK = "#3c4048"
FAINT = "#9aa2ae"
DASHED = (0, (4, 3))

_GRID = "#e3e5e8"
_STAMPS = {".png": ("Software",), ".svg": ("Date",), ".pdf": ("CreationDate",)}
"""The formats, and the metadata of each that would differ from one run or machine to the next."""


def axes_or_new(ax: Axes | None, *, width_in: float, height_in: float) -> Axes:
    """Return the axes given, or those of a new figure of a size in inches, which notebooks show."""
    return shown_figure(width_in=width_in, height_in=height_in).add_subplot() if ax is None else ax


def shown_figure(*, width_in: float, height_in: float) -> Figure:
    """Return an empty figure of a size in inches that notebooks show, as they do those of pyplot alone."""
    from matplotlib import pyplot as plt

    return plt.figure(figsize=(width_in, height_in), layout="constrained")


def new_figure(*, width_in: float, height_in: float) -> Figure:
    """Return an empty figure of a size in inches."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Axes, *, font: float = 8.0) -> None:
    """Draw little besides the data: a light grid below it, no box around it."""
    axes.grid(color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.tick_params(labelsize=font, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)


def shared_legend(figure: Figure, panels: Iterable[Axes], **options: Any) -> None:
    """Add one legend for all panels, beside them: each label once, in as many columns as were asked for and fit."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    options = {"loc": "outside upper center", "frameon": False, "fontsize": 8, "ncols": 1, **options}
    for columns in range(options["ncols"], 0, -1):
        legend = figure.legend(handles.values(), handles.keys(), **{**options, "ncols": columns})
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def check_picture(path: str | Path) -> None:
    """Raise at once, before long work, if no picture could be written at `path`."""
    if Path(path).suffix.lower() not in _STAMPS:
        raise ParameterError(f"A picture must end in .png, .svg or .pdf. Got '{Path(path).suffix}' instead.")
    check_output(path)


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 150, private: bool = False) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of `path`; the same figure gives the same bytes.

    A private picture shows true routes: nobody but the user may read it.
    """
    check_picture(path)
    metadata = dict.fromkeys(_STAMPS[Path(path).suffix.lower()])
    with atomic_output(path, private=private) as temporary, rc_context({"svg.hashsalt": "geoblanket"}):
        figure.savefig(temporary, dpi=dpi, metadata=metadata)
