"""The reports of bundles: one page that needs no internet, its figures as files, and the record as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.storage import LatticeBundle, ZoneBundle, load_bundle
from geoblanket.mechanism.promise import Promise, laplace_errors
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import dot_size, draw_zones, map_figure
from geoblanket.roads.places import Places, choose_places
from geoblanket.roads.zones import Zones

_MOST_ZONES = 60
"""Zones in the figure of losses: those with the most steps."""

_NARROWEST_SCALE = 0.5
"""The loss map's colours span at least this share of the largest loss: nearly equal losses look nearly equal."""

_OURS = "#1f5f8b"
_HELD_OUT = "#c8553d"


def write_build_report(bundle: str | Path, roads: str | Path, out: str | Path) -> Path:
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
    if isinstance(loaded, LatticeBundle) or not np.array_equal(places.coordinates_e7, loaded.places_e7):
        raise MismatchError(f"{bundle} was built with other roads than {roads}. Give the roads that it was built with.")
    zones = _zones_of_bundle(loaded, record, places)
    folder = ReportFolder(out, shown="png")
    folder.draw([
        ("zones", _zones_map(graph, places, zones)),
        ("loss-map", _loss_map(graph, places, zones, record)),
        ("losses", _loss_figure(record)),
    ])  # fmt: skip
    write_record(record, folder.path / record.bundle)
    page = Page(f"The build of {record.bundle}", lead=f"{record.loss}, {loaded.promise.epsilon_in_words}")
    page.heading("In short")
    page.bullets(record.summary)
    _add_promise(page, loaded.promise, disclosure=_disclosure(record))
    page.heading("Zones and places")
    caption = "The public zones, one colour each, and the places as dots. A report names a place of the zone."
    folder.show(
        page, "zones", caption, alt="A map of the roads with the zones in colours, their numbers, and all places."
    )
    _add_losses(page, record, folder)
    _add_rows(page, record)
    _add_making(page, record)
    return folder.write_page(page)


def _add_promise(
    page: Page,
    promise: Promise,
    *,
    disclosure: Sequence[Sequence[str]] = (),
    draw: Callable[[], None] = lambda: None,
) -> None:
    """Add every section of the promise, with its tables; `draw` adds a figure after what the promise means."""
    for heading, sentences in promise.sections().items():
        page.heading(heading)
        page.bullets(sentences)
        if heading == "What it means":
            same_past = " Two histories have the same past." if promise.between == "history" else ""
            page.table(
                ("Distance between two locations", "one report changes their odds by at most"),
                promise.factor_rows(),
                caption=f"What one report can tell.{same_past}",
            )
            draw()
        if heading == "What is disclosed" and disclosure:
            page.table(
                ("An attacker who knows", "is off on average by", "share of steps"),
                disclosure,
                caption="The best guess of an attacker who knows how often vehicles are where, on the training walks.",
            )
        if heading == "What is not promised":
            page.table(
                ("Reports", "budget, per km", "for places 100 m apart, at most"),
                promise.total_rows(),
                caption="The budget of reports in a row, as the ledger counts it.",
            )
    if (learned := promise.training.promise) is not None:
        page.table(PART_COLUMNS, learned.rows(), caption=learned.proof(), words=(0,))


def _disclosure(record: BuildRecord) -> list[tuple[str, str, str]]:
    """Return what an attacker knows, how far off that leaves them on average, and at which share of the steps."""
    rows = []
    for what, name, of_crossings in (
        ("the zone alone", "zone_error_m", False),
        ("the zone and the report", "report_error_m", False),
        ("at a crossing: both zones", "crossing_error_m", True),
        ("at a crossing: both zones and the report", "crossing_report_error_m", True),
    ):
        parts = [
            (getattr(zone.disclosure, name), zone.share * (zone.disclosure.crossing_share if of_crossings else 1.0))
            for zone in record.zones
            if getattr(zone.disclosure, name) is not None
        ]
        if weight := sum(part for _, part in parts):
            error = sum(error * part for error, part in parts) / weight
            rows.append((what, f"{error:,.0f} m", f"{weight:.0%}"))
    return rows


def _add_losses(page: Page, record: BuildRecord, folder: ReportFolder) -> None:
    page.heading("Loss and gap")
    page.paragraph(
        f"The loss is {record.loss}, in {record.unit}. In design, vehicles move as in the training walks; held-out "
        "walks are of other vehicles, or of a later time, and were not looked at before. The gap says by how much the "
        "loss can at most be above the least possible one of the same rows; it is proven, not estimated."
    )
    if (caution := record.caution) is not None:
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
    if notes:
        page.subheading("Notes")
        page.bullets(notes)


