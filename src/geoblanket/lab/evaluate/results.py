"""Results as one tidy table: a row for each measure of a method in a setting and zone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrayfile import Arrays
from geoblanket._display import Interval
from geoblanket._files import atomic_output
from geoblanket._tables import reading_parquet, scan_table, write_table
from geoblanket.build.measures import VehicleLosses, measure, ratio_interval
from geoblanket.build.validation import as_json, read_dataclass
from geoblanket.lab.evaluate.comparing import MethodOutcome, ZoneOutcome
from geoblanket.lab.evaluate.experiment import ONE_DESTINATION, Setting, Varied, joined, read_variant
from geoblanket.lab.evaluate.measures import HeldOut, Measure, Value, gain_over
from geoblanket.lab.evaluate.methods import METHODS
from geoblanket.lab.evaluate.tracking import ZoneReports
from geoblanket.mobility.walks import Split

RESULTS_SCHEMA: dict[str, pl.DataType] = {
    "experiment": pl.String(),
    "city": pl.String(),
    "zone": pl.Int32(),
    "method": pl.String(),
    "epsilon": pl.Float64(),
    "eta_km": pl.Float64(),
    "history_weight": pl.Float64(),
    "spacing_m": pl.Float64(),
    "interval_s": pl.Float64(),
    "max_places": pl.Int32(),
    "loss_case": pl.String(),
    "variant": pl.String(),
    "measure": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "unit": pl.String(),
}
"""`zone` is −1 for all zones together, and −2 for the whole city without zones, which has another promise and a null
`max_places`. `history_weight` is the weight of the place at t − 1, infinite for a known past. `variant` names whatever
else varies, and is mostly empty. `low` and `high` bound the 95 % confidence interval, null where there is none."""

SETTING_COLUMNS = tuple(list(RESULTS_SCHEMA)[: list(RESULTS_SCHEMA).index("measure")])
"""What identifies a method in a setting and zone."""

ALL_ZONES = -1
WHOLE_CITY = -2

_DEVIATIONS = 1.96
_KIND = "results"
_TABLE, _TEXT, _PUBLIC = "results.parquet", "results.csv", "results.json"


def write_results(frame: pl.DataFrame, folder: str | Path, *, about: Mapping[str, Any]) -> Path:
    """Write results as `results.parquet` and `results.csv`, and to publish as `results.json`; return the first.

    Parameters
    ----------
    about
        How they were made, as JSON values.
    """
    folder = Path(folder)
    write_table(frame, folder / _TABLE, kind=_KIND, about=about, private=False)
    with atomic_output(folder / _TEXT) as temporary:
        frame.write_csv(temporary)
    public = {
        "benchmark": "geoblanket reproduce",
        "format": 1,
        **{key: about.get(key) for key in ("cities", "own_methods", "software", "notes", "violations")},
        "rows": public_rows(frame, about),
    }
    with atomic_output(folder / _PUBLIC) as temporary:
        temporary.write_text(json.dumps(public, indent=1, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return folder / _TABLE


def public_rows(frame: pl.DataFrame, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each method in a setting and with a loss: of all zones together, or of the city without zones.

    Rows may be compared if they agree in `city`, `split`, `promise`, `discloses`, `loss_case` and `compared_at`.
    """
    found: dict[tuple[Any, ...], dict[str, Value]] = {}
    for row in frame.filter(pl.col("zone") < 0).iter_rows(named=True):
        found.setdefault(tuple(row[name] for name in SETTING_COLUMNS), {})[row["measure"]] = Value.of(row)
    rows = []
    for key, own in found.items():
        setting = dict(zip(SETTING_COLUMNS, key, strict=True))
        # Vehicles with one destination each judge the mechanisms that were made for all destinations.
        made_for = {**setting, "loss_case": "population"} if setting["loss_case"] == ONE_DESTINATION else setting
        values = {**found.get(tuple(made_for.values()), {}), **own}
        if Measure.VERIFIED in values:  # otherwise a part of a setting, such as several reports in a row
            seed = about.get("experiments", {}).get(setting["experiment"], {}).get("seed", 0)
            version = about.get("software", {}).get("geoblanket")
            rows.append({**_public_row(setting, values), "split": _split(seed), "version": version})
    return rows


def _split(seed: int) -> str:
    return f"{Split().held_out:.0%} of the vehicles held out, drawn with seed {seed}"


