"""The reports of bundles: one page that needs no internet, its figures as files, and the record as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geoblanket._arrays import Indices
from geoblanket._display import UNKNOWN, parameter, share, text
from geoblanket._page import Page, ReportFolder
from geoblanket._picture import FAINT, INK, new_figure, quiet, shared_legend
from geoblanket._training import PART_COLUMNS
from geoblanket.build.record import BuildRecord, ZoneRecord, read_record, record_path, write_record
from geoblanket.build.report_words import (
    about_drawn_walks,
    cost_table,
    disclosure,
    factor_table,
    learned_in_words,
    limits,
    measured,
    promise,
    summary,
)
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.picture import draw_lattice
from geoblanket.mechanism.bundle.storage import Bundle, load_bundle
from geoblanket.mechanism.meaning import laplace_errors, lattice_in_words
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import dot_size, draw_zones, map_figure
from geoblanket.roads.places import Places, choose_places
from geoblanket.roads.zones import Zones

__all__ = ["write_build_report", "write_lattice_report"]

_MOST_ZONES = 60
"""Zones in the figure of losses: those with the most steps."""

_OURS = "#1f5f8b"
_HELD_OUT = "#c8553d"


def write_build_report(bundle: str | Path, roads: str | Path, out: str | Path, *, title: str | None = None) -> Path:
    """Write `report.html`, its figures (PNG and SVG) and the record (`NAME.build.json`) to a folder.

    The bundle is loaded, and so verified again, on the way.

    Parameters
    ----------
    bundle
        A bundle with its record beside it, as `build_bundle` writes them.
    roads
        The roads that it was built with.
    out
        The folder; it is made where it does not exist.
    title
        Of the page; by default the bundle's name.

    Returns
    -------
    page
        Where the page is.

    Raises
    ------
    InputError, GuaranteeViolation
        If the bundle or its record cannot be used.
    MismatchError
        If bundle, record and roads do not belong together.
    """
    record = read_record(record_path(bundle))
    loaded = load_bundle(bundle)
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=record.spacing_m)
    if loaded.sha256 != record.bundle_sha256:
        raise MismatchError(f"{record_path(bundle)} is the record of another bundle than {bundle}. Build again.")
    if not np.array_equal(places.coordinates_e7, loaded.places_e7):
        raise MismatchError(f"{bundle} was built with other roads than {roads}. Give the roads that it was built with.")
    zones = _zones_of_bundle(loaded, record, places)
    folder = ReportFolder(out, shown="png")
    folder.draw([
        ("zones", _zones_map(graph, places, zones)),
        ("loss-map", _loss_map(graph, places, zones, record)),
        ("losses", _loss_figure(record)),
    ])  # fmt: skip
    write_record(record, folder.path / record.bundle)
    page = Page(title or f"The build of {record.bundle}", lead=f"{record.loss}, ε = {record.zones[0].epsilon:g} per km")
    page.heading("In short")
    page.bullets([*summary(record), learned_in_words(loaded.training)])
    _add_promise(page, record, loaded)
    page.heading("Zones and places")
    caption = "The public zones, one colour each, and the places as dots. A report names a place of the zone."
    folder.show(
        page, "zones", caption, alt="A map of the roads with the zones in colours, their numbers, and all places."
    )
    _add_losses(page, record, folder)
    _add_sizes(page, record)
    _add_making(page, record)
    return folder.write_page(page)


def _add_promise(page: Page, record: BuildRecord, bundle: Bundle) -> None:
    page.heading("What is promised")
    page.bullets(promise(record))
    page.table(
        ("Two present places apart by", "at most so much more probable from one"),
        factor_table(record),
        caption="One report, with the same past.",
    )
    page.heading("What is not")
    page.bullets(limits())
    page.table(
        ("Reports", "budget, per km", "for places 100 m apart, at most"),
        cost_table(record),
        caption=(
            "What reports add up to, at most, for one who compares two ways that differ by so much all the time. The "
            "ledger counts the same: ε·(1 + Σw) per report, and more for the first, whose place stands for all earlier "
            "ones that are not known."
        ),
    )
    page.subheading("What the zone gives away")
    page.note(f"Every report discloses {bundle.disclosed}.")
    page.table(
        ("Who knows", "is off on average by", "share of steps"),
        disclosure(record),
        caption="The best guess of an attacker who knows how often vehicles are where, on the training walks.",
    )
    page.subheading("Those whose trips were learned from")
    page.paragraph(learned_in_words(bundle.training))
    if (promised := bundle.training.promise) is not None:
        page.table(PART_COLUMNS, promised.rows(), caption=promised.proof(), words=(0,))
    page.subheading("As it was verified")
    for line in bundle.guarantee.split("\n"):
        page.paragraph(line)


def _add_losses(page: Page, record: BuildRecord, folder: ReportFolder) -> None:
    page.heading("Loss and gap")
    page.paragraph(
        f"The loss is {record.loss}, in {record.unit}. In design, vehicles move as in the training walks; held-out "
        "walks are of other vehicles, or of a later time, and were not looked at before. The gap says by how much the "
        "loss can at most be above the least possible one of the same rows; it is proven, not estimated."
    )
    if (caution := about_drawn_walks(record)) is not None:
        page.note(caution)
    caption = "The loss of each zone, by regime."
    if len({zone.number for zone in record.zones}) > _MOST_ZONES:
        caption += f" The {_MOST_ZONES} zones with the most steps are shown."
    alt = "For each zone: the proven bound, the loss in design, on held-out walks, and without context."
    folder.show(page, "losses", caption, alt=alt)
    caption = "Where the loss is large: places by the expected loss of their zone."
    folder.show(page, "loss-map", caption, alt="A map of the places, coloured by the loss of their zone.")
    header = ("zone", "regime", "share of steps", "loss", "gap", "held out", "outputs used")
    compared = ("without context", "context gains") if record.totals.context_free_loss is not None else ()
    rows = (_loss_row(zone)[: len(header) + len(compared)] for zone in record.zones_in_order)
    page.table((*header, *compared), rows, caption=f"Losses in {record.unit}.", words=(0, 1))
    notes = [f"{zone.where}: {note}." for zone in record.zones_in_order for note in _ended(zone)]
    _add_second_stage(page, record)
    if notes:
        page.subheading("Notes")
        page.bullets(notes)


def _add_second_stage(page: Page, record: BuildRecord) -> None:
    stages = [(zone, zone.refinement) for zone in record.zones_in_order if zone.refinement is not None]
    if not stages:
        return
    page.subheading("The second stage")
    page.paragraph(
        "Rows are split by places further back. Fine rows may differ, and on average they report as the row that they "
        "are parts of. All losses here are expected ones over the fine rows."
    )
    page.table(
        ("zone", "regime", "fine rows", "first stage", "refined", "gain", "without the first stage", "proven bound"),
        [
            (
                f"{zone.number}", zone.regime, f"{stage.rows:,}", f"{stage.loss_before:.4g}",
                f"{stage.loss:.4g}" + ("" if stage.used else " (not used)"), f"{stage.gain:.2%}",
                f"{stage.least_loss:.4g}", f"{stage.lower_bound:.4g}",
            )
            for zone, stage in stages
        ],
        caption=f"Losses in {record.unit}.",
        words=(0, 1),
    )  # fmt: skip


def _loss_row(zone: ZoneRecord) -> tuple[str, ...]:
    plain = zone.context_free_loss
    gain = None if not plain or zone.rows.context == "none" else 1 - zone.loss / plain
    return (
        f"{zone.number}", zone.regime, share(zone.share), f"{zone.loss:.4g}", f"{zone.gap:.2%}",
        measured(zone.held_out), f"{zone.outputs_used} of {zone.rows.places}", text(plain, ".4g"), share(gain),
    )  # fmt: skip


def _add_sizes(page: Page, record: BuildRecord) -> None:
    page.heading("Sizes, before and after the reduction")
    page.paragraph(
        "Before: every history of the full length that a vehicle can have is a row of its own. After: only what the "
        "context looks at tells rows apart, and histories that were hardly seen share the row of the nearest one. The "
        "promise between histories is the same."
    )
    page.table(
        ("", "before", "after", "of it"),
        [
            (name, _big(before), _big(after), f"{after / before:.2g}" if before else UNKNOWN)
            for name in ("variables", "constraints")
            for before, after in [(getattr(record.totals, f"{name}_before"), getattr(record.totals, name))]
        ],
        caption="All zones and regimes together.",
    )
    page.table(
        ("zone", "regime", "context", "places", "histories within reach", "seen", "rows", "seconds"),
        [
            (
                f"{zone.number}", zone.regime, zone.rows.context, f"{zone.rows.places:,}",
                _big(zone.rows.histories_reachable), f"{zone.rows.histories_seen:,}", f"{zone.rows.rows:,}",
                f"{zone.seconds:.1f}",
            )
            for zone in record.zones_in_order
        ],
        words=(0, 1, 2),
    )  # fmt: skip


def _add_making(page: Page, record: BuildRecord) -> None:
    page.heading("How it was made")
    memory = max(record.peak_memory_mb, *(zone.peak_memory_mb for zone in record.zones))
    page.table(
        ("what", "value"),
        [
            ("size of the bundle", f"{record.bundle_bytes:,} bytes"),
            ("SHA-256 of the bundle", record.bundle_sha256),
            ("time of the build", f"{record.seconds:,.0f} s"),
            ("time of all zones together", f"{sum(zone.seconds for zone in record.zones):,.0f} s"),
            ("memory of a process, at most", f"{memory:,.0f} MB"),
            ("time between the places of a history", f"{record.interval_s:g} s"),
            ("spacing of the places, at least", f"{record.spacing_m:g} m"),
        ],
        words=(0, 1),
    )
    parameters = [
        (section, name, parameter(value)) for section, values in record.config.items() for name, value in values.items()
    ]
    page.table(("section", "parameter", "value"), parameters, caption="Every parameter.", words=(0, 1, 2))
    made = [*record.inputs.items(), *record.software.items()]
    page.table(("what", "identity or version"), made, caption="Inputs and software.", words=(0, 1))


def _ended(zone: ZoneRecord) -> Iterator[str]:
    yield from (note.rstrip(".") for note in zone.notes)
    if zone.gap > 0.05:
        yield f"the gap is {zone.gap:.1%}; the search ended because of {zone.outcome}"


def _big(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


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


def _zones_of_bundle(bundle: Bundle, record: BuildRecord, places: Places) -> Zones:
    """Return the zones that the bundle has mechanisms for, numbered as in the record; places in none have −1."""
    number = {zone.zone: zone.number for zone in record.zones}
    zone: Indices = np.full(len(places), -1, np.int32)
    for bundled in bundle:
        zone[np.unique(bundled.histories[:, 0])] = number[bundled.zone]
    names = {position: name for name, position in number.items()}
    ids = tuple(names.get(position, "") for position in range(max(names) + 1))
    return Zones(
        zone=zone,
        ids=ids,
        neighbours=np.empty((0, 2), np.int32),
        max_places=int(np.bincount(zone[zone >= 0]).max()),
        places_identity=places.identity,
    )


def _zones_map(graph: RoadGraph, places: Places, zones: Zones) -> Figure:
    """Return a map of the zones with all places and the numbers of the zones."""
    figure, axes = map_figure(graph, colour="#4a505c", width=0.4)
    draw_zones(axes, graph, places, zones)
    axes.scatter(places.lon, places.lat, s=dot_size(len(places)), color=INK, linewidths=0, zorder=3)
    _number_zones(axes, places, zones)
    return figure


def _loss_map(graph: RoadGraph, places: Places, zones: Zones, record: BuildRecord) -> Figure:
    """Return a map of the places, coloured by the expected loss of their zone (the mean over regimes)."""
    figure, axes = map_figure(graph, colour="#c3c7cd", width=0.5)
    loss = np.full(len(zones), np.nan)
    for number in {zone.number for zone in record.zones}:
        here = [zone for zone in record.zones if zone.number == number]
        weight = np.array([zone.share for zone in here]) + 1e-12
        loss[number] = np.average([zone.loss for zone in here], weights=weight)
    inside = zones.zone >= 0
    drawn = axes.scatter(
        places.lon[inside], places.lat[inside], c=loss[zones.zone[inside]], s=4 * dot_size(len(places)),
        cmap="viridis_r", linewidths=0, zorder=3,
    )  # fmt: skip
    _number_zones(axes, places, zones)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, pad=0.01)
    bar.set_label(f"expected loss, {record.unit}")
    return figure


def _loss_figure(record: BuildRecord) -> Figure:
    """Return the loss of each zone, a panel for each regime: bound, design, held out, and without context."""
    regimes = sorted({zone.regime for zone in record.zones})
    shown = _shown(record.zones)
    figure = new_figure(width_in=max(4.5, 3.2 * len(regimes)) + 1, height_in=1.6 + 0.24 * len(shown))
    panels = figure.subplots(1, len(regimes), sharex=True, sharey=True, squeeze=False)[0]
    for axes, regime in zip(panels, regimes, strict=True):
        here = {zone.number: zone for zone in record.zones if zone.regime == regime}
        _draw_losses(axes, [here[number] for number in shown if number in here], shown)
        axes.set_title(regime, fontsize=10)
        axes.set_xlabel(f"loss, {record.unit}")
    panels[0].set_yticks(range(len(shown)), [f"{number}" for number in shown])
    panels[0].set_ylabel("zone")
    panels[0].set_ylim(len(shown) - 0.4, -0.6)
    shared_legend(figure, panels, loc="outside lower center", ncols=2)
    return figure


def _draw_losses(axes: Axes, zones: Sequence[ZoneRecord], shown: Sequence[int]) -> None:
    height = np.array([shown.index(zone.number) for zone in zones])
    bound, loss = (np.array([getattr(zone, name) for zone in zones]) for name in ("lower_bound", "loss"))
    quiet(axes)
    axes.hlines(height, bound, loss, color=_OURS, linewidth=5, alpha=0.45, label="from the proven bound to the loss")
    axes.plot(loss, height, "o", color=_OURS, markersize=5, label="loss in design")
    plain = [(zone.context_free_loss, y) for zone, y in zip(zones, height, strict=True) if zone.context_free_loss]
    if plain:
        look: dict[str, Any] = {"color": FAINT, "markersize": 11, "markeredgewidth": 2}
        axes.plot(*zip(*plain, strict=True), "|", label="without context", **look)
    tested = [(zone.held_out, y + 0.22) for zone, y in zip(zones, height, strict=True) if zone.held_out is not None]
    if tested:
        losses, y = zip(*tested, strict=True)
        # Of one vehicle there is no interval.
        reach = np.nan_to_num([[loss.loss - loss.low, loss.high - loss.loss] for loss in losses], posinf=0.0).T
        axes.errorbar(
            [loss.loss for loss in losses], y, xerr=reach, fmt="D", color=_HELD_OUT, markersize=3, linewidth=1,
            label="on walks held out, 95 % interval",
        )  # fmt: skip
    axes.margins(x=0.08)


def _shown(zones: Sequence[ZoneRecord]) -> list[int]:
    """Return the numbers of the zones to show, in order: those with the most steps."""
    share: dict[int, float] = {}
    for zone in zones:
        share[zone.number] = share.get(zone.number, 0.0) + zone.share
    return sorted(sorted(share, key=lambda number: (-share[number], number))[:_MOST_ZONES])


def _number_zones(axes: Axes, places: Places, zones: Zones) -> None:
    for number in range(len(zones)):
        here = zones.zone == number
        if here.any():
            axes.text(
                float(np.median(places.lon[here])), float(np.median(places.lat[here])), str(number),
                ha="center", va="center", fontsize=9, fontweight="bold", color=INK, zorder=6,
                bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            )  # fmt: skip
