"""What notebooks show: small, escaped, and nothing from elsewhere.

The objects that the examples in docstrings leave are shown in `test_docs`.
"""

from __future__ import annotations

import sys
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from geoblanket import (
    Certificate,
    City,
    Device,
    Fleet,
    LatticeBundle,
    Ledger,
    Mechanism,
    MotionModel,
    OptimiseResult,
    Places,
    Plan,
    RoadGraph,
    Tracker,
    ZoneBundle,
    Zones,
)
from geoblanket._display import card

IN_NOTEBOOKS: set[type] = {
    Certificate, City, Device, Fleet, LatticeBundle, Ledger, Mechanism, MotionModel, OptimiseResult, Places, Plan,
    RoadGraph, Tracker, ZoneBundle, Zones,
}  # fmt: skip
"""Classes whose objects show a table, and some of them a picture."""


def is_small_page(page: str) -> bool:
    """Return whether a piece of HTML is well-formed, of at most 80 kB, and loads nothing."""
    parts = ET.fromstring(f"<div>{page}</div>")  # noqa: S314
    sources = [image.get("src", "") for image in parts.iter("img")]
    inline = all(source.startswith("data:image/png;base64,") for source in sources)
    return inline and len(page) <= 80_000 and not {"script", "link", "iframe"} & {part.tag for part in parts.iter()}


def draw(axes: Any) -> None:
    axes.plot([0, 1], [0, 1])


def test_a_card_is_escaped_and_loads_nothing() -> None:
    page = card(1, [("<b>", "a & b")], draw=draw, words=["<script>alert(1)</script>"])
    assert is_small_page(page)
    assert "&lt;b&gt;" in page
    assert "a &amp; b" in page
    assert "&lt;script&gt;" in page
    assert page.count("<img ") == 1


def test_without_matplotlib_there_is_a_table_and_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "geoblanket._picture", None)
    page = card(1, [("name", "value")], draw=draw)
    assert "value" in page
    assert "<img" not in page
