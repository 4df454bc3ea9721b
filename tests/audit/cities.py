"""Small cities, with bundles made by the project's own builder: few enough places to try every history."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Indices
from geoblanket.build.building import build_zone
from geoblanket.build.config import BuildConfig
from geoblanket.build.inputs import ZoneTask
from geoblanket.build.rows import Context
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism import BundledMechanism, save_bundle
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.roads.places import Places
from tests.build.worlds import counted, straight_on

ALL_DAY: Final = "all day"
CLOCK: Final = Clock(30_000, "UTC", ((ALL_DAY, tuple(range(24))),))


def with_outliers(x_e7: npt.ArrayLike, y_e7: npt.ArrayLike) -> Places:
    """Places at 1e-7 degrees east and north of a point, and two more to the south-west and the north-east of all.

    These are in no zone, and nearest to the first and the last place; so far out that they are further from others than
    the places that they count as.
    """
    x, y = np.asarray(x_e7), np.asarray(y_e7)
    lat = (411_500_000 + np.concatenate([y, [y[0] - 25_000, y[-1] + 22_000]])) / 1e7
    lon = (-86_200_000 + np.concatenate([x, [x[0] - 30_000, x[-1] + 33_000]])) / 1e7
    return Places(np.arange(len(lat), dtype=np.int32), lat, lon, spacing_m=0.0, roads_identity="made")


def grid(columns: int, rows: int) -> Places:
    """Places some 300 m apart, each moved a little, and the two outliers."""
    number = np.arange(columns * rows)
    moved = np.random.default_rng(0).integers(-3000, 3001, (2, len(number)))
    return with_outliers(36_000 * (number % columns) + moved[0], 27_000 * (number // columns) + moved[1])


def lattice(columns: int, rows: int) -> Places:
    """The same, none of them moved: many are equally near to two others, to the last digit."""
    number = np.arange(columns * rows)
    return with_outliers(36_000 * (number % columns), 27_000 * (number // columns))


def mixed_lengths(now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Blankets of 1, 2 or 3, whatever the places."""
    return np.asarray(1 + (now + before) % 3)


@dataclass(frozen=True)
class City:
    """What a bundle is made of."""

    places: Places
    zones: Mapping[str, tuple[int, ...]]
    """Places that are in none of them are in no zone."""
    context: str = "order:1"
    history_weights: tuple[float, ...] = (1.0,)
    epsilon: float = 4.0
    eta_km: float = math.inf
    reach_m: float = 450.0
    max_rows: int = 40

    def save(self, path: Path) -> Path:
        """Build the bundle and write it."""
        mechanisms = [
            self._mechanism(zone, regime, context)
            for zone in self.zones
            for regime, context in ((ALL_DAY, self.context), (CLOCK.start, "none"))
        ]
        save_bundle(
            path,
            mechanisms,
            version=1,
            snapping_radius_mm=50_000,
            places_e7=self.places.coordinates_e7,
            clock=CLOCK,
        )
        return path

    def _mechanism(self, zone: str, regime: str, context: str) -> BundledMechanism:
        past = max(1, len(self.history_weights))
        steps = straight_on(self.places, 3000, past=past)
        steps = steps.where(np.isin(steps.histories[:, 0], self.zones[zone]))
        task = ZoneTask(
            zone=zone,
            number=0,
            regime=regime,
            context=Context.of(context),
            members=np.array(self.zones[zone], np.int32),
            zone_of=self._zone_of(),
            places=self.places,
            counts=counted(steps),
            steps=steps.where(np.zeros(len(steps.vehicle), bool)),
            lengths=mixed_lengths,
            loss=StraightLine(self.places),
            config=BuildConfig(
                epsilon=self.epsilon,
                eta_km=self.eta_km,
                history_weights=self.history_weights or (1.0,),
                context=Context.of(self.context),
                max_rows=self.max_rows,
                gap=0.02,
                compare=False,
            ),
            reach_m=self.reach_m,
            share=1.0,
            process=os.getpid(),
        )
        return build_zone(task).bundled

    def _zone_of(self) -> Indices:
        """The number of the zone of every place, −1 for none."""
        result = np.full(len(self.places), -1, np.int32)
        for number, places in enumerate(self.zones.values()):
            result[list(places)] = number
        return result


_TWELVE: Final = grid(4, 3)
_ZONES: Final = {"east": (2, 3, 6, 7, 10, 11), "west": (0, 1, 4, 5, 8, 9)}
_EIGHT: Final = grid(4, 2)
_TWO_BY_TWO: Final = {"east": (2, 3, 6, 7), "west": (0, 1, 4, 5)}

CITIES: Final[Mapping[str, City]] = {
    "none": City(_TWELVE, _ZONES, "none", ()),
    "order:1": City(_TWELVE, _ZONES),
    "order:1, η": City(_TWELVE, _ZONES, eta_km=0.8),
    "order:1, few rows": City(_TWELVE, _ZONES, max_rows=8),
    "order:1, small ε": City(_TWELVE, _ZONES, epsilon=0.5),
    "order:1, known past": City(_TWELVE, _ZONES, history_weights=(math.inf,)),
    "order:1, past of no weight": City(_TWELVE, _ZONES, history_weights=(0.0,)),
    "order:1, ties": City(lattice(4, 3), _ZONES, max_rows=20),
    "full, order 1": City(_TWELVE, _ZONES, "full"),
    "order:2": City(_TWELVE, _ZONES, "order:2", (1.0, 0.5)),
    "order:2, η": City(_TWELVE, _ZONES, "order:2", (1.0, 0.5), eta_km=1.0),
    "order:2, ties": City(lattice(4, 3), _ZONES, "order:2", (1.0, 0.5)),
    "order:2, known at t - 1": City(_TWELVE, _ZONES, "order:2", (math.inf, 0.5)),
    "order:2, odd weights": City(_TWELVE, _ZONES, "order:2", (0.3, 2.0), epsilon=8.0),
    "full, order 2": City(_TWELVE, _ZONES, "full", (1.0, 0.5), reach_m=320.0),
    "order:3": City(_EIGHT, _TWO_BY_TWO, "order:3", (1.0, 0.5, 0.25), max_rows=60),
    "blanket of mixed length": City(_EIGHT, _TWO_BY_TWO, "blanket", (1.0, 0.5, 0.25), max_rows=60),
    "blanket of mixed length, η": City(
        _EIGHT, _TWO_BY_TWO, "blanket", (1.0, 0.5, 0.25), max_rows=60, eta_km=0.9, epsilon=2.0
    ),
}
