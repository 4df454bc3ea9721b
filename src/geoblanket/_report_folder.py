"""The folder of a report: figures (PNG and SVG), one page that needs no internet, and what it says as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geoblanket import __version__
from geoblanket._files import atomic_output, make_folder
from geoblanket._page import Page
from geoblanket._picture import save_figure
from geoblanket._progress import Progress, silent

__all__ = ["ReportFolder"]

_FULL_WIDTH_IN = 8.0
"""Figures of this width or more take all of the page's."""


class ReportFolder:
    """A folder that a report is written to; made where it does not exist.

    Parameters
    ----------
    path
        The folder.
    shown
        Which of its figures the page shows: `svg`, or `png` for maps, whose many lines are smaller as pixels.

    Raises
    ------
    OutputError
        If it cannot be made.
    """

    def __init__(self, path: str | Path, *, shown: str = "svg") -> None:
        self.path, self._shown = make_folder(path), shown
        self.widths: dict[str, float] = {}
        """The figures, and which share of the page's width each wants."""

    def draw(self, figures: Iterable[tuple[str, Figure]], progress: Progress = silent) -> None:
        """Write figures, each under its name."""
        for name, figure in figures:
            progress("figures", len(self.widths), None)
            save_figure(figure, self.path / f"{name}.png", dpi=130)
            figure.set_layout_engine("none")  # it is laid out now; to do it again takes as long as to draw it
            save_figure(figure, self.path / f"{name}.svg", dpi=130)
            self.widths[name] = min(1.0, figure.get_figwidth() / _FULL_WIDTH_IN)

    def show(self, page: Page, name: str, caption: str, *, alt: str = "") -> None:
        """Put a figure on a page, if it was drawn.

        Parameters
        ----------
        caption, alt
            What it shows, and what a reader who cannot see it should know: by default the same.
        """
        if name in self.widths:
            path = self.path / f"{name}.{self._shown}"
            page.figure(path, caption=caption, alt=alt or caption, width=self.widths[name])

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write what the report says, for programs."""
        with atomic_output(self.path / name) as temporary:
            temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False), encoding="utf-8")

    def write_page(self, page: Page) -> Path:
        """Write the page as `report.html`; return where it is."""
        page.save(self.path / "report.html", footer=f"Made by geoblanket {__version__}.")
        return self.path / "report.html"
