"""Who is hidden by learning with privacy: whole vehicles, where walks tell them apart, otherwise trips."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from geoblanket._tables import reading_parquet
from geoblanket._training import Unit
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.walks import scan_walks

__all__ = ["Units", "count_units"]


@dataclass(frozen=True)
class Units:
    """The units of some walks."""

    unit: Unit
    count: int
    """How many there are: public."""
    warning: str | None
    """Why they are trips although vehicles were asked for, as sentences; None if they are what was asked for."""

    def check_delta(self, delta: float) -> None:
        """Raise ParameterError if δ is so weak that somebody's trips could be published whole."""
        if delta * self.count >= 1:
            raise ParameterError(
                f"δ = {delta:g} is too weak for {self.count:,} {self.unit}s: from 1/{self.count} on, it allows to "
                f"publish all of one of them. Give a much smaller one, such as {0.01 / self.count:.0e}."
            )


def count_units(walks: str | Path, *, unit: Unit = "vehicle") -> Units:
    """Count the vehicles, or the trips, of walks, and look whether vehicles can be told apart.

    Where no walk names a vehicle, and where each vehicle has one trip only (as after an import of trips without
    vehicles, which names each trip's vehicle after the trip), the unit is the trip.

    Raises
    ------
    InputError
        If some walks name a vehicle and others do not.
    ParameterError
        If there are fewer than two units: nobody could be hidden.
    """
    if unit not in ("vehicle", "trip"):
        raise ParameterError(f"The unit is 'vehicle' or 'trip'. Got {unit!r} instead.")
    frame, _ = scan_walks(walks)
    is_named = pl.col("vehicle").fill_null("").str.strip_chars() != ""
    with reading_parquet(walks):
        trips = frame.select("vehicle", "trip", named=is_named).unique().collect(engine="streaming")
    named = int(trips["named"].sum())
    vehicles = trips.filter(pl.col("named"))["vehicle"].n_unique()
    warning = None
    if unit == "vehicle":
        if 0 < named < trips.height:
            raise InputError(
                f"{trips.height - named:,} of {trips.height:,} trips name no vehicle, so that no vehicle can be hidden "
                "with all its trips",
                path=walks,
                hint="Leave them out, or learn with --unit trip, which promises nothing to vehicles",
            )
        if not named:
            warning = "The walks name no vehicles. So the unit is the TRIP: who drove many of them is promised nothing."
        elif vehicles == trips.height > 1:
            warning = (
                "Each vehicle of the walks has one trip only, so that their names may be those of trips. So the unit "
                "is the TRIP: who drove many of them is promised nothing."
            )
    chosen: Unit = "trip" if unit == "trip" or warning is not None else "vehicle"
    count = trips.height if chosen == "trip" else vehicles
    if count < 2:
        raise ParameterError(
            f"{walks}: has {count} {chosen}(s). One alone cannot be hidden. Give walks of more {chosen}s"
            + (", or learn with --unit trip, which promises nothing to the vehicle." if chosen == "vehicle" else ".")
        )
    return Units(chosen, count, warning)
