"""What a build promises, discloses and costs, in plain words."""

from __future__ import annotations

import math

from geoblanket._display import UNKNOWN, Interval, interval_text, share
from geoblanket._training import Training
from geoblanket.build.measures import Measured
from geoblanket.build.record import BuildRecord

__all__ = [
    "about_drawn_walks",
    "cost_table",
    "factor_table",
    "learned_in_words",
    "limits",
    "measured",
    "promise",
    "summary",
]

_DISTANCES_KM = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
_FEW_OUTPUTS = 3


def about_drawn_walks(record: BuildRecord) -> str | None:
    """Return what to think of losses on walks that were drawn from a motion model; None if they were driven."""
    if "model" not in record.inputs:
        return None
    return (
        "All walks were drawn from a motion model, those held out too: they are synthetic. Real vehicles move less as "
        "the model says, so expect larger losses."
    )


def learned_in_words(training: Training) -> str:
    """Return what those whose trips were learned from have been promised, as a sentence."""
    if training.source == "nobody":
        return "Nothing was learned from anyone's trips."
    if training.source == "released":
        return (
            "People's released reports were learned from, and keep their own promise: the mechanisms were "
            f"{training.in_words()}."
        )
    if training.promise is None:
        return f"Those whose trips were learned from are promised nothing: the mechanisms were {training.in_words()}."
    return f"Those whose trips were learned from are protected too: the mechanisms were {training.in_words()}."


def summary(record: BuildRecord) -> list[str]:
    """Return what a reader in a hurry should know."""
    totals, unit = record.totals, record.unit
    zones = len({zone.zone for zone in record.zones})
    lines = [
        f"{totals.mechanisms:,} mechanisms for {zones:,} zones, {record.places:,} places; every one verified in exact "
        "arithmetic.",
        f"Expected loss ({record.loss}): {totals.loss:.4g} {unit}. No mechanism of the same rows has less than "
        f"{totals.lower_bound:.4g} {unit}: the gap is {totals.gap:.2%} ({totals.largest_gap:.2%} in the worst zone).",
    ]
    if totals.held_out is not None:
        lines.append(f"On walks that were held out: {measured(totals.held_out, unit)}.")
    if totals.gain is not None:
        lines.append(
            f"Looking at the past lowers the loss by {share(totals.gain)} in design, against the best without."
        )
    if totals.held_out_gain is not None:
        interval = Interval.of(totals.held_out_gain_low, totals.held_out_gain_high)
        sure = f" (95 % interval {interval_text(interval, '.1%')})" if interval is not None else ""
        lines.append(f"On walks that were held out, it lowers the loss by {share(totals.held_out_gain)}{sure}.")
    if (caution := about_drawn_walks(record)) is not None:
        lines.append(caution)
    lines += _second_stage(record)
    if few := [zone for zone in record.zones if zone.outputs_used <= _FEW_OUTPUTS < zone.rows.places]:
        lines.append(
            f"{len(few):,} of {totals.mechanisms:,} mechanisms report at most {_FEW_OUTPUTS} different places with a "
            "probability worth mentioning: for this ε their zones are small, and reports say little beyond the zone."
        )
    return lines


def _second_stage(record: BuildRecord) -> list[str]:
    """Return what the second stage gained; nothing if there was none."""
    refined, unit = record.refinement, record.unit
    if refined is None:
        return []
    stages = [zone.refinement for zone in record.zones if zone.refinement is not None]
    return [
        f"A second stage split the rows of {len(stages):,} mechanisms by more of the past and refined them; "
        f"{sum(stage.used for stage in stages):,} of them are used. It lowers their loss by {refined.gain:.2%}, from "
        f"{refined.loss_before:.4g} to {refined.loss:.4g} {unit}. Without the first stage, the same rows reach "
        f"{refined.least_loss:.4g} {unit}, and no mechanism has less than {refined.lower_bound:.4g} {unit}."
    ]


