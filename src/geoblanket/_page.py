"""Reports: a page that needs no internet, in a folder with its pictures (PNG and SVG) and its content as JSON.

A page reads well on a phone and on paper, in light and in dark. Everything that is given as text is escaped: there is
no way to put markup in. Figures are embedded as images, in which browsers run no script and fetch nothing. A policy in
the page's head forbids both for the rest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geoblanket import __version__
from geoblanket._display import Progress, silent
from geoblanket._files import atomic_output, make_folder
from geoblanket._picture import save_figure
from geoblanket.errors import InputError, ParameterError

_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #22262d; --faint: #666d78; --line: #d9dce1; --card: #f3f4f1;
        --accent: #1f5f8b; --wrong: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16191e; --ink: #e4e6ea; --faint: #9aa2ae; --line: #343a44; --card: #1f242b; --accent: #7db8e0;
          --wrong: #ff8a80; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; border-bottom: 1px solid var(--line); padding-bottom: 0.25rem; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.25rem; }
p, ul { max-width: 46rem; }
li { margin: 0.35rem 0; }
.lead, figcaption, caption, footer { color: var(--faint); }
.note { border-left: 4px solid var(--accent); background: var(--card); padding: 0.6rem 1rem; max-width: 46rem; }
.wrong { border-left: 4px solid var(--wrong); background: var(--card); color: var(--wrong); padding: 0.6rem 1rem;
         max-width: 46rem; font-weight: 600; }
nav ul { columns: 16rem; padding-left: 1.2rem; }
nav li { margin: 0; padding: 0.175rem 0; break-inside: avoid; }
a { color: var(--accent); }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 600; }
.number { text-align: right; }
td.number { white-space: nowrap; }
figure { margin: 1.25rem 0; }
figure img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
             border-radius: 6px; }
figcaption { font-size: 0.9rem; margin-top: 0.4rem; max-width: 46rem; }
footer { margin-top: 3rem; font-size: 0.85rem; border-top: 1px solid var(--line); padding-top: 0.75rem; }
@media print { body { font-size: 11pt; } figure, tr { break-inside: avoid; } }
""".strip()

_SHEET = """
@page { size: A4; margin: 11mm 15mm; }
:root { color-scheme: light; --paper: #fff; --ink: #22262d; --faint: #5b626d; --line: #d9dce1; --card: #f3f4f1;
        --accent: #1f5f8b; }
main { max-width: 180mm; padding: 11mm 0; } body { font-size: 10.5pt; line-height: 1.36; }
h1 { font-size: 17pt; margin: 0; } .lead { margin: 0.5mm 0; }
h2 { font-size: 11.5pt; margin: 3.2mm 0 1mm; padding-bottom: 0.4mm; color: var(--accent); }
p, ul, .note { max-width: none; margin: 1mm 0; } ul { padding-left: 5mm; } li { margin: 0.5mm 0; }
.scroll { margin: 1.5mm 0; } table { font-size: inherit; } th, td { padding: 0.6mm 8mm 0.6mm 0; }
footer { margin-top: 4mm; padding-top: 1mm; font-size: 7.5pt; overflow-wrap: anywhere; }
@media print { main { padding: 0; } body { font-size: 9.5pt; line-height: 1.32; } }
@media (max-width: 190mm) { main { padding: 5mm; } }
""".strip()
"""For one sheet of paper: light, dense, and without a list of its sections."""

_FULL_WIDTH_IN = 8.0
"""Figures of this width or more take all of the page's."""


class Page:
    """A page that is put together from top to bottom, then written.

    Parameters
    ----------
    title
        Of the page.
    lead
        A line below it.
    sheet
        Whether it is to be printed on one sheet of paper.
    """

    def __init__(self, title: str, *, lead: str = "", sheet: bool = False) -> None:
        self._title = title
        self._lead = lead
        self._sheet = sheet
        self._body: list[str] = []
        self._headings: list[str] = []

    def heading(self, text: str) -> None:
        """Begin a section; sections are listed at the page's top."""
        self._headings.append(text)
        self._body.append(f'<h2 id="section-{len(self._headings)}">{escape(text)}</h2>')

    def subheading(self, text: str) -> None:
        """Begin a part of a section."""
        self._body.append(f"<h3>{escape(text)}</h3>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._body.append(f"<p>{escape(text)}</p>")

    def note(self, text: str) -> None:
        """Add a paragraph that stands out."""
        self._body.append(f'<p class="note">{escape(text)}</p>')

    def warning(self, text: str) -> None:
        """Add a paragraph about something that is wrong, in red."""
        self._body.append(f'<p class="wrong">{escape(text)}</p>')

    def bullets(self, items: Iterable[str]) -> None:
        """Add a list."""
        self._body.append("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>")

    def table(
        self, header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", words: Sequence[int] = (0,)
    ) -> None:
        """Add a table of texts.

        Parameters
        ----------
        header, rows
            The columns' names, and as many texts in each row.
        caption
            What it shows.
        words
            Which columns hold words, counted from 0; the others hold numbers, and end at the right.
        """
        lines = [list(row) for row in rows]
        if any(len(line) != len(header) for line in lines):
            raise ParameterError(f"Every row of a table must have {len(header)} cells, as its header has.")
        kinds = ["" if position in words else ' class="number"' for position in range(len(header))]
        head = "".join(f'<th scope="col"{kind}>{escape(cell)}</th>' for kind, cell in zip(kinds, header, strict=True))
        body = "".join(
            "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, line, strict=True)) + "</tr>"
            for line in lines
        )
        title = f"<caption>{escape(caption)}</caption>" if caption else ""
        self._body.append(
            f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def figure(self, path: str | Path, *, caption: str, alt: str, width: float = 1.0) -> None:
        """Embed a picture.

        Parameters
        ----------
        path
            An SVG or PNG file.
        caption
            What it shows.
        alt
            What a reader who cannot see it should know.
        width
            Of the page, where there is room: a share.
        """
        path = Path(path)
        kind = _KINDS.get(path.suffix.lower())
        if kind is None:
            raise ParameterError(f"A figure of a page must be an .svg or .png file. Got '{path.suffix}' instead.")
        try:
            content = base64.b64encode(path.read_bytes()).decode("ascii")
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
        size = "" if width >= 1 else f' style="width: max({width:.0%}, min(100%, 24rem))"'
        self._body.append(
            f'<figure><img src="data:{kind};base64,{content}" alt="{escape(alt)}"{size}>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def html(self, *, footer: str = "") -> str:
        """Return the whole page."""
        contents = "".join(
            f'<li><a href="#section-{number}">{escape(text)}</a></li>' for number, text in enumerate(self._headings, 1)
        )
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en">',
                "<head>",
                '<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="referrer" content="no-referrer">',
                f"<title>{escape(self._title)}</title>",
                f"<style>{_STYLE}{_SHEET * self._sheet}</style>",
                "</head>",
                "<body><main>",
                f"<h1>{escape(self._title)}</h1>",
                *([f'<p class="lead">{escape(self._lead)}</p>'] if self._lead else []),
                *([f'<nav aria-label="Sections"><ul>{contents}</ul></nav>'] if contents and not self._sheet else []),
                *self._body,
                *([f"<footer>{escape(footer)}</footer>"] if footer else []),
                "</main></body>",
                "</html>",
                "",
            ]
        )

    def save(self, path: str | Path, *, footer: str = "") -> None:
        """Write the page, wholly or not at all."""
        with atomic_output(path) as temporary:
            temporary.write_text(self.html(footer=footer), encoding="utf-8")


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
