"""Made-up results, with whatever winner a test wants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from geoblanket.lab.evaluate.results import ALL_ZONES, RESULTS_SCHEMA

EPSILONS = (1.0, 2.0, 4.0)
LOSSES = {
    "lp_cmdp": 0.80,
    "lp_true_mb": 0.79,
    "lp_markov1": 0.84,
    "lp": 1.00,
    "constopt": 1.15,
    "expmech": 1.40,
    "planar_laplace": 1.60,
    "planar_laplace_remap": 1.20,
    "tight": 1.05,
}
"""Loss of each method at ε = 1 per km, kilometres; it falls with the fourth root of ε."""

_SETTING = {
    "experiment": "made up",
    "city": "porto",
    "zone": ALL_ZONES,
    "eta_km": 5.0,
    "history_weight": 1.0,
    "spacing_m": 250.0,
    "interval_s": 30.0,
    "max_places": 40,
    "loss_case": "population",
    "variant": "",
}


def made_up(
    losses: Mapping[str, float] = LOSSES,
    *,
    epsilons: Sequence[float] = EPSILONS,
    uncertainty: float = 0.01,
    **setting: Any,
) -> pl.DataFrame:
    """Return results in which methods have these losses.

    Parameters
    ----------
    uncertainty
        Half the width of each interval, as a share of the value.
    setting
        Columns of the setting that differ from the usual ones.
    """
    rows = [
        row
        for method, at_one in losses.items()
        for epsilon in epsilons
        for row in _rows(method, at_one * epsilon**-0.25, epsilon, losses, uncertainty, {**_SETTING, **setting})
    ]
    return pl.DataFrame(rows, schema=RESULTS_SCHEMA)


def _rows(
    method: str, loss: float, epsilon: float, losses: Mapping[str, float], half: float, setting: Mapping[str, Any]
) -> Iterable[dict[str, Any]]:
    def row(measure: str, value: float, unit: str = "", *, sure: bool = True) -> dict[str, Any]:
        low, high = (None, None) if sure else (value * (1 - half), value * (1 + half))
        return {
            **setting, "method": method, "epsilon": epsilon, "measure": measure,
            "value": value, "low": low, "high": high, "unit": unit,
        }  # fmt: skip

    context = method in ("lp_cmdp", "lp_true_mb", "lp_markov1")
    weight = setting["history_weight"] if context else 0.0
    success = 0.9 - 0.5 * loss
    yield row("verified", 1.0)
    yield row("held_out_loss", loss, "km", sure=False)
    yield row("design_loss", loss * 0.97, "km")
    yield row("no_privacy_loss", 0.3, "km")
    yield row("constant_loss", 1.7, "km")
    yield row("displacement", loss * 0.8, "km", sure=False)
    yield row("leakage_max", epsilon * 0.99, "per km")
    yield row("leakage_expected", epsilon * 0.4, "per km")
    yield row("epsilon_effective", epsilon * 0.9999, "per km")
    yield row("epsilon_per_location", epsilon * (1 + weight), "per km")
    yield row("composed_epsilon", 10 * epsilon * (1 + weight), "per km")
    yield row("inference_error_likeliest", loss * 0.75, "km")
    for name, more in (("inference", 0.0), ("context_inference", 0.08), ("tracking", 0.12)):
        yield row(f"{name}_error", max(0.0, loss * 0.7 - more), "km", sure=name != "tracking")
        yield row(f"{name}_success", max(0.05, success + more), "", sure=name != "tracking")
        yield row(f"{name}_success_prior", 0.1 + more, "", sure=name != "tracking")
        yield row(f"{name}_error_prior", 1.2 - more, "km", sure=name != "tracking")
    for name, value, unit in (
        ("rows", 300.0 if context else 40.0, ""),
        ("outputs", 12.0, ""),
        ("build_seconds", 8.0 if context else 0.5, "s"),
        ("peak_memory_mb", 350.0, "MB"),
        ("bundle_bytes", 90e3 if context else 6e3, "bytes"),
        ("release_us", 5.0, "µs"),
    ):
        yield row(name, value, unit)
    for other in ("lp", "constopt", "expmech", "lp_true_mb", "lp_markov1"):
        if other in losses and other != method and math.isfinite(losses[other]):
            share = 1 - losses[method] / losses[other]
            yield {**row(f"gain_over_{other}", share), "low": share - half, "high": share + half}


def tracked(results: pl.DataFrame, losses: Mapping[str, float], *, uncertainty: float = 0.01) -> pl.DataFrame:
    """Return results with those of vehicles that are tracked: losses at ε = 1, errors half of them, and costs."""
    rows = []
    for row in results.filter(measure="held_out_loss").iter_rows(named=True):
        at_one = losses[row["method"]]
        value = at_one * row["epsilon"] ** -0.25
        for measure, amount in (("tracked_loss", value), ("tracked_error", value / 2), ("single_error", value)):
            about = {"measure": measure, "value": amount, "unit": "km"}
            rows.append({**row, **about, "low": amount * (1 - uncertainty), "high": amount * (1 + uncertainty)})
        for other, loss in losses.items():
            if other != row["method"]:
                share, name = 1 - at_one / loss, f"tracked_loss_gain_over_{other}"
                about = {"measure": name, "value": share, "unit": "", "low": share - uncertainty}
                rows.append({**row, **about, "high": share + uncertainty})
    return pl.concat([results, pl.DataFrame(rows, schema=RESULTS_SCHEMA)])
