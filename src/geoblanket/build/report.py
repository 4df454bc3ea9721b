"""The report of a build: one page that needs no internet, its figures as files, and the record as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geoblanket._display import UNKNOWN, parameter, share, text
from geoblanket._page import Page, ReportFolder
from geoblanket._training import PART_COLUMNS
from geoblanket.build.record import BuildRecord, ZoneRecord, read_record, record_path, write_record
from geoblanket.build.report_figures import MOST_ZONES, loss_figure, loss_map, zones_map, zones_of_bundle
from geoblanket.build.report_words import (
    about_drawn_walks,
    cost_table,
    disclosure,
    factor_table,
    limits,
    measured,
    promise,
    summary,
)
from geoblanket.build.statement import learned_in_words
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.storage import Bundle, load_bundle
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places

__all__ = ["write_build_report"]


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
    zones = zones_of_bundle(loaded, record, places)
    folder = ReportFolder(out, shown="png")
    folder.draw([
        ("zones", zones_map(graph, places, zones)),
        ("loss-map", loss_map(graph, places, zones, record)),
        ("losses", loss_figure(record)),
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
    if len({zone.number for zone in record.zones}) > MOST_ZONES:
        caption += f" The {MOST_ZONES} zones with the most steps are shown."
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
