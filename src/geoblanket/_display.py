"""How things are shown: objects in one line or in a notebook, numbers in reports, and the progress of long work.

Neither a location nor a secret is ever shown. In notebooks all text is escaped, nothing is loaded from elsewhere, and
colours are those of the notebook, light or dark.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from geoblanket.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST: Final = 120

Rows = Iterable[tuple[str, str]]
"""What a table says: names and values."""

_SIZE_IN: Final = (4.6, 3.6)
_DPI: Final = 80
_COLOURS: Final = 96
_TABLE: Final = "border-collapse:collapse;margin:.4em 0 0;color:inherit;font:inherit"
_LINE: Final = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL: Final = f"text-align:left;padding:.15em .8em .15em 0;background:none;{_LINE}"

UNKNOWN = "–"
"""What stands where nothing is known."""


def counted(count: int, thing: str) -> str:
    """Return a number of things in words: "1 zone", "1,200 zones"."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def between(least: int, most: int) -> str:
    """Return a range in words: "7", "5 to 12"."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def short_repr(thing: object, *facts: str) -> str:
    """Return the kind of a thing and facts about it, on one line; empty facts are left out."""
    return f"<{_cut(f'{type(thing).__name__}: ' + ', '.join(filter(None, facts)), _LONGEST - 2)}>"


def options_repr(options: Any) -> str:
    """Return a dataclass of options as the call that makes it, without options at their defaults."""
    given = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.default is MISSING or getattr(options, field.name) != field.default
    }
    return call_repr(options, given)


def call_repr(options: object, given: dict[str, Any]) -> str:
    """Return options as the call that makes them, with these parameters."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    words = ", ".join(f"{name}={value!r}" for name, value in plain.items())
    return f"{type(options).__name__}({_cut(words, _LONGEST - 2 - len(type(options).__name__))})"


def _cut(text: str, longest: int) -> str:
    """Return a text on one line, cut where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


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


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    @classmethod
    def of(cls, low: float | None, high: float | None) -> Interval | None:
        """Return the interval between two bounds; None unless both are known and finite."""
        if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
            return None
        return cls(low, high)

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2

    def above(self, other: Interval) -> bool:
        """Whether this interval lies wholly above another."""
        return self.low > other.high


def city_name(name: str) -> str:
    """Return the name of a city as pages write it."""
    return "San Francisco" if name.lower() == "sanfrancisco" else name.title()


def number(value: float | str) -> str:
    """Return a number as people write it, or a word as it is."""
    return value if isinstance(value, str) else f"{value:g}".replace("inf", "∞")


def parameter(value: Any) -> str:
    """Return a parameter, a JSON value, as a table of parameters shows it."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {parameter(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(parameter, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return UNKNOWN if value is None else number(value) if isinstance(value, float) else f"{value}"


def text(value: float | None, form: str = ".3g", interval: Interval | None = None) -> str:
    """Return an estimate, with its interval in brackets where it is known: "0.15 (0.13 to 0.17)"."""
    if value is None:
        return UNKNOWN
    return f"{value:{form}}{f' ({interval_text(interval, form)})' if interval else ''}".replace("-", "−")


def interval_text(interval: Interval, form: str = ".3g") -> str:
    """Return an interval in words: "0.13 to 0.17"."""
    return f"{interval.low:{form}} to {interval.high:{form}}".replace("-", "−")


def percent(*shares: float) -> str:
    """Return a share in per cent, with a decimal where it is small; of several, the range that they span."""
    words = (f"{end:.0%}" if abs(end) >= 0.0995 else f"{end:.1%}" for end in (min(shares), max(shares)))
    return " to ".join(dict.fromkeys(words)).replace("-", "−")


def share(value: float | None) -> str:
    """Return a share in per cent, with one decimal."""
    return UNKNOWN if value is None else f"{value:.1%}"


def signed(value: float | None) -> str:
    """Return a coefficient with its sign, to three decimals."""
    return UNKNOWN if value is None else f"{value:+.3f}"


def p_text(p_value: float | None) -> str:
    """Return a p-value: three decimals, or that it is below them."""
    if p_value is None:
        return UNKNOWN
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


class Progress(Protocol):
    """Called with a phase's name and how much of it is done; `total` is None where unknown."""

    def __call__(self, phase: str, done: float, total: float | None) -> None: ...


def silent(phase: str, done: float, total: float | None) -> None:
    """Show nothing: the default of every function that reports progress."""