def _loss_row(zone: ZoneRecord) -> tuple[str, ...]:
    plain = zone.context_free_loss
    gain = None if not plain or zone.rows.context == "none" else 1 - zone.loss / plain
    held_out = UNKNOWN if zone.held_out is None else zone.held_out.in_words()
    return (
        f"{zone.number}", zone.regime, share(zone.share), f"{zone.loss:#.4g}", f"{zone.gap:.2%}",
        held_out, f"{zone.outputs_used} of {zone.rows.places}", text(plain, "#.4g"), share(gain),
    )  # fmt: skip


def _add_rows(page: Page, record: BuildRecord) -> None:
    page.heading("Rows")
    page.paragraph(
        "Only what the context looks at tells rows apart. A history without a row uses that of the nearest one. The "
        "promise holds between all histories."
    )
    page.table(
        ("zone", "regime", "context", "places", "histories seen", "rows", "by lag", "seconds"),
        [
            (
                f"{zone.number}", zone.regime, zone.rows.context, f"{zone.rows.places:,}",
                f"{zone.rows.histories_seen:,}", f"{zone.rows.rows:,}", zone.rows.by_lag, f"{zone.seconds:.1f}",
            )
            for zone in record.zones_in_order
        ],
        caption="By lag: rows that look back to t − 1, t − 2, ..., and how probable those beyond t − 1 are.",
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


def write_lattice_report(
    bundle: LatticeBundle, out: str | Path, *, title: str, roads: str | Path | None = None
) -> Path:
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
    lattice, plane = bundle.lattice, bundle.lattice.spec.plane
    if roads is not None:
        graph = RoadGraph.load(roads)
        if not plane.holds_many(graph.lat, graph.lon).all():
            raise MismatchError(f"{roads} reaches beyond the frame, which lies from {plane.where}. Give other roads.")
    interval_s = bundle.needed_clock().interval_s
    errors = laplace_errors(lattice.epsilon)
    folder = ReportFolder(out, shown="png")
    figure = new_figure(width_in=6.4, height_in=5.6)
    bundle.plot(ax=figure.add_subplot())
    folder.draw([("reports", figure)])
    page = Page(title, lead="A mechanism for a whole city: exact planar Laplace noise between coordinates.")
    caption = (
        "Where a report goes from the middle of the frame: the darker a cell, the more probable. From a location on a "
        "ring, a report is at most that many times more or less probable than from the middle."
    )
    _add_promise(page, bundle.promise, draw=lambda: folder.show(page, "reports", caption))
    page.heading("What it is")
    side_km = plane.side * plane.unit_mm / 10**6
    page.table(
        ("what", "value"),
        [
            ("covered area, margin included", f"{side_km:.1f} km × {side_km:.1f} km"),
            ("its south-west and north-east corners", plane.where),
            *([] if roads is None else [("roads inside the area, from the file", Path(roads).name)]),
            ("cells that a report can name", f"{lattice.cells:,}, each {lattice.cell_m:g} m wide"),
            ("ε of one report", f"{lattice.epsilon:g} per km"),
            ("time between reports", f"{interval_s:g} s"),
            ("last report is repeated", f"within {lattice.hold_m:g} m" if lattice.hold_m else "never"),
            ("mean error of a report", f"{errors.mean_km:.2f} km"),
            ("half of the reports are off by less than", f"{errors.median_km:.2f} km"),
            ("95 % of the reports are off by less than", f"{errors.most_km:.2f} km"),
            ("version of the bundle", str(bundle.version)),
            ("SHA-256 of the bundle", bundle.sha256),
        ],
        words=(0, 1),
    )
    folder.write_json("report.json", {"title": title, "promise": bundle.promise.as_json()})
    return folder.write_page(page)


def _zones_of_bundle(bundle: ZoneBundle, record: BuildRecord, places: Places) -> Zones:
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
    most = float(np.nanmax(loss))
    least = min(float(np.nanmin(loss)), (1 - _NARROWEST_SCALE) * most)
    drawn = axes.scatter(
        places.lon[inside], places.lat[inside], c=loss[zones.zone[inside]], s=4 * dot_size(len(places)),
        cmap="viridis_r", linewidths=0, zorder=3, vmin=least, vmax=most,
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
