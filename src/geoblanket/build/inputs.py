"""The inputs of a build (roads, places, zones, histories, loss, lengths of blankets), and the tasks they are cut into.

A task, one for each zone and regime, holds all that it needs, and nothing is shared: it runs in any process of any
machine with the same result.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from geoblanket import __version__
from geoblanket._arrays import Indices
from geoblanket._display import Progress
from geoblanket._files import sha256_file
from geoblanket._tables import reading_parquet
from geoblanket._training import Training, training_of
from geoblanket.build.config import DEFAULT_MAX_PLACES, BuildConfig
from geoblanket.build.row_tree import FixedLengths, Lengths, reach_radius_m
from geoblanket.build.rows import NO_CONTEXT, Context
from geoblanket.errors import ParameterError
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.loss.standard import NearestVehicle, StraightLine, TravelCost
from geoblanket.loss.tasks import Effort, TaskPrior
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.zones import zone_in_words, zone_name
from geoblanket.mechanism.place_metric import GREAT_CIRCLE, ROAD, PlaceMetric, check_count
from geoblanket.mobility.histories import HistoryCounts, Steps, collect_steps, count_histories
from geoblanket.mobility.walks import MatchedWalks, scan_walks
from geoblanket.roads.distances import road_distances
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones, partition_zones, read_zones

_PACKAGES = ("numpy", "scipy", "polars")


@dataclass(frozen=True, eq=False)
class ZoneTask:
    """All that is needed to build one zone and regime."""

    zone: str
    """The zone's name in the bundle."""
    number: int
    regime: str
    context: Context
    """None for reports without history, whatever the build's context is."""
    members: Indices
    """The places of the zone, ascending."""
    zone_of: Indices
    """The number of the zone of every place."""
    places: Places
    counts: HistoryCounts
    """Histories of the training walks in this zone and regime."""
    steps: Steps
    """Steps of the held-out walks in this zone and regime."""
    lengths: Lengths
    loss: PlaceLoss
    config: BuildConfig
    reach_m: float
    """How far apart the places of a history can be, metres."""
    share: float
    """Of all training steps, the share in this zone and regime."""
    process: int
    """The process that asks for it."""
    metric: PlaceMetric | None = None
    """Distances of places; None: on the map."""

    @property
    def work(self) -> float:
        """Estimated effort, without a unit: for the progress and the time that is left."""
        rows = len(self.members) if self.context == NO_CONTEXT else self.config.max_rows
        return math.pow(rows, 1.5) * len(self.members)

    @property
    def name(self) -> str:
        """The zone and regime, in words."""
        return f"{zone_in_words(self.zone)}, regime '{self.regime}'"


@dataclass(frozen=True, eq=False)
class Inputs:
    """All that the tasks of a build are cut from."""

    config: BuildConfig
    graph: RoadGraph
    places: Places
    metric: PlaceMetric | None
    """Distances of places; None: on the map."""
    zones: Zones
    clock: Clock
    counts: HistoryCounts
    """Of the training walks."""
    steps: Steps
    """Of the held-out walks."""
    loss: PlaceLoss
    lengths: Callable[[tuple[int, ...]], Lengths]
    """The lengths of blankets in a regime with these hours."""
    snapping_radius_m: float
    identities: dict[str, str]
    """What identifies each input."""
    training: Training
    """What the mechanisms are learned from."""

    def tasks(self) -> Iterator[ZoneTask]:
        """Yield a task for each zone and regime, that of reports without history last."""
        total = max(1, int(self.counts.count.sum()))
        epsilon, everywhere = self.config.zone_epsilon, self.config.epsilon
        for regime, (name, hours) in enumerate([*self.clock.regimes, (self.clock.start, tuple(range(24)))]):
            chosen, chosen_held_out = (
                part.depth == 0 if name == self.clock.start else (part.regime == regime) & (part.depth > 0)
                for part in (self.counts, self.steps)
            )
            for number in range(len(self.zones)):
                members = self.zones.members(number)
                here = self.zones.zone[self.counts.histories[:, 0]] == number
                here_held_out = self.zones.zone[self.steps.histories[:, 0]] == number
                counts = self.counts.where(chosen & here)
                yield ZoneTask(
                    zone=zone_name(number),
                    number=number,
                    regime=name,
                    context=NO_CONTEXT if name == self.clock.start else self.config.context,
                    members=members,
                    zone_of=self.zones.zone,
                    places=self.places,
                    metric=self.metric,
                    counts=counts,
                    steps=self.steps.where(chosen_held_out & here_held_out),
                    lengths=self.lengths(hours),
                    loss=self.loss,
                    config=self.config.model_copy(update={"epsilon": epsilon.get(zone_name(number), everywhere)}),
                    reach_m=reach_radius_m(
                        interval_s=self.clock.interval_s,
                        snapping_radius_m=self.snapping_radius_m,
                        max_speed_m_s=self.config.max_speed_m_s,
                    ),
                    share=int(counts.count.sum()) / total,
                    process=os.getpid(),
                )


