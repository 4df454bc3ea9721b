"""The data of a city: walks, zones to compare methods in, and vehicles with one destination each.

As in the paper, some vehicles are sent to one destination each. Mechanisms are made before vehicles are sent anywhere,
so they do not know destinations: these vehicles measure mechanisms that are made for all destinations.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Positions
from geoblanket._display import Progress, options_repr, silent
from geoblanket._geodesy import haversine_m
from geoblanket.build.config import BuildConfig, LossKind
from geoblanket.build.inputs import place_loss, zone_lengths
from geoblanket.build.row_tree import Lengths, reach_radius_m
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.experiment import LossCase
from geoblanket.lab.evaluate.tracking import WalkTracker, find_runs, find_windows
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.loss.tasks import TaskPrior
from geoblanket.mobility.histories import (
    LONGEST_PAST,
    HistoryCounts,
    RegimeHours,
    Steps,
    collect_steps,
    count_histories,
)
from geoblanket.mobility.walks import MatchedWalks, Split
from geoblanket.roads.distances import road_distances
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones, partition_zones
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles

_M_PER_KM = 1000.0
_STRETCH = 100
"""Of walks longer than this, stretches of this many steps are drawn, so that all vehicles stay."""
_NEAR_M = 500.0
"""A location further than this from every place is outside the city, metres."""


@dataclass(frozen=True, eq=False)
class VehicleTasks:
    """Vehicles with one task each, a destination; made by `make_vehicle_tasks`."""

    number: Indices
    """Number of each vehicle, shape (n,)."""
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

    def within(self, zone: Indices) -> VehicleTasks:
        """Return the vehicles that are in a zone."""
        here = np.isin(self.histories[:, 0], zone)
        return VehicleTasks(
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


def make_vehicle_tasks(
    graph: RoadGraph, places: Places, steps: Steps, *, count: int, locations: Path | None = None, seed: int = 0
) -> VehicleTasks:
    """Choose vehicles, and draw a destination for each among all nodes of the roads.

    Parameters
    ----------
    steps
        Steps of walks: each vehicle takes its past and its next place from one of them.
    count
        Largest number of vehicles.
    locations
        Latitudes and longitudes of the vehicles, a CSV file without a header. A vehicle takes a step at the nearest
        place that has one; it is left out if that is more than 500 m away. None: steps are drawn.
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
        lat, lon = _read_locations(locations, count)
        chosen = _steps_near(lat, lon, places, steps, rng)
    tasks = TaskPrior.uniform(graph).within_largest_part(graph)
    destinations = rng.choice(tasks.nodes, len(chosen), p=tasks.weight)
    metres = road_distances(graph, destinations, places.nodes, reverse=True)
    return VehicleTasks(
        np.arange(len(chosen), dtype=np.int32),
        steps.histories[chosen],
        steps.next_place[chosen],
        destinations,
        metres.T.astype(np.float64) / _M_PER_KM,
    )


def _steps_near(lat: Floats, lon: Floats, places: Places, steps: Steps, rng: np.random.Generator) -> Positions:
    """Return a step at the nearest place with steps, drawn among its steps, for each location that has one near."""
    order = np.argsort(steps.histories[:, 0], kind="stable")
    visited, first, count = np.unique(steps.histories[order, 0], return_index=True, return_counts=True)
    metres = [haversine_m(a, b, places.lat[visited], places.lon[visited]) for a, b in zip(lat, lon, strict=True)]
    nearest = np.array([int(away.argmin()) for away in metres if away.min() <= _NEAR_M], np.int64)
    return order[rng.integers(first[nearest], first[nearest] + count[nearest])]


def _drawn(steps: Steps, most: int, seed: int) -> Steps:
    """Return steps, or at most this many in drawn stretches of walks, in the same order."""
    if len(steps) <= most:
        return steps
    starts = find_windows(find_runs(steps), len(steps), _STRETCH)
    length = np.diff(np.append(starts, len(steps)))
    order = np.random.default_rng(seed).permutation(len(starts))
    kept = np.zeros(len(starts), np.bool_)
    kept[order[np.cumsum(length[order]) <= most]] = True
    return steps.where(np.repeat(kept, length))


def _read_locations(path: Path, count: int) -> tuple[Floats, Floats]:
    try:
        frame = pl.read_csv(path, has_header=False, schema={"lat": pl.Float64, "lon": pl.Float64}, n_rows=count)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            "cannot be read as latitudes and longitudes, two columns without a header", path=path
        ) from error
    known = frame.drop_nulls()
    return known["lat"].to_numpy(), known["lon"].to_numpy()


