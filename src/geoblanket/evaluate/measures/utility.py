"""How useful a mechanism is on walks that it was not made from."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import MPH_M_S, haversine_m
from geoblanket.build.measures import VehicleLosses, by_vehicle, step_losses
from geoblanket.build.rows import ZoneRows
from geoblanket.evaluate.city_data import ZoneData
from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.measures.values import HeldOut
from geoblanket.evaluate.variants import Varied, variant_of
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.loss.standard import StraightLine

__all__ = ["held_out_losses"]

_SPEEDS_MPH = (0.0, 5.0, 10.0, 20.0, 30.0, 150.0)


def held_out_losses(
    probabilities: Floats, rows: ZoneRows, data: ZoneData, loss: PlaceLoss, *, by_hour_and_speed: bool
) -> dict[HeldOut, VehicleLosses]:
    """Return losses by vehicle: of the service, in kilometres of displacement, and of vehicles with a destination.

    Parameters
    ----------
    probabilities
        Of the places of the zone in each row, shape (S, K).
    by_hour_and_speed
        Tell those of the service by hour and by speed, too.
    """
    steps = data.steps
    of_step = step_losses(probabilities, rows, steps, loss)
    result = {HeldOut(Measure.HELD_OUT_LOSS, loss.unit): by_vehicle(steps, of_step)}
    present = replace(steps, next_place=steps.histories[:, 0])
    away = step_losses(probabilities, rows, present, StraightLine(data.places))
    result[HeldOut(Measure.DISPLACEMENT, "km")] = by_vehicle(steps, away)
    if by_hour_and_speed:
        for part, chosen in _parts(data).items():
            result[HeldOut(Measure.HELD_OUT_LOSS, loss.unit, part)] = by_vehicle(steps.where(chosen), of_step[chosen])
    if data.errands is not None and len(data.errands):
        losses = data.errands.losses(probabilities, rows.row_of(data.errands.histories), rows.zone)
        result[HeldOut(Measure.ONE_DESTINATION_LOSS, "km")] = VehicleLosses(
            data.errands.number, np.ones(len(losses)), losses
        )
    return result


def _parts(data: ZoneData) -> dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return which steps belong to each hour and to each range of speeds."""
    now, before = data.steps.histories[:, 0], data.steps.histories[:, 1]
    lat, lon = data.places.lat, data.places.lon
    mph = haversine_m(lat[now], lon[now], lat[before], lon[before]) / (data.interval_s * MPH_M_S)
    hours = {variant_of(Varied.HOUR, f"{hour:02d}"): data.steps.regime == hour for hour in range(24)}
    speeds = {
        variant_of(Varied.SPEED, f"{low:g} to {high:g} mph"): (mph >= low) & (mph < high)
        for low, high in pairwise(_SPEEDS_MPH)
    }
    return {name: chosen for name, chosen in {**hours, **speeds}.items() if chosen.any()}
