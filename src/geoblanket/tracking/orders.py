"""The order of a motion model at each pair of places: the Markov blanket that was found, or predicted, there.

A blanket of length γ says that the last γ places matter to the next one: a chain of order γ. It depends on the speed
between the two places and on the region of the present one. Where nothing is known, the last place alone counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Indices, Ints
from geoblanket._display import counted, short_repr
from geoblanket.build.blanket_lengths import (
    KnownLengths,
    LengthSource,
    check_source,
    read_found_blankets,
    regions_of_source,
)
from geoblanket.errors import ParameterError
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones
from geoblanket.tracking.motion_model import LONGEST_MEMORY

__all__ = ["BlanketOrders", "read_orders"]

_HOURS: Final = tuple(range(24))


@checked
@dataclass(frozen=True, eq=False)
class BlanketOrders:
    """Orders by the blankets that a source knows: what `learn_motion` takes as its `order`.

    Examples
    --------
    >>> from geoblanket import RoadGraph, choose_places, learn_motion, load_predictor
    >>> from geoblanket.tracking import BlanketOrders
    >>> graph = RoadGraph.load("city.roads")
    >>> places = choose_places(graph, spacing_m=500)
    >>> orders = BlanketOrders.of(load_predictor("city.blanket"), places, interval_s=30)
    >>> learn_motion(graph, places, order=orders).learned["order"]
    'by blanket'
    """

    lengths: KnownLengths

    @classmethod
    @checked
    def of(
        cls, source: LengthSource, places: Places, *, interval_s: float, zones: Zones | None = None
    ) -> BlanketOrders:
        """Return the orders by findings or by a predictor.

        A motion model has no hours: the longest blanket of a day counts.

        Parameters
        ----------
        interval_s
            Seconds of a step of the model.
        zones
            Where blankets were found for zones instead of a grid: these zones.

        Raises
        ------
        MismatchError
            If blankets were found for another interval, or for other zones.
        """
        check_source(source, interval_s=interval_s, time_zone=source.origin.time_zone)
        return cls(KnownLengths(source, places, regions_of_source(source, places, zones), _HOURS, interval_s))

    def __call__(self, now: Indices, before: Indices) -> Ints:
        """Return the order for each pair of the place at t and the place at t − 1, from 1 to 3."""
        orders: Ints = np.clip(self.lengths(now, before), 1, LONGEST_MEMORY).astype(np.int64)
        return orders

    def __repr__(self) -> str:
        by = self.lengths.source.origin.by or "nothing"
        return short_repr(self, f"blankets by {by}", counted(len(self.lengths.places), "place"))


@checked
def read_orders(
    places: Places,
    *,
    interval_s: float,
    findings: str | Path | None = None,
    predictor: str | Path | None = None,
    zones: Zones | None = None,
) -> BlanketOrders:
    """Read findings, from `geoblanket blanket discover`, or a predictor, from `geoblanket blanket train`.

    Parameters
    ----------
    findings, predictor
        One of both.
    interval_s, zones
        As for `BlanketOrders.of`.

    Raises
    ------
    InputError
        If the file cannot be used.
    MismatchError
        If it is for another interval, or for other zones.

    Examples
    --------
    >>> from geoblanket import RoadGraph, choose_places
    >>> from geoblanket.tracking import read_orders
    >>> places = choose_places(RoadGraph.load("city.roads"), spacing_m=500)
    >>> orders = read_orders(places, interval_s=30, predictor="city.blanket")
    >>> here, _ = places.nearest([45.001], [-30.002])
    >>> orders(here, here).tolist() in ([1], [2], [3])  # for a vehicle at rest
    True
    """
    source: LengthSource
    if findings is not None and predictor is None:
        source = read_found_blankets(findings)
    elif predictor is not None and findings is None:
        from geoblanket.blanket.predictor_file import load_predictor

        source = load_predictor(predictor)
    else:
        raise ParameterError("Give either findings or a predictor.")
    return BlanketOrders.of(source, places, interval_s=interval_s, zones=zones)