_HOURS = 24
_LOSSES: dict[LossCase, LossKind] = {"population": "travel", "case II": "nearest", "straight line": "straight"}
"""Names of the kinds of loss in builds."""
_ORDER = 2
"""Of the motion model: where vehicles go depends on their last two places."""
_UNSEEN = 0.1
"""Pseudo-count of steps at each place, as in the prior of rows."""
_MOST_PLACES_TRACKED = 2000
"""With more places, the table of losses between any two takes too long."""


@checked
@dataclass(frozen=True, kw_only=True)
class CityFiles:
    """The files of a city.

    Examples
    --------
    >>> from pathlib import Path
    >>> from geoblanket.lab.evaluate import CityFiles
    >>> CityFiles(name="city", roads=Path("city.roads"), walks=Path("walks.parquet")).time_zone
    'UTC'
    """

    name: str
    roads: Path
    walks: Path
    predictor: Path | None = None
    """Predictor of the lengths of blankets."""
    findings: Path | None = None
    """Blankets as the tests found them."""
    traces: Path | None = None
    """Traces of the walks; needed for other spacings and intervals."""
    locations: Path | None = None
    """Where the vehicles with one destination each are: a table of latitudes and longitudes without a header."""
    time_zone: str = "UTC"
    """Of the hours."""
    raw: tuple[Path, ...] = ()
    """Public files that it was made from; results have their hashes."""

    def __repr__(self) -> str:
        return options_repr(self)


@dataclass(frozen=True, eq=False)
class ZoneData:
    """Data to compare methods in one zone, with one loss."""

    key: str
    """Unique key."""
    number: int
    members: Indices
    """The places of the zone, ascending."""
    places: Places
    counts: HistoryCounts
    """Of the training walks, in the zone and with a past; the regime is the hour."""
    steps: Steps
    """Of the held-out walks, likewise."""
    loss: PlaceLoss
    predicted: Lengths | None
    found: Lengths | None
    vehicle_tasks: VehicleTasks | None
    reach_m: float
    """How far apart the places of a history can be, metres."""
    interval_s: float
    share: float
    """Of all training steps with a past, the share in this zone."""
    zone_of: Indices
    """The number of the zone of each place of the city, which reports disclose."""
    motion: MotionModel | None
    """Motion model of the whole city, from training walks, which recipients and attackers know. None if no vehicle is
    tracked."""


