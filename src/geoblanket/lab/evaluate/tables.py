"""The tables of a comparison's report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from geoblanket._display import UNKNOWN, city_name, number, percent, text
from geoblanket._page import Page
from geoblanket.lab.evaluate.experiment import Varied, read_variant
from geoblanket.lab.evaluate.measures import ATTACKS, Measure, Value
from geoblanket.lab.evaluate.panels import WIDE_GAP, Panel, Relation, decide, label_of, reference_epsilon, saved
from geoblanket.lab.evaluate.results import ALL_ZONES, WHOLE_CITY


@dataclass(frozen=True)
class Table:
    """A table of texts about one city; the first column holds words."""

    city: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str

    def add_to(self, page: Page, *, name_city: bool) -> None:
        """Add it to a page; its caption names the city where there are several."""
        page.table(
            self.header, self.rows, caption=f"{city_name(self.city)}: {self.caption}" if name_city else self.caption
        )


def loss_cell(value: Value | None) -> str:
    """Return a loss or an error with half its interval."""
    if value is None or value.interval is None:
        return UNKNOWN if value is None else f"{value.value:.3f}"
    return f"{value.value:.3f} ±{value.interval.half:.3f}"


def gain_cell(difference: Value | None) -> str:
    """Return a share saved with half its interval, and a question mark if it is undecided."""
    if difference is None:
        return UNKNOWN
    sure = f" ±{100 * difference.interval.half:.1f}" if difference.interval is not None else ""
    return f"{text(difference.value, '.1%')}{sure}{' ?' if decide(difference) is Relation.UNDECIDED else ''}"


def _cell(panel: Panel, method: str, measure: Measure, point: float | str) -> str:
    value = panel.value(method, measure, point)
    return UNKNOWN if value is None else measure.text(value.value)


def _label(panel: Panel, method: str, points: Sequence[float | str]) -> str:
    """Return what a method is called, and whether the predicted blanket gave the same rows in all zones."""
    same = all(panel.number(method, Measure.SAME_AS_PREDICTED, point) == 1 for point in points)
    return f"{label_of(method)}, same as {label_of('lp_cmdp')}" if same else label_of(method)


def loss_table(panel: Panel) -> Table:
    """Return the held-out losses of all methods at every ε, with half their intervals."""
    return Table(
        panel.city,
        ("", *(f"ε = {number(point)}" for point in panel.points)),
        [
            (
                _label(panel, method, panel.points),
                *(loss_cell(panel.value(method, Measure.HELD_OUT_LOSS, point)) for point in panel.points),
            )
            for method in panel.methods
        ],
        f"Loss on held-out walks, {panel.unit(Measure.HELD_OUT_LOSS)}, with 95 % intervals{_sample(panel)}.",
    )


def _sample(panel: Panel) -> str:
    """Return the numbers of held-out vehicles and steps, if known."""
    vehicles, steps = (
        panel.first_series(panel.methods, name) for name in (Measure.HELD_OUT_VEHICLES, Measure.HELD_OUT_STEPS)
    )
    return f"; {vehicles[0][1].value:,.0f} vehicles, {steps[0][1].value:,.0f} steps" if vehicles and steps else ""


def gain_table(panel: Panel, method: str, others: Sequence[str]) -> Table:
    """Return the share by which a method's loss is below others', a row for each ε."""
    return Table(
        panel.city,
        ("ε per km", *(f"below {label_of(other)} by" for other in others)),
        [
            (number(point), *(gain_cell(saved(panel, method, other, point)) for other in others))
            for point in panel.points
        ],
        f"What {label_of(method)} saves on held-out walks, with 95 % intervals of the difference "
        "on the same vehicles. A question mark: it cannot be decided which is lower.",
    )


def sweep_table(panel: Panel, name: str, pair: tuple[str, str]) -> Table:
    """Return the losses of two methods along a varied quantity, and the share that the first saves."""
    method, other = pair
    return Table(
        panel.city,
        (name, label_of(method), label_of(other), f"below {label_of(other)} by"),
        [
            (
                number(point),
                *(loss_cell(panel.value(key, Measure.HELD_OUT_LOSS, point)) for key in pair),
                gain_cell(saved(panel, method, other, point)),
            )
            for point in panel.points
        ],
        f"Loss on held-out walks at ε = {panel.setting['epsilon']:g} per km, {panel.unit(Measure.HELD_OUT_LOSS)}, with "
        f"95 % intervals. A question mark: it cannot be decided which is "
        "lower.",
    )


def _measures_table(
    panel: Panel, measures: Sequence[Measure], caption: str, points: Sequence[float | str] | None = None
) -> Table:
    """Return the measures that are known, a row for each method and point; without points, at one ε."""
    points = (reference_epsilon(panel),) if points is None else points
    shown = [measure for measure in measures if panel.has(measure)]
    rows = [
        (_label(panel, method, [point]), number(point), *(_cell(panel, method, measure, point) for measure in shown))
        for point in points
        for method in panel.methods
    ]
    return Table(panel.city, ("", "ε per km", *(measure.column for measure in shown)), rows, caption)


def privacy_table(panel: Panel) -> Table:
    """Return leakage and attacks of all methods at one ε."""
    attacks = (measure for attack in ATTACKS for measure in (attack.error, attack.success))
    spent = (Measure.EPSILON_EFFECTIVE, Measure.LEAKAGE_MAX, Measure.LEAKAGE_EXPECTED, Measure.COMPOSED_EPSILON)
    return _measures_table(
        panel,
        (*spent, *attacks),
        "Leakage per km, cost of reports in a row by composition, and attackers on one report, on one report with "
        "a known place before, and on reports in a row.",
    )


_EFFICIENCY = (
    Measure.ROWS, Measure.DEEPER_ROWS, Measure.DEEPER_SHARE, Measure.OUTPUTS, Measure.BUILD_SECONDS,
    Measure.PEAK_MEMORY_MB, Measure.BUNDLE_BYTES, Measure.RELEASE_US, Measure.GAP,
)  # fmt: skip


def efficiency_table(panel: Panel) -> Table:
    """Return time, memory and size of mechanisms, at one ε."""
    return _measures_table(
        panel,
        _EFFICIENCY,
        "Rows, those that look further back than t − 1, seconds and bytes of all zones together; outputs: mean number "
        "of places that are reported in more than one of a thousand cases.",
    )


_OF_ONE_REPORT = (
    Measure.DISPLACEMENT, Measure.INFERENCE_ERROR, Measure.CONTEXT_INFERENCE_ERROR, Measure.INFERENCE_ERROR_PRIOR,
    Measure.EPSILON_EFFECTIVE, Measure.BUILD_SECONDS, Measure.BUNDLE_BYTES,
)  # fmt: skip


def whole_city_table(panel: Panel) -> Table:
    """Return errors of one report, of the receiver and of an attacker, for methods without zones."""
    return _measures_table(
        panel,
        _OF_ONE_REPORT,
        "The whole city, no zone disclosed: any two places are protected from each other, by the lattice any two "
        "coordinates. Errors are straight lines. Off: the best place for a report, as the receiver knows it, from the "
        "true one. Error of a guess: an attacker who sees one report, as it was sent.",
        panel.points,
    )


def zones_table(panel: Panel) -> Table:
    """Return the same for methods in zones, and what the zones alone disclose."""
    return _measures_table(
        panel,
        (*_OF_ONE_REPORT, Measure.CROSSING_ERROR, Measure.CROSSING_SHARE),
        f"Zones of at most {panel.setting['max_places']:g} places, the zone of the true place disclosed: only places "
        "of one zone are protected from each other. Without the report, an attacker still knows the zone; at a "
        "crossing, the zone before too. Means over zones, by their steps.",
        panel.points,
    )


def tracked_table(panel: Panel, *, equal_cost: bool = False) -> Table:
    """Return losses by single reports and by tracking, and the tracker's error, at every ε."""
    unit = panel.unit(Measure.TRACKED_LOSS)
    rows = [
        (
            f"{label_of(method)}{_unfinished(panel, method, point)}",
            number(point),
            _cell(panel, method, Measure.EPSILON_PER_LOCATION, point),
            loss_cell(panel.value(method, Measure.HELD_OUT_LOSS, point)),
            loss_cell(panel.value(method, Measure.TRACKED_LOSS, point)),
            gain_cell(None if method == "lp" else saved(panel, method, "lp", point, Measure.TRACKED_LOSS)),
            loss_cell(panel.value(method, Measure.SINGLE_ERROR, point)),
            loss_cell(panel.value(method, Measure.TRACKED_ERROR, point)),
        )
        for point in panel.points
        for method in panel.methods
        if panel.value(method, Measure.TRACKED_ERROR, point) is not None
    ]
    zones = panel.setting.get("max_places")
    where = f"Zones of at most {zones:g} places, the zone disclosed" if zones else "The whole city, no zone disclosed"
    same = "the same cost per location" if equal_cost else "the same ε for each report"
    blind = panel.first_series(panel.methods, Measure.TRACKED_ERROR_PRIOR)
    known = "the zones alone" if zones else "no report at all"
    off = f"; by {known}, the tracker is {blind[0][1].value:.3f} km off" if blind else ""
    return Table(
        panel.city,
        (
            "", "cost per location" if equal_cost else "ε per km", "a location costs", f"single loss, {unit}",
            f"tracked loss, {unit}", "below LP by", "one report: error, km", "tracked: error, km",
        ),
        rows,
        f"{where}, {same}{off}.",
    )  # fmt: skip


