"""Figures that are written wholly or not at all, without the global state of pyplot."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geoblanket._files import atomic_output
from geoblanket.errors import ParameterError

__all__ = ["new_figure", "save_figure"]

_ENDINGS = (".png", ".svg", ".pdf")


def new_figure(*, width_in: float, height_in: float) -> Figure:
    """Return an empty figure of a size in inches."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of `path`; the same figure gives the same bytes."""
    path = Path(path)
    if path.suffix.lower() not in _ENDINGS:
        raise ParameterError(f"A picture must end in .png, .svg or .pdf. Got '{path.suffix}' instead.")
    stamps = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with atomic_output(path) as temporary:
        figure.savefig(temporary, dpi=dpi, metadata=stamps[path.suffix.lower()])
