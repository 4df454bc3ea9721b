"""From outcomes of zones to the table of results: intervals, gains over other methods, and all zones together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from geoblanket.build.held_out import VehicleLosses, measure, ratio_interval
from geoblanket.evaluate.comparing import MethodOutcome, ZoneOutcome
from geoblanket.evaluate.measures.values import HELD_OUT, ONE_DESTINATION_LOSS, HeldOut, Value
from geoblanket.evaluate.results import ALL_ZONES, RESULTS_SCHEMA
from geoblanket.evaluate.settings import ONE_DESTINATION, Setting

__all__ = ["BASELINES", "tabulate"]

BASELINES = ("lp", "constopt", "expmech", "lp_true_mb", "lp_markov1", "planar_laplace_remap")
"""Methods over which gains are told."""

_LARGEST = ("epsilon_effective", "epsilon_per_location", "composed_epsilon", "leakage_max", "peak_memory_mb")
"""Measures of which all zones together have the largest, not the mean."""
_SUMS = ("build_seconds", "bundle_bytes", "rows")

_Together = Callable[[Sequence[float], Sequence[float]], float]


def tabulate(experiment: str, city: str, outcomes: Mapping[Setting, Sequence[ZoneOutcome]]) -> pl.DataFrame:
    """Return the results of all settings of an experiment in a city.

    Parameters
    ----------
    outcomes
        Of the zones, for each setting.
    """
    rows: list[dict[str, Any]] = []
    for setting, zones in outcomes.items():
        for group in ([zone] for zone in zones):
            rows += _rows(experiment, city, setting, group[0].zone, group)
        rows += _rows(experiment, city, setting, ALL_ZONES, zones)
    return pl.DataFrame(rows, schema=RESULTS_SCHEMA)


def _rows(
    experiment: str, city: str, setting: Setting, zone: int, zones: Sequence[ZoneOutcome]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one zone, or of several together."""
    per_method = {
        method.method: [next(m for m in one.methods if m.method == method.method) for one in zones]
        for method in zones[0].methods
    }
    weights = [one.share for one in zones]
    for method, parts in per_method.items():
        base = {
            "experiment": experiment,
            "city": city,
            "zone": zone,
            "method": method,
            "epsilon": setting.epsilon,
            "eta_km": setting.eta_km,
            "history_weight": setting.history_weights[0],
            "spacing_m": zones[0].spacing_m,
            "interval_s": zones[0].interval_s,
            "max_places": setting.max_places,
            "loss_case": setting.loss_case,
            "variant": setting.described,
        }
        for value in _together(parts, weights):
            yield {**base, "variant": _variant(setting, value.part), **_columns(value)}
        if not all(part.verified for part in parts):
            continue
        for what in dict.fromkeys(what for part in parts for what in part.held_out):
            column = _held_out_columns(what, setting)
            for value in _held_out(method, what, per_method):
                yield {**base, **column, **_columns(value)}


def _held_out(method: str, what: HeldOut, per_method: Mapping[str, Sequence[MethodOutcome]]) -> Iterator[Value]:
    losses = _joined(per_method[method], what)
    found = measure(losses)
    if found is None:
        return
    low, high = (bound if math.isfinite(bound) else None for bound in (found.low, found.high))
    of_service = what.measure in (HELD_OUT, ONE_DESTINATION_LOSS)
    yield Value(HELD_OUT if of_service else what.measure, found.loss, what.unit, low, high)
    if of_service:
        yield Value("held_out_vehicles", float(found.vehicles), "")
        yield Value("held_out_steps", float(found.steps), "")
        yield from _gains(method, losses, what, per_method)


def _joined(parts: Sequence[MethodOutcome], what: HeldOut) -> VehicleLosses:
    return VehicleLosses.joined([part.held_out[what] for part in parts if what in part.held_out])


def _held_out_columns(what: HeldOut, setting: Setting) -> dict[str, str]:
    if what.measure == ONE_DESTINATION_LOSS:
        return {"loss_case": ONE_DESTINATION}
    return {"variant": _variant(setting, what.part)}


def _variant(setting: Setting, part: str) -> str:
    return "; ".join(filter(None, (setting.described, part)))


def _gains(
    method: str, losses: VehicleLosses, what: HeldOut, per_method: Mapping[str, Sequence[MethodOutcome]]
) -> Iterator[Value]:
    """Yield by how much the held-out loss is below that of other methods, on the same steps."""
    for baseline in BASELINES:
        if baseline == method or not all(part.verified for part in per_method.get(baseline, [])):
            continue
        other = _joined(per_method.get(baseline, []), what)
        if not np.array_equal(other.vehicle, losses.vehicle) or not other.loss.sum() > 0:
            continue
        ratio, low, high = ratio_interval(losses.loss, other.loss)
        bounds = (1 - high, 1 - low) if math.isfinite(low) else (None, None)
        yield Value(f"gain_over_{baseline}", 1 - ratio, "", *bounds)


def _together(parts: Sequence[MethodOutcome], weights: Sequence[float]) -> Iterator[Value]:
    """Yield the measures of zones together; of a method that has no mechanism in one of them, only that."""
    if not all(part.verified for part in parts):
        yield Value("verified", 0.0, "")
        return
    for value in parts[0].values:
        key = (value.measure, value.part)
        same = [next((one for one in part.values if (one.measure, one.part) == key), None) for part in parts]
        present = [(one, weight) for one, weight in zip(same, weights, strict=True) if one is not None]
        if len(parts) == 1:
            yield value
        elif len(present) == len(parts):
            numbers = [one.value for one, _ in present]
            joint = _joint(value.measure)(numbers, weights)
            yield Value(value.measure, joint, value.unit, part=value.part)


def _joint(measure_name: str) -> _Together:
    if measure_name in _LARGEST:
        return lambda numbers, _: max(numbers)
    if measure_name in _SUMS:
        return lambda numbers, _: math.fsum(numbers)
    return lambda numbers, weights: float(np.average(numbers, weights=weights if sum(weights) > 0 else None))


def _columns(value: Value) -> dict[str, Any]:
    return {
        "measure": value.measure,
        "value": value.value,
        "low": value.low,
        "high": value.high,
        "unit": value.unit,
    }
