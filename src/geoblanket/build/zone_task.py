"""One zone and regime: from counts of histories to a verified mechanism, its record, and its losses on held-out walks.

A task holds all that it needs and nothing is shared, so that it runs in any process of any machine with the same
result.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace

import numpy as np

from geoblanket._arrays import Indices
from geoblanket.build.config import BuildConfig
from geoblanket.build.measures import VehicleLosses, measure, vehicle_losses, zone_disclosure
from geoblanket.build.record import ZoneRecord
from geoblanket.build.refinement import SecondStage, second_stage, split_rows
from geoblanket.build.row_tree import Lengths
from geoblanket.build.rows import NO_CONTEXT, Context, ZoneRows, make_problem, make_rows
from geoblanket.errors import ParameterError
from geoblanket.loss.place_loss import KnownLoss, PlaceLoss
from geoblanket.mechanism.bundle.storage import BundledMechanism
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.optimiser import OptimiseResult, Outcome, optimise
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.roads.places import Places

__all__ = ["ZoneResult", "ZoneTask", "build_zone", "leave_ctrl_c_to", "peak_memory_mb"]

_BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, eq=False)
class ZoneTask:
    """All that is needed to build one zone and regime."""

    zone: str
    """The zone's name in the bundle."""
    number: int
    regime: str
    context: Context
    """None for reports without history, whatever the build's context is."""
    further: int
    """How many places further back the second stage looks; 0 for none."""
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
class ZoneResult:
    """What was built, as arrays and numbers."""

    record: ZoneRecord
    bundled: BundledMechanism
    losses: VehicleLosses
    context_free: VehicleLosses


def build_zone(task: ZoneTask) -> ZoneResult:
    """Build one zone and regime: rows, problem, optimum, exact repair and verification, held-out losses."""
    leave_ctrl_c_to(task.process)
    started = time.perf_counter()
    config = task.config
    rows = _rows(task, task.context)
    plain = _rows(task, NO_CONTEXT) if config.compare and task.context != NO_CONTEXT else None
    fine, not_split = _fine_rows(task, rows)
    loss = _known_loss(task, [rows, *(other for other in (plain, fine) if other is not None)])
    result = _optimised(_problem(rows, loss, config), config)
    refined, not_refined = (None, not_split) if fine is None else _second_stage(task, rows, fine, loss, result)
    notes = [*_notes(rows, result, config), *not_refined]
    base, base_losses = result, vehicle_losses(result.mechanism, rows, task.steps, loss)
    made: OptimiseResult | SecondStage = result
    losses = base_losses
    if refined is not None and refined.record.used:
        made, rows = refined, refined.rows
        losses = vehicle_losses(made.mechanism, rows, task.steps, loss)
    if plain is not None:
        base = _optimised(_problem(plain, loss, config), config)
        base_losses = vehicle_losses(base.mechanism, plain, task.steps, loss)
    compared = config.compare
    record = ZoneRecord(
        zone=task.zone,
        number=task.number,
        regime=task.regime,
        rows=rows.report,
        epsilon=config.epsilon,
        eta_km=config.eta_km,
        history_weights=rows.history_weights,
        share=task.share,
        unit=task.loss.unit,
        loss=made.loss,
        lower_bound=made.lower_bound,
        gap=made.gap,
        loss_error=loss.largest_error,
        outputs_used=made.outputs_used,
        outcome=result.outcome.value,
        seconds=time.perf_counter() - started,
        peak_memory_mb=peak_memory_mb(),
        held_out=measure(losses),
        context_free_loss=base.loss if compared else None,
        context_free_bound=base.lower_bound if compared else None,
        context_free_held_out=measure(base_losses) if compared else None,
        disclosure=zone_disclosure(made.mechanism, rows, task.counts, task.zone_of),
        refinement=None if refined is None else refined.record,
        notes=tuple(notes),
    )
    bundled = BundledMechanism.of(
        made.mechanism,
        zone=task.zone,
        regime=task.regime,
        history_weights=rows.history_weights,
        histories=rows.histories,
        output_places=rows.zone,
    )
    return ZoneResult(record, bundled, losses, base_losses if compared else VehicleLosses.joined([]))


def peak_memory_mb() -> float:
    """Return the largest resident size of this process so far, megabytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0.0
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_UNIT / 1e6, 1)


def _fine_rows(task: ZoneTask, rows: ZoneRows) -> tuple[ZoneRows | None, list[str]]:
    """Return the rows of the second stage, or else why there are none, if they were asked for."""
    if not task.further:
        return None, []
    try:
        fine = split_rows(
            rows,
            task.places,
            task.counts,
            further=task.further,
            reach_m=task.reach_m,
            history_weights=task.config.history_weights,
        )
    except ParameterError as error:
        return None, [_stays(error)]
    if fine is rows:
        return None, ["the first stage stays: there is no longer past to split its rows by"]
    return fine, []


def _second_stage(
    task: ZoneTask, rows: ZoneRows, fine: ZoneRows, loss: PlaceLoss, first: OptimiseResult
) -> tuple[SecondStage | None, list[str]]:
    config = task.config
    problem = _problem(fine, loss, config)
    best = _optimised(problem, config)
    try:
        refined = second_stage(first.mechanism, rows, fine, problem, best, time_limit_s=config.time_limit_s)
    except ParameterError as error:
        return None, [_stays(error)]
    return refined, [] if refined.record.used else ["the first stage stays: the second found nothing better"]


def _stays(error: ParameterError) -> str:
    return f"the first stage stays: {str(error).rstrip('.')}"


def _rows(task: ZoneTask, context: Context) -> ZoneRows:
    counts = task.counts
    if task.further:  # what only the second stage looks at must not change the first
        counts = replace(counts, histories=counts.histories[:, : 1 + task.config.largest])
    return make_rows(
        task.places,
        task.members,
        counts,
        reach_m=task.reach_m,
        context=context,
        lengths=task.lengths,
        history_weights=task.config.history_weights,
        max_rows=task.config.max_rows,
        min_count=task.config.min_count,
    )


def _known_loss(task: ZoneTask, all_rows: list[ZoneRows]) -> KnownLoss:
    later = np.concatenate([task.steps.next_place, *(rows.next_place.indices for rows in all_rows)])
    return KnownLoss.of(task.loss, later, all_rows[0].zone)


def _problem(rows: ZoneRows, loss: PlaceLoss, config: BuildConfig) -> Problem:
    return make_problem(rows, loss, epsilon=config.epsilon, eta_km=config.eta_km)


def _optimised(problem: Problem, config: BuildConfig) -> OptimiseResult:
    result = optimise(problem, gap=config.gap, time_limit_s=config.time_limit_s)
    if result.outcome is Outcome.INTERRUPTED:
        # The result is not within the gap that was asked for, so it must not count as finished.
        raise KeyboardInterrupt
    return result


def _notes(rows: ZoneRows, result: OptimiseResult, config: BuildConfig) -> list[str]:
    notes = []
    if rows.report.steps == 0:
        notes.append("no data: no training walk was here, so all places count as equally probable")
    if result.gap > config.gap:
        notes.append(f"the gap of {config.gap:g} was not reached ({result.outcome.value})")
    if result.outputs_used == 1 and len(rows.zone) > 1:
        notes.append("one output is as good as any: reports say little more than the zone")
    return notes


def leave_ctrl_c_to(process: int) -> None:
    """Ignore Ctrl-C, which a terminal sends to every process, unless this is the one that acts on it."""
    if os.getpid() != process and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