def load_inputs(roads: str | Path, walks: str | Path, config: BuildConfig, *, progress: Progress) -> Inputs:
    """Read everything, and check that it belongs together.

    Raises
    ------
    InputError
        If a file cannot be used.
    MismatchError
        If walks, zones or the predictor belong to other roads, places or times.
    ParameterError
        If zones that do not exist are given an ε.
    """
    matched = MatchedWalks.open(walks, roads)
    graph, places, interval_s = matched.graph, matched.places, matched.interval_s
    zones = (
        partition_zones(graph, places, max_places=config.max_places or DEFAULT_MAX_PLACES)
        if config.zones is None
        else read_zones(config.zones, places)
    )
    if unknown := sorted(set(config.zone_epsilon) - {zone_name(number) for number in range(len(zones))}):
        raise ParameterError(
            f"zone_epsilon names zones that do not exist, {len(unknown)} of them. The zones have the numbers 0 to "
            f"{len(zones) - 1}."
        )
    identities = {
        "roads": graph.identity,
        "walks": sha256_file(walks),
        "places": places.identity,
        "zones": zones.identity,
    }
    if matched.about.get("model"):
        identities["model"] = matched.about["model"]
    for name in ("predictor", "findings"):
        if (file := getattr(config, name)) is not None:
            identities[name] = sha256_file(file)
    lengths = zone_lengths(config, places, zones, interval_s)
    options = {
        "largest": config.largest,
        "delay": config.delay,
        "split": config.walk_split,
        "regimes": config.regime_hours,
        "progress": progress,
    }
    counts = count_histories(walks, places, part="train", **options)  # type: ignore[arg-type]  # options of many types
    steps = collect_steps(walks, places, part="held_out", **options)  # type: ignore[arg-type]  # options of many types
    return Inputs(
        config=config,
        graph=graph,
        places=places,
        metric=place_metric(config, graph, places),
        zones=zones,
        clock=config.clock(interval_s),
        counts=counts,
        steps=steps,
        loss=place_loss(config, matched, counts),
        lengths=lengths,
        snapping_radius_m=places.snapping_radius_m(graph),
        identities=identities,
        training=training_of_build(walks, config)[0],
    )


def place_metric(config: BuildConfig, graph: RoadGraph, places: Places) -> PlaceMetric | None:
    """Return the distances of places that a configuration asks for; None: on the map."""
    if config.metric == GREAT_CIRCLE:
        return None
    check_count(len(places))
    if config.metric == ROAD:
        return PlaceMetric.by_road(places.coordinates_e7, road_distances(graph, places.nodes, places.nodes))
    return PlaceMetric.by_norm(places.coordinates_e7, config.metric)


def software_versions() -> dict[str, str]:
    """Return the versions of what a result depends on."""
    return {
        "geoblanket": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def place_loss(config: BuildConfig, walks: MatchedWalks, counts: HistoryCounts) -> PlaceLoss:
    """Return the loss between places that a configuration asks for."""
    graph, places = walks.graph, walks.places
    if config.loss == "straight":
        return StraightLine(places)
    with reading_parquet(walks.path):
        tasks = (
            TaskPrior.uniform(graph) if config.tasks == "nodes" else TaskPrior.from_pick_ups(walks.frame, places)
        ).within_largest_part(graph)
    effort = Effort(max_tasks=config.max_tasks, seed=config.seed)
    if config.loss == "nearest":
        seen = np.bincount(counts.histories[:, 0], counts.count, len(places)).astype(np.float64)
        prior = seen / seen.sum() if seen.any() else np.full(len(places), 1 / len(places))
        return NearestVehicle(graph, places, tasks, prior, vehicles=config.vehicles, effort=effort)
    return TravelCost(graph, places, tasks, by="time" if config.loss == "time" else "length", effort=effort)


def zone_lengths(
    config: BuildConfig, places: Places, zones: Zones, interval_s: float
) -> Callable[[tuple[int, ...]], Lengths]:
    """Return what gives the lengths of blankets in a regime with some hours."""
    if config.findings is None and config.predictor is None:
        return lambda _: FixedLengths(config.blanket_order)
    from geoblanket.build.blanket_lengths import KnownLengths, check_source, read_source, regions_of_source

    source = read_source(findings=config.findings, predictor=config.predictor)
    check_source(source, interval_s=interval_s, time_zone=config.time_zone)
    region = regions_of_source(source, places, zones)
    return lambda hours: KnownLengths(source, places, region, hours, interval_s)


def training_of_build(walks: str | Path, config: BuildConfig) -> tuple[Training, str | None]:
    """Return the statement of a build, and why it promises less than that of its walks, or None.

    Whatever is computed from walks that were learned privately keeps their promise. Blankets that were found in other
    walks do not: findings and predictors have the statement of the walks that they come from.
    """
    stated = training_of(scan_walks(walks)[1])
    if config.findings is not None:
        from geoblanket.blanket.findings import scan_findings

        blankets, name = training_of(scan_findings(config.findings)[1]), "findings"
    elif config.predictor is not None:
        from geoblanket.blanket.predictor import load_predictor

        blankets, name = load_predictor(config.predictor).origin.training, "a predictor"
    else:
        return stated, None
    training = stated.together(blankets)
    if training == stated:
        return training, None
    return training, (
        f"The walks were {stated.in_words()}, and the blankets come from {name}, {blankets.in_words()}: for both "
        f"together no more is claimed than '{training.in_words()}'."
    )