def _public_row(setting: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    def number(measure: Measure) -> float | None:
        value = values[measure].value if measure in values else math.nan
        return value if math.isfinite(value) else None

    def estimate(name: str, measure: Measure) -> dict[str, float | None]:
        interval = values[measure].interval if measure in values else None
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        return {name: number(measure), f"{name}_low": low, f"{name}_high": high}

    equal_cost = Varied.EQUAL_COST in read_variant(setting["variant"])
    if setting["zone"] == WHOLE_CITY:
        promise, discloses = "any two places of the city", "nothing"
    else:
        weight = "known" if math.isinf(setting["history_weight"]) else f"at weight {setting['history_weight']:g}"
        promise = f"histories within {setting['eta_km']:g} km, the place before {weight}"
        discloses = f"the zone, of at most {setting['max_places']} places"
    vehicles, steps = number(Measure.HELD_OUT_VEHICLES), number(Measure.HELD_OUT_STEPS)
    loss = values.get(Measure.HELD_OUT_LOSS)
    return {
        **{name: setting[name] for name in ("city", "experiment", "method")},
        "label": METHODS[setting["method"]].label,
        "promise": promise,
        "discloses": discloses,
        "compared_at": "cost of a location" if equal_cost else "epsilon of a report",
        **{name: setting[name] for name in ("epsilon", "variant", "spacing_m", "interval_s", "loss_case")},
        "cost_per_location": number(Measure.EPSILON_PER_LOCATION),
        "unit": None if loss is None else loss.unit,
        **estimate("loss", Measure.HELD_OUT_LOSS),
        **estimate("tracked_error_km", Measure.TRACKED_ERROR),
        "vehicles": None if vehicles is None else round(vehicles),
        "steps": None if steps is None else round(steps),
        "verified": number(Measure.VERIFIED) == 1.0,
        "effective_epsilon": number(Measure.EPSILON_EFFECTIVE),
        "lower_bound": number(Measure.LOWER_BOUND),
        "proven_gap": number(Measure.GAP),
    }


@checked
def read_results(folder: str | Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read the results in a folder, and how they were made."""
    path = Path(folder) / _TABLE
    frame, about = scan_table(path, kind=_KIND, schema=RESULTS_SCHEMA)
    with reading_parquet(path):
        return frame.collect(), about


_PLAIN = ("zone", "share", "unit", "spacing_m", "interval_s")


def pack_outcome(outcome: ZoneOutcome) -> tuple[dict[str, Any], Arrays]:
    """Return an outcome as JSON values and arrays."""
    arrays: dict[str, Any] = {}
    methods = []
    for number, method in enumerate(outcome.methods):
        for index, losses in enumerate(method.held_out.values()):
            arrays |= losses.as_arrays(f"{number}/{index}/")
        if method.reports is not None:
            arrays |= method.reports.as_arrays(f"{number}/reports/")
        methods.append(
            {
                "method": method.method,
                "note": method.note,
                "reports": method.reports is not None,
                "values": as_json([{**value.columns, "part": value.part} for value in method.values]),
                "held_out": [as_json(measure) for measure in method.held_out],
            }
        )
    return {**{key: getattr(outcome, key) for key in _PLAIN}, "methods": methods}, arrays


def unpack_outcome(fields: dict[str, Any], arrays: Arrays) -> ZoneOutcome:
    """Return the outcome again."""
    methods = tuple(_method(number, values, arrays) for number, values in enumerate(fields["methods"]))
    return ZoneOutcome(**{key: fields[key] for key in _PLAIN}, methods=methods)


def _method(number: int, fields: dict[str, Any], arrays: Arrays) -> MethodOutcome:
    held_out = {
        read_dataclass(HeldOut, measure): VehicleLosses.from_arrays(arrays, f"{number}/{index}/")
        for index, measure in enumerate(fields["held_out"])
    }
    values = tuple(map(Value.of, fields["values"]))
    reports = ZoneReports.from_arrays(arrays, f"{number}/reports/") if fields["reports"] else None
    return MethodOutcome(fields["method"], values, held_out, fields["note"], reports)


BASELINES = (
    "lp", "constopt", "constopt_peaks", "expmech", "expmech_published", "tem", "lp_true_mb", "lp_markov1",
    "planar_laplace_remap", "lattice", "peaks",
)  # fmt: skip
"""Methods over which gains are reported."""


_COMPARED = (Measure.HELD_OUT_LOSS, Measure.ONE_DESTINATION_LOSS, Measure.TRACKED_LOSS, Measure.TRACKED_ERROR)


def tabulate(
    experiment: str,
    city: str,
    outcomes: Mapping[Setting, Sequence[ZoneOutcome]],
    tracked: Mapping[Setting, ZoneOutcome],
) -> pl.DataFrame:
    """Return the results of all settings of an experiment in a city.

    Parameters
    ----------
    outcomes
        Of the zones, for each setting.
    tracked
        Of vehicles that are tracked through all zones, for each setting.
    """
    rows: list[dict[str, Any]] = []
    for setting, zones in outcomes.items():
        if setting.city_wide:
            rows += _rows(experiment, city, setting, WHOLE_CITY, zones, tracked=tracked.get(setting))
            continue
        for zone in zones:
            rows += _rows(experiment, city, setting, zone.zone, [zone])
        rows += _rows(experiment, city, setting, ALL_ZONES, zones, tracked=tracked.get(setting))
    return pl.DataFrame(rows, schema=RESULTS_SCHEMA)


def _rows(
    experiment: str,
    city: str,
    setting: Setting,
    zone: int,
    zones: Sequence[ZoneOutcome],
    *,
    tracked: ZoneOutcome | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one zone, or of several together."""
    per_method = {
        method.method: [next(m for m in outcome.methods if m.method == method.method) for outcome in zones]
        for method in zones[0].methods
    }
    of_walks = {} if tracked is None else {method.method: [method] for method in tracked.methods}
    weights = [outcome.share for outcome in zones]
    for method, parts in per_method.items():
        base = {
            "experiment": experiment,
            "city": city,
            "zone": zone,
            "method": method,
            "epsilon": setting.epsilon,
            "eta_km": setting.protected_km,
            "history_weight": setting.history_weights[0],
            "spacing_m": zones[0].spacing_m,
            "interval_s": zones[0].interval_s,
            "max_places": None if setting.city_wide else setting.max_places,
            "loss_case": setting.loss_case,
        }
        for value in _together(parts, weights):
            yield {**base, "variant": joined(setting.described, value.part), **value.columns}
        if not all(part.verified for part in parts):
            continue
        for everyone in (per_method, of_walks):
            for what in dict.fromkeys(what for part in everyone.get(method, []) for what in part.held_out):
                columns = {"variant": joined(setting.described, what.part)}
                if what.measure == Measure.ONE_DESTINATION_LOSS:
                    columns["loss_case"] = ONE_DESTINATION
                for value in _held_out(method, what, everyone):
                    yield {**base, **columns, **value.columns}


def _held_out(method: str, what: HeldOut, per_method: Mapping[str, Sequence[MethodOutcome]]) -> Iterator[Value]:
    losses = _joined(per_method[method], what)
    mean = measure(losses)
    if mean is None:
        return
    of_service = what.measure in (Measure.HELD_OUT_LOSS, Measure.ONE_DESTINATION_LOSS)
    name = Measure.HELD_OUT_LOSS if of_service else what.measure
    yield Value(name, mean.loss, what.unit, Interval.of(mean.low, mean.high))
    if of_service:
        yield Value(Measure.HELD_OUT_VEHICLES, float(mean.vehicles), "")
        yield Value(Measure.HELD_OUT_STEPS, float(mean.steps), "")
        yield Value(Measure.LOSS_SPREAD, _DEVIATIONS * float(np.std(losses.loss / losses.steps)), what.unit)
    if what.measure in _COMPARED:
        yield from _gains(method, losses, what, per_method, name)


def _joined(parts: Sequence[MethodOutcome], what: HeldOut) -> VehicleLosses:
    return VehicleLosses.joined([part.held_out[what] for part in parts if what in part.held_out])


def _gains(
    method: str, losses: VehicleLosses, what: HeldOut, per_method: Mapping[str, Sequence[MethodOutcome]], name: str
) -> Iterator[Value]:
    """Yield the share by which a method's loss or error is below other methods', on the same steps."""
    for baseline in BASELINES:
        if baseline == method or not all(part.verified for part in per_method.get(baseline, [])):
            continue
        other = _joined(per_method.get(baseline, []), what)
        if not np.array_equal(other.vehicle, losses.vehicle) or not other.loss.sum() > 0:
            continue
        ratio, low, high = ratio_interval(losses.loss, other.loss)
        yield Value(gain_over(baseline, name), 1 - ratio, "", Interval.of(1 - high, 1 - low))


def _together(parts: Sequence[MethodOutcome], weights: Sequence[float]) -> Iterator[Value]:
    """Yield the measures of zones together; if a zone has no mechanism, only that it is not verified."""
    if not all(part.verified for part in parts):
        yield Value(Measure.VERIFIED, 0.0, "")
        return
    if len(parts) == 1:
        yield from parts[0].values
        return
    measured = [{(value.measure, value.part): value.value for value in part.values} for part in parts]
    for value in parts[0].values:
        numbers = [part[value.measure, value.part] for part in measured if (value.measure, value.part) in part]
        if len(numbers) == len(parts):
            together = Measure(value.measure).of_zones(numbers, weights)
            yield Value(value.measure, together, value.unit, part=value.part)