def promise(record: BuildRecord) -> list[str]:
    """Return what is guaranteed, sentence by sentence."""
    zone = record.zones[0]
    radius_m = math.ceil(record.snapping_radius_m)
    within = "any distance" if zone.eta_km == math.inf else f"a distance of at most η = {zone.eta_km:g} km"
    lines = [
        f"Take two histories in the same zone and regime, d km apart, at {within}. Whatever is reported is at most "
        f"e^(ε·d) times as probable from one as from the other, with ε = {zone.epsilon:g} per km.",
        f"{_history(record)} {_weighted_places(_longest_past(record))}",
        "This holds for every pair of histories, seen in the data or not: any present place of the zone, after any "
        "places of the city; and whatever the recipient knows besides. Predictions and priors decide how useful "
        "reports are, not how private.",
        f"Places stand for all positions near them: a point of a road is at most {radius_m:,} m from its place. "
        f"Between two points of roads, add twice that ({2 * radius_m:,} m) to d.",
    ]
    if zone.eta_km != math.inf:
        lines.append("Beyond η the promise holds along chains of histories within η: their factors multiply.")
    return lines


def limits() -> list[str]:
    """Return what is not promised."""
    return [
        "Reports add up. Each one costs budget, also one from the same place: see the table below. Nothing in the "
        "bundle limits how often a vehicle reports.",
        "The zone of a report is that of the true present place, so it is disclosed exactly; so are the regime and "
        "when a report was made, and that the vehicle made one.",
        "Who reports is not hidden: a name or a number of the vehicle in a report makes its reports linkable.",
        "What a recipient learns in other ways (a camera, a receipt) is not hidden.",
    ]


def disclosure(record: BuildRecord) -> list[tuple[str, str, str]]:
    """Return what an attacker knows, how far off he is on average, and at which share of the steps."""
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


def _weighted_places(weights: tuple[float, ...]) -> str:
    """Return in words what earlier places count in the distance of two histories."""
    if not weights:
        return "The distance of two histories is that of their present places."
    counted = ", ".join("∞" if weight == math.inf else f"{weight:g}" for weight in weights)
    known = " A past with ∞ is taken as known to the recipient, and is not protected." if math.inf in weights else ""
    return (
        "Their distance is that of the present places, plus that of the earlier ones, the latest first, times "
        f"w = {counted}.{known}"
    )


def factor_table(record: BuildRecord) -> list[tuple[str, str]]:
    """Return for some distances by which factor a report can be more probable from one place than from the other."""
    zone = record.zones[0]
    return [
        (f"{distance:g} km", f"{_factor(zone.epsilon * distance)} times")
        for distance in _DISTANCES_KM
        if distance <= zone.eta_km
    ]


def cost_table(record: BuildRecord) -> list[tuple[str, str, str]]:
    """Return what one and many reports spend: reports, budget per km, the factor for places 100 m apart."""
    hour, in_a_row = 3600 / record.interval_s, record.costs.in_a_row_per_km
    return [
        (what, f"{cost:,.4g}", f"{_factor(cost * 0.1)} times")
        for what, cost in (
            ("one report", in_a_row(1)),
            ("ten reports in a row", in_a_row(10)),
            (f"an hour, one every {record.interval_s:g} s", in_a_row(hour)),
            ("a day of eight hours", in_a_row(8 * hour)),
        )
    ]


def measured(mean: Measured | None, unit: str = "") -> str:
    """Return a mean loss over held-out walks, with its confidence interval."""
    if mean is None:
        return UNKNOWN
    interval = Interval.of(mean.low, mean.high)
    sure = "one vehicle only" if interval is None else interval_text(interval, ".4g")
    return f"{mean.loss:.4g}{f' {unit}' if unit else ''} ({sure}; {mean.steps:,} steps)"


def _longest_past(record: BuildRecord) -> tuple[float, ...]:
    return max((zone.history_weights for zone in record.zones), key=len)


def _history(record: BuildRecord) -> str:
    past = len(_longest_past(record))
    if not past:
        return "A history is the present place only."
    places = "one" if past == 1 else f"{past}"
    return f"A history is the present place and the {places} before it, {record.interval_s:g} s apart."


def _factor(exponent: float) -> str:
    """Return e^exponent as people read it."""
    if exponent > math.log(1e6):
        return f"10^{exponent / math.log(10):,.0f}"
    return f"{math.exp(exponent):,.2f}" if exponent < math.log(100) else f"{math.exp(exponent):,.0f}"
