"""The report of a lattice: its promise in plain words, what it costs, and a picture."""

from __future__ import annotations

from pathlib import Path

from geoblanket._page import Page, ReportFolder
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.picture import draw_lattice
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.meaning import laplace_errors, lattice_in_words
from geoblanket.roads.graph import RoadGraph

__all__ = ["write_lattice_report"]


def write_lattice_report(bundle: Bundle, out: str | Path, *, title: str, roads: str | Path | None = None) -> Path:
    """Write the report of a bundle with a lattice; return where its page is.

    Parameters
    ----------
    bundle
        The bundle, loaded and so verified.
    out
        The folder; made where it does not exist.
    title
        Of the page.
    roads
        The roads that vehicles drive on, or their file; None: they are not mentioned.

    Raises
    ------
    MismatchError
        If the roads reach beyond the frame.
    """
    lattice = bundle.lattice
    if lattice is None:
        raise ParameterError("The bundle has no lattice.")
    plane = lattice.spec.plane
    if roads is not None:
        graph = RoadGraph.load(roads)
        if not plane.holds_many(graph.lat, graph.lon).all():
            raise MismatchError(f"{roads} reaches beyond the frame, which lies from {plane.where}. Give other roads.")
    interval_s = bundle.needed_clock().interval_s
    errors = laplace_errors(lattice.epsilon)
    folder = ReportFolder(out, shown="png")
    folder.draw([("reports", draw_lattice(lattice))])
    meaning = lattice_in_words(lattice, interval_s)
    page = Page(title, lead="A mechanism for a whole city: exact planar Laplace noise between coordinates.")
    page.heading("What it means")
    page.bullets(meaning)
    folder.show(page, "reports", "How probable each cell is from the middle of the frame, and rings of equal odds.")
    page.heading("What is promised")
    for paragraph in bundle.guarantee.split("\n"):
        page.paragraph(paragraph)
    page.heading("What it is")
    side_km = plane.side * plane.unit_mm / 10**6
    page.table(
        ("", ""),
        [
            ("frame, with its margin", f"{side_km:.1f} km × {side_km:.1f} km"),
            ("from and to", plane.where),
            *([] if roads is None else [("holds the roads in", Path(roads).name)]),
            ("cells", f"{lattice.cells:,} of {lattice.cell_m:g} m"),
            ("ε of a report", f"{lattice.epsilon:g} per km"),
            ("at rest", lattice.facts()[2]),
            ("one report every", f"{interval_s:g} s"),
            ("a report is off by, mean", f"{errors.mean_km:.2f} km"),
            ("median, 95 %", f"{errors.median_km:.2f} km, {errors.most_km:.2f} km"),
            ("learned from", "nobody's trips"),
            ("version", str(bundle.version)),
            ("SHA-256", bundle.sha256),
        ],
    )
    folder.write_json("report.json", {"title": title, "meaning": meaning, "guarantee": bundle.guarantee.split("\n")})
    return folder.write_page(page)