class CityData:
    """The walks of a city, read once.

    Reports without a past are left out: there every method is context-free.

    Parameters
    ----------
    files
        Roads, walks, and predictor or findings of blankets.
    delay
        Number of intervals until the service uses a location.
    destinations
        Number of vehicles with one destination each; 0 for none.
    max_tasks
        Of the loss; see `Effort`.
    max_steps
        The most held-out steps to judge by. Of more, stretches of walks are drawn.
    seed
        Of the split of vehicles, the tasks and the destinations.

    Raises
    ------
    InputError, MismatchError
        If files cannot be used, or do not belong together.
    """

    def __init__(
        self,
        files: CityFiles,
        *,
        delay: int = 1,
        destinations: int = 0,
        max_tasks: int = 3000,
        max_steps: int = 50_000,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.files, self._destinations, self._seed, self._progress = files, destinations, seed, progress
        # It only provides the loss and the lengths of blankets, so ε does not matter.
        self._config = BuildConfig(epsilon=1.0, max_tasks=max_tasks, seed=seed, time_zone=files.time_zone)
        self._trackers: dict[LossCase, WalkTracker] = {}
        self._walks = MatchedWalks.open(files.walks, files.roads)
        self.graph, self.places = self._walks.graph, self._walks.places
        self.interval_s = self._walks.interval_s
        self._delay, self._split = delay, Split(seed=seed)
        options: dict[str, Any] = {
            "largest": LONGEST_PAST,
            "delay": delay,
            "split": self._split,
            # One regime an hour, to tell held-out steps apart; rows ignore it.
            "regimes": RegimeHours({f"{hour:02d}": [hour] for hour in range(_HOURS)}, files.time_zone),
            "progress": progress,
        }
        counts = count_histories(files.walks, self.places, part="train", **options)
        steps = collect_steps(files.walks, self.places, part="held_out", **options)
        self.counts, self.steps = counts.where(counts.depth > 0), steps.where(steps.depth > 0)
        self.held_out_steps = len(self.steps)
        """Held-out steps before some were drawn."""
        self.steps = _drawn(self.steps, max_steps, seed)
        if not len(self.counts) or not len(self.steps):
            raise InputError("has no walks of two steps or more to train and to test with", path=files.walks)

    def zones(self, max_places: int) -> Zones:
        """Cut the city into public zones."""
        return partition_zones(self.graph, self.places, max_places=max_places)

    def whole_city(self) -> Zones:
        """Return all places as one zone, for methods that disclose no zone."""
        return Zones(
            zone=np.zeros(len(self.places), np.int32),
            ids=("whole city",),
            neighbours=np.empty((0, 2), np.int32),
            max_places=len(self.places),
            places_identity=self.places.identity,
        )

    def chosen_zones(self, zones: Zones, count: int) -> list[int]:
        """Return the numbers of the compared zones, ascending: all for 0, else drawn by their held-out steps."""
        steps = np.bincount(zones.zone[self.steps.histories[:, 0]], minlength=len(zones.ids)).astype(np.float64)
        seen = np.flatnonzero(steps)
        if not 0 < count < len(seen):
            return [int(zone) for zone in seen]
        drawn = np.random.default_rng(self._seed).choice(seen, count, replace=False, p=steps[seen] / steps.sum())
        return sorted(int(zone) for zone in drawn)

    def zone_data(
        self, zones: Zones, numbers: list[int], loss_case: LossCase, *, tracking: bool = True
    ) -> Iterator[ZoneData]:
        """Yield the data of some zones; with the motion model only if vehicles are tracked."""
        loss, snapping_radius_m = self._loss(loss_case), self.places.snapping_radius_m(self.graph)
        predicted = self._lengths(zones, predictor=self.files.predictor)
        found = self._lengths(zones, findings=self.files.findings)
        total = int(self.counts.count.sum())
        for number in numbers:
            counts = self.counts.where(zones.zone[self.counts.histories[:, 0]] == number)
            vehicle_tasks = self._vehicle_tasks if loss_case == "population" else None
            yield ZoneData(
                key=secrets.token_hex(8),
                number=number,
                members=zones.members(number),
                places=self.places,
                counts=counts,
                steps=self.steps.where(zones.zone[self.steps.histories[:, 0]] == number),
                loss=loss,
                predicted=predicted,
                found=found,
                vehicle_tasks=None if vehicle_tasks is None else vehicle_tasks.within(zones.members(number)),
                reach_m=reach_radius_m(interval_s=self.interval_s, snapping_radius_m=snapping_radius_m),
                interval_s=self.interval_s,
                share=int(counts.count.sum()) / total,
                zone_of=zones.zone,
                motion=self.motion if tracking else None,
            )

    @cached_property
    def motion(self) -> MotionModel:
        """How vehicles move, from the roads and the training walks."""
        return learn_motion(
            self.graph,
            self.places,
            walks=self.files.walks,
            split=self._split,
            order=_ORDER,
            progress=self._progress,
        )

    def tracker(self, loss_case: LossCase) -> WalkTracker:
        """Return the tracker of held-out vehicles, with the service's loss unless the city is too large."""
        if loss_case not in self._trackers:
            table = None
            if len(self.places) <= _MOST_PLACES_TRACKED:
                everywhere = np.arange(len(self.places), dtype=np.int32)
                table = self._loss(loss_case)(everywhere, everywhere).values
            self._trackers[loss_case] = WalkTracker(self.motion, self.steps, table, self._delay, self._usual())
        return self._trackers[loss_case]

    def _usual(self) -> Singles:
        """Return how probable each state is at any time: places by counts, pasts by the motion model."""
        motion = self.motion
        seen = np.bincount(self.counts.histories[:, 0], self.counts.count, len(self.places)) + _UNSEEN
        usual = motion.usual.astype(np.float64) + np.finfo(np.float32).tiny
        of_place = np.bincount(motion.present, usual, len(self.places))
        chances = usual * (seen / np.maximum(of_place, np.finfo(np.float32).tiny))[motion.present]
        result: Singles = (chances / chances.sum()).astype(np.float32)
        return result

    def _loss(self, case: LossCase) -> PlaceLoss:
        return place_loss(self._config.replaced(loss=_LOSSES[case]), self._walks, self.counts)

    @cached_property
    def _vehicle_tasks(self) -> VehicleTasks | None:
        if not self._destinations:
            return None
        return make_vehicle_tasks(
            self.graph,
            self.places,
            self.steps,
            count=self._destinations,
            locations=self.files.locations,
            seed=self._seed,
        )

    def _lengths(self, zones: Zones, **source: Path | None) -> Lengths | None:
        """Return the lengths of blankets from a predictor or from findings; None without either."""
        if not any(source.values()):
            return None
        config = self._config.replaced(context="blanket", **source)
        return zone_lengths(config, self.places, zones, self.interval_s)(tuple(range(_HOURS)))