def _unfinished(panel: Panel, method: str, point: float | str) -> str:
    """Return a remark for a linear program that was stopped far from its optimum."""
    gap = panel.number(method, Measure.GAP, point)
    return "" if gap is None or gap <= WIDE_GAP else f" (search stopped at a gap of {percent(gap)})"


def hour_tables(results: pl.DataFrame) -> Iterator[Table]:
    """Yield the tracker's errors at equal cost per hour: many reports with a small ε, or few with a large one.

    Parameters
    ----------
    results
        A table of `RESULTS_SCHEMA`.
    """
    for zone, where in ((ALL_ZONES, "The zone disclosed"), (WHOLE_CITY, "No zone disclosed")):
        for (_, city, _), part in results.filter(zone=zone).group_by(
            "experiment", "city", "loss_case", maintain_order=True
        ):
            ways = _ways_to_spend_an_hour(part)
            if ways:
                yield Table(
                    str(city),
                    ("an hour costs", "", "report every", "a location costs", "tracked: error, km"),
                    ways,
                    f"{where}: the same budget for an hour. Errors are of all steps of "
                    f"{part['interval_s'][0]:g} s, with a report or without.",
                )


def _ways_to_spend_an_hour(rows: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return rows for each cost per hour that was spent at several intervals, without unfinished searches."""
    ways: dict[tuple[float, float, str], tuple[str, ...]] = {}
    for (variant, _, method), part in rows.group_by("variant", "epsilon", "method", maintain_order=True):
        varied = read_variant(str(variant))
        values = {row["measure"]: Value.of(row) for row in part.iter_rows(named=True)}
        cost, location, error, gap = (
            values.get(name)
            for name in (
                Measure.EPSILON_PER_HOUR, Measure.EPSILON_PER_LOCATION, Measure.TRACKED_ERROR, Measure.GAP,
            )
        )  # fmt: skip
        alone = varied.keys() <= {Varied.EVERY, Varied.EQUAL_COST} and (gap is None or gap.value <= WIDE_GAP)
        if alone and cost is not None and location is not None and error is not None:
            seconds = float(rows["interval_s"][0]) * float(varied.get(Varied.EVERY, 1))
            cells = (
                Measure.EPSILON_PER_HOUR.text(cost.value), label_of(str(method)), f"{seconds:g} s",
                Measure.EPSILON_PER_LOCATION.text(location.value), loss_cell(error),
            )  # fmt: skip
            # Equal costs per location are another ε of the same method; without a past, the same one.
            ways.setdefault((round(cost.value, 2), seconds, str(method)), cells)
    intervals: dict[float, set[float]] = {}
    for per_hour, seconds, _ in ways:
        intervals.setdefault(per_hour, set()).add(seconds)
    return [ways[key] for key in sorted(ways) if len(intervals[key[0]]) > 1]
