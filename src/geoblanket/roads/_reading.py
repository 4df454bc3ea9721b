"""What every reader of road files returns, and the steps that they share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from geoblanket._arrays import Floats, Octets
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph
from geoblanket.roads.tags import CLASS_SPEEDS_KMH

__all__ = ["KMH_TO_M_S", "Counts", "RoadsRead", "class_speeds_kmh"]

KMH_TO_M_S = 1 / 3.6


@dataclass
class Counts:
    """What happened while a file was read."""

    read: Counter[str] = field(default_factory=Counter)
    """What the file held."""
    dropped: Counter[str] = field(default_factory=Counter)
    """What was left out, by reason."""
    assumed: Counter[str] = field(default_factory=Counter)
    """Where a default stands for what the file did not say."""


class RoadsRead(NamedTuple):
    """A road graph as its file gives it."""

    graph: RoadGraph
    counts: Counts


def class_speeds_kmh(road_class: Octets) -> Floats:
    """Return the usual free-flow speed of each class (an index into `ROAD_CLASSES`), km/h."""
    return np.array([CLASS_SPEEDS_KMH[name] for name in ROAD_CLASSES], np.float64)[road_class]
