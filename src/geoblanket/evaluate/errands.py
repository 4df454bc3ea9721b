"""Vehicles with one destination each, as in the paper: where they are, where they were, and where they are sent.

A mechanism is made before its vehicle is sent anywhere, so it does not know the destination; these vehicles judge the
mechanisms that were made for all destinations alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Floats, Indices, Positions
from geoblanket.errors import InputError
from geoblanket.loss.tasks import TaskPrior
from geoblanket.mobility.histories import Steps
from geoblanket.roads.distances import road_distances
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places

__all__ = ["Errands", "make_errands"]

_M_PER_KM = 1000.0
_NEAR_M = 500.0
"""A location further than this from every place is not in the city."""
_MOST_LOCATIONS = 1_000_000


@dataclass(frozen=True, eq=False)
class Errands:
    """Vehicles and their destinations; made by `make_errands`."""

    number: Indices
    """Of each vehicle, shape (n,)."""
    histories: Indices
    """The place at t, t − 1, ... of each vehicle, shape (n, 1 + Γ)."""
    next_place: Indices
    """Where each is when the service uses its report, shape (n,)."""
    destination: Indices
    """The node of the roads where each is sent, shape (n,)."""
    way_km: Floats
    """Road distance from each place to each vehicle's destination, kilometres, shape (P, n)."""

    def __len__(self) -> int:
        return len(self.next_place)

    def within(self, zone: Indices) -> Errands:
        """Return the vehicles that are in a zone."""
        here = np.isin(self.histories[:, 0], zone)
        return Errands(
            self.number[here],
            self.histories[here],
            self.next_place[here],
            self.destination[here],
            self.way_km[:, here],
        )

    def losses(self, probabilities: Floats, rows: npt.NDArray[np.integer], zone: Indices) -> Floats:
        """Return the expected loss of each vehicle, kilometres, shape (n,).

        Parameters
        ----------
        probabilities
            Of the outputs in each row of a mechanism, shape (S, K).
        rows
            The row of each vehicle, shape (n,).
        zone
            The places that the outputs stand for, shape (K,).
        """
        each = np.arange(len(self))
        error = np.abs(self.way_km[zone].T - self.way_km[self.next_place, each][:, None])
        result: Floats = (probabilities[rows] * error).sum(axis=1)
        return result


def make_errands(
    graph: RoadGraph, places: Places, steps: Steps, *, count: int, locations: Path | None = None, seed: int = 0
) -> Errands:
    """Choose vehicles, and draw a destination for each among all nodes of the roads.

    Parameters
    ----------
    steps
        Steps of walks: each vehicle takes its past, and where it goes next, from one of them.
    count
        How many vehicles there are, at most.
    locations
        Latitudes and longitudes of the vehicles, a CSV file without a header. A vehicle is at the nearest place, as on
        one of the steps there; it is left out if there is none, or the place is more than 500 m away. None: the
        vehicles are on steps that are drawn.
    seed
        Of all draws.

    Raises
    ------
    InputError
        If the locations cannot be read.
    """
    rng = np.random.default_rng(seed)
    if locations is None:
        chosen = np.sort(rng.choice(len(steps), min(count, len(steps)), replace=False))
    else:
        chosen = _steps_at(_read_places(locations, places)[:count], steps, rng)
    tasks = TaskPrior.uniform(graph).within_largest_part(graph)
    destinations = rng.choice(tasks.nodes, len(chosen), p=tasks.weight)
    metres = road_distances(graph, destinations, places.nodes, reverse=True)
    return Errands(
        np.arange(len(chosen), dtype=np.int32),
        steps.histories[chosen],
        steps.next_place[chosen],
        destinations,
        metres.T.astype(np.float64) / _M_PER_KM,
    )


def _steps_at(present: Indices, steps: Steps, rng: np.random.Generator) -> Positions:
    order = np.argsort(steps.histories[:, 0], kind="stable")
    sorted_places = steps.histories[order, 0]
    first, end = (np.searchsorted(sorted_places, present, side) for side in ("left", "right"))
    known = end > first
    return order[rng.integers(first[known], end[known])]


def _read_places(path: Path, places: Places) -> Indices:
    try:
        frame = pl.read_csv(
            path, has_header=False, schema={"lat": pl.Float64, "lon": pl.Float64}, n_rows=_MOST_LOCATIONS
        ).drop_nulls()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            "cannot be read as latitudes and longitudes, two columns without a header", path=path
        ) from error
    place, distance_m = places.nearest(frame["lat"].to_numpy(), frame["lon"].to_numpy())
    return place[distance_m <= _NEAR_M]
