"""How objects show themselves in notebooks: a small table and, where there is one, a small picture.

All text is escaped, nothing is loaded from elsewhere, and colours are those of the notebook, light or dark.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Final

from geoblanket.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Rows", "card"]

Rows = Iterable[tuple[str, str]]
"""What a table says: names and values."""

_SIZE_IN: Final = (4.6, 3.6)
_DPI: Final = 80
_COLOURS: Final = 96
_TABLE: Final = "border-collapse:collapse;margin:.4em 0 0;color:inherit;font:inherit"
_LINE: Final = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL: Final = f"text-align:left;padding:.15em .8em .15em 0;background:none;{_LINE}"


def card(thing: object, rows: Rows, *, draw: Callable[[Axes], object] | None = None, words: Iterable[str] = ()) -> str:
    """Return a table of facts about a thing as HTML, with a picture beside it and sentences below.

    Parameters
    ----------
    draw
        Draws the picture on axes; left out where Matplotlib is not installed.
    """
    name = escape(type(thing).__name__)
    table = "".join(
        f'<tr><th style="{_CELL};font-weight:normal;opacity:.7">{escape(key)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
        for key, value in rows
    )
    sentences = "".join(f'<p style="margin:.3em 0">{escape(sentence)}</p>' for sentence in words)
    picture = "" if draw is None else _picture(draw, name)
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">'
        f'<div><b>{name}</b><table style="{_TABLE}">{table}</table></div>'
        f'{picture}</div><div style="max-width:50em">{sentences}</div>'
    )


def _picture(draw: Callable[[Axes], object], name: str) -> str:
    try:
        from PIL import Image

        from geoblanket._picture import new_figure

        figure = new_figure(width_in=_SIZE_IN[0], height_in=_SIZE_IN[1])
        draw(figure.add_subplot())
    except (ModuleNotFoundError, MissingExtraError):
        return ""
    drawn, packed = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    # A palette is enough, and a third of the size: a notebook keeps every picture that it shows.
    Image.open(drawn).convert("RGB").quantize(_COLOURS).save(packed, "PNG", optimize=True)
    data = b64encode(packed.getvalue()).decode("ascii")
    return f'<img alt="{name}" style="max-width:100%" src="data:image/png;base64,{data}"/>'
