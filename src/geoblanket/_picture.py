"""Figures that are written wholly or not at all, without the global state of pyplot."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geoblanket._files import atomic_output, check_output
from geoblanket.errors import ParameterError

__all__ = ["check_picture", "new_figure", "save_figure"]

_STAMPS = {".png": ("Software",), ".svg": ("Date",), ".pdf": ("CreationDate",)}
"""The formats, and the metadata of each that would differ from one run or machine to the next."""


def new_figure(*, width_in: float, height_in: float) -> Figure:
    """Return an empty figure of a size in inches."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def check_picture(path: str | Path) -> None:
    """Raise at once, before long work, if no picture could be written at `path`."""
    if Path(path).suffix.lower() not in _STAMPS:
        raise ParameterError(f"A picture must end in .png, .svg or .pdf. Got '{Path(path).suffix}' instead.")
    check_output(path)


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 150, private: bool = False) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of `path`; the same figure gives the same bytes.

    A private one shows true ways: nobody but the user may read it.
    """
    check_picture(path)
    metadata = dict.fromkeys(_STAMPS[Path(path).suffix.lower()])
    with atomic_output(path, private=private) as temporary, rc_context({"svg.hashsalt": "geoblanket"}):
        figure.savefig(temporary, dpi=dpi, metadata=metadata)
